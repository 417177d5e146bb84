"""`python -m uad` is `uad`."""

import sys

from uad.cli import main

if __name__ == "__main__":
    sys.exit(main())
