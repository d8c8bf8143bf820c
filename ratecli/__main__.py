"""`python -m ratecli`."""

import sys

from ratecli.cli.app import main

if __name__ == "__main__":  # a spawned worker imports this module again
    sys.exit(main())
