"""The command line as a source of values, on argparse. Splits words only; what they mean is in the table."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from uad.common.names import did_you_mean
from uad.config.flag import Flag, Given, Layer, read
from uad.config.flags import FLAGS
from uad.config.foreign import IGNORED, REFUSED
from uad.config.kinds import Kind
from uad.config.slices import ModelConfig
from uad.config.sources import KvOverride, LoraConfig, Place
from uad.errors import ConfigError

_WIDTH = 36


class Parser(argparse.ArgumentParser):
    """argparse that knows exact names only and raises ConfigError instead of leaving the process."""

    def __init__(self, prog: str, description: str, epilog: str = "", positional: str = "") -> None:
        usage = " ".join(word for word in (prog, positional, "[flags]") if word)
        super().__init__(
            prog, usage, description, epilog or None, formatter_class=_Help, add_help=False, allow_abbrev=False
        )
        self.add_argument("-h", "--help", action="help", help="show this help and leave")
        self.set_defaults(given=(), ignored=())

    def error(self, message: str) -> NoReturn:
        """What argparse calls for arguments that it cannot take. Always raises ConfigError."""
        raise ConfigError(message.replace("argument ", "", 1))

    def _get_option_tuples(self, option_string: str) -> list[tuple[argparse.Action, str, str | None]]:
        return []  # -ctx is not -c with the value "tx": llama-server's names have one dash and several letters

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Like parse_args; an unknown flag is named together with its nearest known one."""
        args, rest = self.parse_known_args(list(argv))
        for word in rest:
            if word.startswith("-") and word != "-":
                raise ConfigError(self._unknown(word.partition("=")[0]))
        if rest:
            raise ConfigError(f"unexpected argument {rest[0]!r}")
        return args

    def _unknown(self, name: str) -> str:
        shown = {name for action in self._actions if action.help != argparse.SUPPRESS for name in action.option_strings}
        alike = [known for known in shown if known.startswith("--") == name.startswith("--")]
        for refused in REFUSED:
            if name in refused.names.split():
                return refused.told(name)
        if any(name in (*flag.names.split(), *flag.off.split()) for flag in FLAGS):
            return f"{name} is a flag of `uad serve`, not of `{self.prog}`"
        return f"unknown flag {name}; {did_you_mean(name, alike or shown)}"


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help with the metavar once per flag, not once per name."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=_WIDTH, width=110)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {self._format_args(action, action.dest.upper())}"


class _Collect(argparse.Action):
    """Appends the checked value of a flag to `namespace.given`, so that order and repetition are kept."""

    def __init__(
        self,
        option_strings: Sequence[str],
        dest: str,
        flag: Flag,
        nargs: Any = None,
        metavar: Any = None,
        help: str = "",
        default: object = None,
    ) -> None:
        super().__init__(option_strings, dest, nargs=nargs, metavar=metavar, help=help, default=argparse.SUPPRESS)
        self.flag = flag

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: object, option_string: str | None = None
    ) -> None:
        name = option_string or self.flag.name
        texts = [values] if isinstance(values, str) else list(values) if isinstance(values, list) else []
        given = read(
            self.flag, [str(text) for text in texts] or [self.flag.bare or "on"], name, name in self.flag.off.split()
        )
        namespace.given = (*namespace.given, given)


class _Ignore(argparse.Action):
    """Notes a flag that changes nothing."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: object, option_string: str | None = None
    ) -> None:
        namespace.ignored = (*namespace.ignored, option_string)


def add_flags(parser: Parser, groups: Sequence[str]) -> None:
    """Give a parser the flags of these groups, and llama-server's harmless ones."""
    for title in groups:
        add_group(parser, title)
    for ignored in IGNORED:
        nargs = None if ignored.nargs == 1 else ignored.nargs
        parser.add_argument(
            *ignored.names.split(), action=_Ignore, nargs=nargs, dest="ignored", help=argparse.SUPPRESS, default=()
        )


def add_group(parser: argparse.ArgumentParser, title: str, without: Sequence[str] = ()) -> None:
    """Give a parser the flags of one group, but for those of these names."""
    group = parser.add_argument_group(title)
    for flag in FLAGS:
        if flag.group == title and flag.name not in without:
            _add(group, flag)


def _add(group: argparse._ArgumentGroup, flag: Flag) -> None:
    arity = flag.kind.arity
    nargs = "?" if flag.bare else arity if arity != 1 else None
    metavar = tuple(flag.metavar.split()) if arity == 2 else flag.metavar or None
    names = (*flag.names.split(), *flag.off.split())
    group.add_argument(
        *names,
        action=_Collect,
        flag=flag,
        nargs=nargs,
        metavar=metavar,
        help=flag.help_text().replace("%", "%%"),
        dest="given",
    )


def typed(kind: Kind) -> Callable[[str], Any]:
    """argparse's `type` of a flag that is not in the table: its text becomes a checked value, and what is wrong is said
    with its name.
    """

    def parse(text: str) -> object:
        try:
            return kind.parse(text)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        except (ValueError, OverflowError) as error:
            raise argparse.ArgumentTypeError(f"expected {kind.expects}, got {text!r}") from error

    return parse


def give(args: argparse.Namespace, name: str, text: str) -> None:
    """Set a flag from a positional argument, as if it had been given last. Raises ConfigError."""
    flag = next(flag for flag in FLAGS if name in flag.names.split())
    args.given = (*args.given, read(flag, [text], name.lstrip("-").upper()))


def words_of(target: ModelConfig) -> list[str]:
    """The flags of `uad serve` that have a target loaded and run so; defaults are left out."""
    default, words = ModelConfig(target.path), ["--model", str(target.path)]
    for flag in {flag.path: flag for flag in FLAGS}.values():  # the last one of a place takes the value as it is kept
        part, _, name = flag.path.partition(".")
        if (
            part != "target"
            or name == "path"
            or len(flag.paths) > 1
            or (value := getattr(target, name)) == getattr(default, name)
        ):
            continue
        words += [flag.name if value else flag.off.split()[0]] if isinstance(value, bool) else [flag.name, _word(value)]
    return words


def _word(value: object) -> str:
    """A value as its flag takes it; a list without entries is one of devices."""
    if isinstance(value, tuple):
        words = [one.word if isinstance(one, LoraConfig | KvOverride | Place) else str(one) for one in value]
        return ",".join(words) or "none"
    return str(value)


def layer_of(args: argparse.Namespace) -> Layer:
    """What the command line gave."""
    given: tuple[Given, ...] = args.given
    return Layer(given, tuple(dict.fromkeys(args.ignored)))
