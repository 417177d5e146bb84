"""The command line as a source of values, on argparse. Splits words only; what they mean is in the table."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from uad.base.common.names import did_you_mean
from uad.base.config.flags import FLAGS, GROUPS, Flag, Given, Layer, checked, read
from uad.base.config.foreign import IGNORED, check_refused
from uad.base.config.kinds import Kind
from uad.base.errors import ConfigError

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
        """Called by argparse for arguments that it cannot take. Always raises ConfigError."""
        raise ConfigError(message.replace("argument ", "", 1))

    def _get_option_tuples(self, option_string: str) -> list[tuple[argparse.Action, str, str | None]]:
        return []  # -ctx is not -c with the value "tx": llama-server's names have one dash and several letters

    def parse(self, argv: Sequence[str], most_words: int = 0) -> argparse.Namespace:
        """Like parse_args; an unknown flag is named together with its nearest known one. Up to `most_words` words that
        belong to no flag are in `words`, wherever they stand: argparse takes optional ones before the first flag only.
        """
        args, rest = self.split(argv)
        for word in rest:
            if word.startswith("-") and word != "-":
                name = word.partition("=")[0]
                check_refused(name, name)
                raise ConfigError(self._unknown(name))
        args.words = rest[:most_words]
        if rest[most_words:]:
            raise ConfigError(f"unexpected argument {rest[most_words]!r}; {self._instead()}")
        return args

    def split(self, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """Parse the words that this parser knows, and return the others in their order."""
        return self.parse_known_args([_with_hyphens(word) for word in argv])

    def _instead(self) -> str:
        has_models = any("--target" in action.option_strings for action in self._actions)
        models = "models are named with --target FILE and --draft FILE; " if has_models else ""
        return f"{models}{self.prog} --help has all flags"

    def _unknown(self, name: str) -> str:
        shown = {name for action in self._actions if action.help != argparse.SUPPRESS for name in action.option_strings}
        alike = [known for known in shown if known.startswith("--") == name.startswith("--")]
        if any(name in flag.all_names for flag in FLAGS):
            return f"{name} is a flag of `uad serve`, not of `{self.prog}`"
        return f"unknown flag {name}; {did_you_mean(name, alike or shown)}"


def _with_hyphens(word: str) -> str:
    """Names of flags may have underscores, as in llama-server; what has blanks is a text that begins with dashes."""
    name, equals, value = word.partition("=")
    is_flag = name.startswith("--") and not any(map(str.isspace, name))
    return name.replace("_", "-") + equals + value if is_flag else word


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help with the metavar once per flag, not once per name."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=_WIDTH, width=110)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {self._format_args(action, action.dest.upper())}"


class _Collect(argparse.Action):
    """Appends the checked value of a flag, `const`, to `namespace.given`, so that order and repetition are kept."""

    def __call__(
        self, parser: object, namespace: argparse.Namespace, values: object, option_string: str | None = None
    ) -> None:
        flag: Flag = self.const
        name = option_string or flag.name
        texts = [values] if isinstance(values, str) else list(values) if isinstance(values, list) else []
        given = read(flag, [str(text) for text in texts] or [flag.setting.bare or "on"], name, name in flag.off.split())
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
    for n_values, names in IGNORED.items():
        for name in names.split():
            nargs = None if n_values == 1 else n_values
            parser.add_argument(name, action=_Ignore, nargs=nargs, dest="ignored", help=argparse.SUPPRESS, default=())


def add_group(parser: argparse.ArgumentParser, title: str, without: Sequence[str] = ()) -> None:
    """Give a parser the flags of one group, but for those of these names."""
    group = parser.add_argument_group(title)
    for flag in GROUPS[title]:
        if flag.name not in without:
            _add(group, flag)


def _add(group: argparse._ArgumentGroup, flag: Flag) -> None:
    """Give a group this flag. Where a value may be left out, names that switch it off are a flag without one: what
    follows `--no-kernels` is the next argument.
    """
    arity, metavar = flag.kind.arity, flag.setting.metavar or flag.kind.metavar or None
    off = flag.off.split() if flag.setting.bare else []
    if off:
        help_ = f"the same as {flag.name} off"
        group.add_argument(
            *off, action=_Collect, const=flag, nargs=0, help=help_, dest="given", default=argparse.SUPPRESS
        )
    group.add_argument(
        *(name for name in flag.all_names if name not in off),
        action=_Collect,
        const=flag,
        nargs="?" if flag.setting.bare else arity if arity != 1 else None,
        metavar=tuple(flag.setting.metavar.split()) if arity == 2 else metavar,
        help=flag.help_text().replace("%", "%%"),
        dest="given",
        default=argparse.SUPPRESS,
    )


def typed(kind: Kind) -> Callable[[str], Any]:
    """argparse's `type` of a flag outside the table: its text as a checked value; errors name the flag."""

    def parse(text: str) -> object:
        try:
            return checked(kind, [text])
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse


def give(args: argparse.Namespace, name: str, text: str) -> None:
    """Set a flag from a positional argument, as if it had been given last. Raises ConfigError."""
    flag = next(flag for flag in FLAGS if name in flag.names.split())
    args.given = (*args.given, read(flag, [text], name.lstrip("-").upper()))


def layer_of(args: argparse.Namespace) -> Layer:
    """Settings given on the command line, as a layer."""
    given: tuple[Given, ...] = args.given
    return Layer(given, tuple(dict.fromkeys(args.ignored)))
