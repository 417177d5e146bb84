"""The command line: `uad <command> …`. Finds the command, turns errors into one line and an exit code; knows no model.

Everything heavy is imported inside the commands, so that `uad --help` answers at once.
"""

from __future__ import annotations

import faulthandler
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from uad import __version__
from uad.base.common import interrupts
from uad.base.common.names import did_you_mean
from uad.base.console import note, prepare_streams, say
from uad.base.errors import ConfigError, InvalidRequestError, MappingError, ModelLoadError, NotSupportedError, UadError
from uad.base.log_writer import kept_streams
from uad.tools.cli.elsewhere import way

__all__ = ["main"]

USAGE, FAILED = 2, 1
_USERS = (ConfigError, ModelLoadError, MappingError, InvalidRequestError, NotSupportedError)


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command: its line in the help, and the module whose `main` runs it."""

    help: str
    module: str

    def run(self, argv: Sequence[str]) -> int:
        """Run it with the words after its name; returns an exit code. Raises UadError."""
        return int(importlib.import_module(f"uad.tools.cli.{self.module}").main(argv))


COMMANDS = {
    "serve": Command("serve a target model, sped up by a draft model, over HTTP", "serve"),
    "generate": Command("answer one prompt in the terminal", "generate"),
    "plan": Command("say what `uad serve` would open, and the memory it takes, without opening it", "plan"),
    "inspect": Command("show what two models have in common and how text is translated", "inspect"),
    "profile": Command("measure what decodes cost on this machine, for `uad serve` to find", "profile"),
    "check": Command("check that this machine keeps the promises of the same text", "check"),
    "trim": Command("make a draft smaller: keep the tokens that a corpus uses", "trim"),
    "mapping": Command("look at, derive, check and lint the rules between chat formats", "mapping"),
    "rpc-worker": Command("lend this machine's devices to a server on another machine", "rpc_worker"),
    "bench": Command("measure whole requests of running servers, with drafts, without, and on other servers", "bench"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `uad`; see `run` for its exit codes."""
    return run(_dispatch, sys.argv[1:] if argv is None else argv)


def run(command: Callable[[list[str]], int], argv: Sequence[str]) -> int:
    """A command with these words. Exit codes: 0 done, 1 failed, 2 wrong usage, configuration or files, 130
    interrupted.
    """
    prepare_streams()
    if not faulthandler.is_enabled():
        with suppress(ValueError, OSError):  # stderr is no file
            faulthandler.enable(all_threads=False)  # a model's file cut while it is mapped is SIGBUS, without a word
    with kept_streams():
        return _run(command, argv)


def _run(command: Callable[[list[str]], int], argv: Sequence[str]) -> int:
    try:
        try:
            return command([as_text(word) for word in argv])
        finally:
            sys.stdout.flush()  # here, where a reader that has left can still be dealt with
    except UadError as error:
        note(f"error: {error}")
        return USAGE if isinstance(error, _USERS) else FAILED
    except KeyboardInterrupt:
        interrupts.leave_at_once()
        say(sys.stderr, "\nuad: interrupted")
        return interrupts.INTERRUPTED
    except OSError as error:
        # The rest of the output would fail once more while Python leaves. Where the reader left (uad generate … | head)
        # nothing is said.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            note(f"error: {error}")
        return FAILED


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_help(), file=sys.stdout if argv else sys.stderr)
        return 0 if argv else USAGE
    if argv[0] in ("--version", "version"):
        print(_version())
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        out = way(name, rest) or f"{did_you_mean(name, COMMANDS)} (uad --help lists them)"
        raise ConfigError(f"unknown command {name!r}; {out}")
    return COMMANDS[name].run(rest)


def as_text(word: str) -> str:
    """A word of the command line as UTF-8, whatever the locale took it for; what is no UTF-8, as in names of files,
    stays as it is.
    """
    try:
        return os.fsencode(word).decode()
    except UnicodeError:
        return word


def _version() -> str:
    try:
        binding = importlib.metadata.version("llama-cpp-python")
    except importlib.metadata.PackageNotFoundError:
        binding = "not installed"
    return f"uad {__version__} (llama-cpp-python {binding})"


def _help() -> str:
    lines = "\n".join(f"  {name:<10} {command.help}" for name, command in COMMANDS.items())
    return f"""usage: uad COMMAND …

Universal assisted decoding: any small GGUF draft model speeds up any GGUF target, whatever the two tokenizers are.

commands:
{lines}

uad COMMAND --help tells more, uad --version the versions. For a start:
  uad serve TARGET.gguf DRAFT.gguf
  uad serve FOLDER --draft auto"""
