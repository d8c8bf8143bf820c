"""`python -m ratecli`."""

import sys

from ratecli.cli.app import main

if __name__ == "__main__":  # spawned workers import this module again
    sys.exit(main())
