"""The command `uad`, also as `python -m uad`."""

import sys

from uad.base.common import interrupts


def main() -> int:
    """Entry point; the exit codes are those of `uad.tools.cli.run`."""
    interrupts.catch()  # before the rest is imported, which takes most of the time
    from uad.tools.cli import main as command

    code = command()
    interrupts.leave_at_once()
    return code


if __name__ == "__main__":
    sys.exit(main())
