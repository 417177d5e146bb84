"""The command `uad`, also as `python -m uad`."""

import os
import sys


def main() -> int:
    """Entry point; the exit codes are those of `uad.tools.cli.run`."""
    try:
        from uad.base.common import interrupts

        interrupts.catch()  # before the rest is imported, which takes most of the time
        from uad.tools.cli import main as command
    except KeyboardInterrupt:
        os.write(2, b"\nuad: interrupted\n")
        os._exit(130)
    code = command()
    interrupts.leave_at_once()
    return code


if __name__ == "__main__":
    sys.exit(main())
