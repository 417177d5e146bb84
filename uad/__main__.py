"""`python -m uad` is `uad`."""

import sys

from uad.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
