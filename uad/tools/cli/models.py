"""First steps of every command with models: parse, say what was ignored, load. Knows no HTTP and no output format."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from uad.base.config import Config
from uad.base.config.argv import Parser, add_flags, give
from uad.base.config.flags import EMBEDDING, GROUPS, SERVER
from uad.base.config.load import FolderConfig, NoTargetError, config_from
from uad.base.console import LogLines, note, progress, set_up_logging
from uad.base.errors import ConfigError
from uad.base.model_files import wrong_files
from uad.tools.cli.pairs import with_helps
from uad.tools.hub import fetched

if TYPE_CHECKING:
    import argparse

    from uad.http.requests.generation import Backend
    from uad.runtime.embedder import EmbeddingRuntime
    from uad.runtime.plan import Plan
    from uad.runtime.runtime import Runtime

_log = logging.getLogger("uad")
_LEVELS = {0: logging.ERROR, 1: logging.ERROR, 2: logging.WARNING, 4: logging.DEBUG, 5: logging.DEBUG}
"""By --verbosity; 3, the default, is the command's own."""
MODEL_GROUPS = tuple(group for group in GROUPS if group not in (SERVER, EMBEDDING))


def parse(
    parser: Parser,
    argv: Sequence[str],
    groups: Sequence[str] = MODEL_GROUPS,
    positional: Sequence[str] = (),
    log_level: int = logging.INFO,
) -> tuple[argparse.Namespace, Config]:
    """The command's own arguments, and the configuration from flags, environment and file. Raises ConfigError.

    `positional` are flags whose values may be given as words without them, in this order; --verbose and --verbosity win
    over `log_level`. A command that logs what happens has its notes there, too.
    """
    add_flags(parser, groups)
    args = parser.parse(argv, len(positional))
    for name, text in zip(positional, args.words, strict=False):
        give(args, f"--{name}", text)
    try:
        return args, configured(args, log_level)
    except NoTargetError:
        if "target" not in positional:
            raise
        raise NoTargetError(f"give its GGUF file: {parser.prog} TARGET") from None


def configured(args: argparse.Namespace, log_level: int = logging.INFO, has_hints: bool = False) -> Config:
    """The configuration from parsed flags, environment and file, whose log has begun. has_hints: where nothing drafts,
    a line says what would.

    Raises ConfigError, or ModelLoadError for files that are missing: before anything slow is imported.
    """
    config = config_from(args, os.environ)
    begin_log(config, log_level)
    wrong = list(wrong_files(config))
    for error in wrong[:-1]:
        note(f"error: {error}")
    for error in wrong[-1:]:
        raise error
    if embeds(config):
        return config
    return with_helps(config, _log.info if log_level == logging.INFO else note, has_hints)


def begin_log(config: Config | FolderConfig, log_level: int = logging.INFO) -> None:
    """Log as this configuration has it, first what was ignored. Raises ConfigError."""
    level = logging.DEBUG if config.verbose else _LEVELS.get(config.log.verbosity, log_level)
    try:
        lines = LogLines(config.log.timestamps, config.log.prefix, config.log.colors)
        set_up_logging(level, config.log.file, lines, config.log.is_off)
    except OSError as error:
        raise ConfigError(f"--log-file: {config.log.file} cannot be written ({error.strerror})") from error
    for line in config.notes:
        (_log.warning if log_level == logging.INFO else note)(line)


def embeds(config: Config) -> bool:
    """Whether the target embeds or ranks texts: its flags say so, or its file, once it is there."""
    from uad.pairs.header import facts, stamp

    own, path = config.embedding, config.target.path
    if own.is_on or own.ranks or own.pooling:
        return True
    return config.target.hub is None and bool(facts(path, stamp(path)).purpose)


@contextmanager
def embedder(config: Config, tell: Callable[[str], None]) -> Iterator[EmbeddingRuntime]:
    """The loaded model of a server that embeds; a line says what has no effect then. Raises UadError."""
    from uad.runtime.embedder import EmbeddingRuntime

    for flag, given in (("--draft", config.draft), ("--mmproj", config.vision.path)):
        if given is not None:
            _log.warning("%s has no effect: %s embeds texts, and writes none", flag, config.target.path.name)
    with progress(sys.stderr, tell=tell) as report:
        opened = EmbeddingRuntime(config, report)
    with opened:
        yield opened


@contextmanager
def runtime(
    config: Config,
    quiet: bool = False,
    tell: Callable[[str], None] | None = None,
    planned: Callable[[Plan], None] = lambda plan: None,
) -> Iterator[Runtime]:
    """The loaded models; progress is shown in the terminal, or passed to `tell`, the plan to `planned`. Raises
    UadError.
    """
    from uad.runtime.runtime import Runtime

    with progress(sys.stderr, quiet, tell) as report:
        opened = Runtime.open(fetched(config, report, sees=True), report, planned)
    with opened:
        yield opened


def has_template(opened: Runtime | Backend) -> bool:
    """Whether chats have a template that the user gave or the target's file holds."""
    return bool(opened.config.templates.template(opened.info.target.chat_template))
