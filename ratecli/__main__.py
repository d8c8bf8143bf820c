"""`python -m ratecli`."""

from ratecli.cli.app import run_and_exit

if __name__ == "__main__":  # spawned workers import this module again
    run_and_exit()
