"""What every command with models does first: parse, say what was ignored, load. Knows no HTTP and no output format."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from uad.config import Config
from uad.config.argv import Parser, add_flags, give
from uad.config.flags import GROUPS, SERVER
from uad.config.load import config_from
from uad.console import note, progress, set_up_logging
from uad.errors import ConfigError
from uad.hub import fetched

if TYPE_CHECKING:
    import argparse

    from uad.requests.engine import Backend
    from uad.runtime import Runtime

MODEL_GROUPS = tuple(group for group in GROUPS if group != SERVER)


def parse(
    parser: Parser,
    argv: Sequence[str],
    groups: Sequence[str] = MODEL_GROUPS,
    positional: Sequence[str] = (),
    log_level: int = logging.INFO,
) -> tuple[argparse.Namespace, Config]:
    """The command's own arguments, and the configuration from flags, environment and file. Raises ConfigError.

    `positional` are arguments of the parser that stand for the flag of the same name where they are given; --verbose
    wins over `log_level`.
    """
    add_flags(parser, groups)
    args = parser.parse(argv)
    for name in positional:
        if (text := getattr(args, name)) is not None:
            give(args, f"--{name}", text)
    config = config_from(args, os.environ)
    try:
        set_up_logging(logging.DEBUG if config.verbose else log_level, config.log_file)
    except OSError as error:
        raise ConfigError(f"--log-file: {config.log_file} cannot be written ({error.strerror})") from error
    for line in config.notes:
        note(line)
    return args, config


@contextmanager
def runtime(config: Config, quiet: bool = False) -> Iterator[Runtime]:
    """The loaded models; the terminal shows how far loading is. Raises UadError."""
    from uad.runtime import Runtime

    with progress(sys.stderr, quiet) as report:
        opened = Runtime.open(fetched(config, report), report)
    with opened:
        yield opened


def has_template(opened: Runtime | Backend) -> bool:
    """Whether chats have a template that the user gave or the target's file holds."""
    return bool(opened.config.templates.template(opened.info.target.chat_template))
