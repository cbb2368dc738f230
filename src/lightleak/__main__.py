"""Runs the command line as ``python -m lightleak``."""

import sys

from lightleak.cli import main

if __name__ == "__main__":
    sys.exit(main())
