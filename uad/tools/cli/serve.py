"""`uad serve`: load the models, say where the server listens, serve until stopped."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from uad.base.common.files import is_folder, path_of
from uad.base.common.parent import end_with_parent
from uad.base.config import Config, ServerConfig
from uad.base.config.argv import Parser, add_flags, give
from uad.base.config.flags import GROUPS
from uad.base.config.load import FolderConfig, folder_from
from uad.base.console import level_of, progress
from uad.base.events import WARNING
from uad.base.log_writer import never_wait
from uad.tools.cli.models import begin_log, configured, embedder, embeds, has_template, runtime
from uad.tools.cli.pairs import PLAIN, reason
from uad.tools.hub import fetched

if TYPE_CHECKING:
    from uad.base.common.embedding import Embeds
    from uad.http.requests.generation import Backend
    from uad.runtime.plan import Plan

_log = logging.getLogger("uad")
_DESCRIPTION = (
    "Serve a target model over HTTP (OpenAI's and llama-server's API), sped up by a draft model with any tokenizer."
)
_EPILOG = """Flags are spelled as llama-server's. The command line wins over the environment, that over the file of
--config.

example: uad serve TARGET.gguf DRAFT.gguf --port 8080
         uad serve FOLDER --draft auto"""
_SHOWN = 8  # names of models
_ANY = {"//0.0.0.0:": "//127.0.0.1:", "//[::]:": "//[::1]:"}


def main(argv: Sequence[str]) -> int:
    """Serve until interrupted. Raises UadError."""
    never_wait()
    is_alone = not end_with_parent(os.environ)
    parser = Parser("uad serve", _DESCRIPTION, _EPILOG, "[TARGET [DRAFT] | FOLDER]")
    add_flags(parser, tuple(GROUPS))
    args = parser.parse(argv, most_words=2)
    for name, word in zip(("--target", "--draft"), args.words, strict=False):
        give(args, "--models-dir" if name == "--target" and is_folder(path_of(word)) else name, word)
    folder = folder_from(args, os.environ)
    if folder is not None:
        _serve_folder(folder)
    else:
        _serve_one(configured(args, has_hints=is_alone), is_alone)
    return 0


def _warn_of_strangers(config: ServerConfig) -> None:
    """Where others may reach the server without a key."""
    from uad.http.edge.access import is_loopback

    if not config.api_keys and (open_to := [host for host in config.hosts if not is_loopback(host)]):
        _log.warning(
            "--host %s lets other machines in, and no --api-key is set: whoever reaches port %d may use this server",
            ",".join(open_to),
            config.port,
        )


def _serve_folder(config: FolderConfig) -> None:
    """Serve several models, each in a process of its own. Raises ConfigError."""
    from uad.router.serving import serve_folder

    begin_log(config)
    _warn_of_strangers(config.server)

    def ready(names: Sequence[str], url: str) -> None:
        print("\n".join((f"listening on {url}", *_folder_lines(names, config))), flush=True)

    serve_folder(config, os.environ, log_line, ready)


def log_line(model: str, line: str) -> None:
    """A line of a model's process in the router's own log, at its level."""
    level, text = level_of(line)
    _log.log(level, "[%s] %s", model, text)


def _folder_lines(names: Sequence[str], config: FolderConfig) -> Iterator[str]:
    """Lines to print about the models."""
    folder, preset = config.router.models_dir, config.router.models_preset
    if names:
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        yield f"{len(names)} models, loaded on demand: {shown}"
    elif folder is not None:
        yield f"no model yet: put GGUF files into {folder}, into folders of it, or into theirs"
    else:
        yield f"no model yet: {preset} has no section with `model` or `hf-repo`, and no --models-dir is given"
    given = [entry for layer in (*config.elsewhere, config.line) for entry in layer.given]
    if preset is None and not any(entry.flag.path.startswith("draft") for entry in given):
        yield PLAIN


def _serve_one(config: Config, is_alone: bool) -> None:
    """Serve one target. is_alone: whether no parent asks how much memory that takes. Raises UadError."""
    from uad.http.server import serve

    _warn_of_strangers(config.server)

    def ready(opened: Backend, url: str) -> None:
        for line in opened.info.notes:
            _log.log(logging.WARNING if line.startswith(WARNING) else logging.INFO, "%s", line.removeprefix(WARNING))
        print("\n".join(greeting(url, config.server, has_template(opened), opened.embeds)), flush=True)

    def planned(plan: Plan) -> None:
        if not is_alone and plan.memory is not None:
            print(f"plans to take {plan.memory.host + plan.memory.mapped} bytes", flush=True)

    serve(_watched(config, planned), config.server, ready)


@contextmanager
def _watched(config: Config, planned: Callable[[Plan], None]) -> Iterator[Backend]:
    """The loaded models, of which `planned` gets the plan before; what a draft gains is kept for `--draft auto`. Raises
    UadError.
    """
    from uad.pairs.conditions import conditions
    from uad.pairs.gains import GainWatch

    if config.target.hub is not None:
        with progress(sys.stderr, tell=_log.info) as report:
            config = fetched(config, report, sees=True)
    if embeds(config):
        with embedder(config, _log.info) as embedding:
            yield embedding
        return
    with runtime(config, tell=_log.info, planned=planned) as opened, ExitStack() as stack:
        target, draft = opened.config.target.path, opened.info.draft
        if not opened.info.more_drafts and (draft is None or Path(draft.path) != target):
            try:
                under = conditions(config)
                stack.enter_context(GainWatch(opened, target, None if draft is None else Path(draft.path), under))
            except Exception as error:
                _log.warning("what drafts gain is not measured (%s)", reason(error))
        yield opened


def greeting(url: str, server: ServerConfig, can_chat: bool, embeds: Embeds | None = None) -> Iterator[str]:
    """Lines to print once the server listens: where, how to ask it, and the page."""
    yield f"listening on {url}"
    first, *others = (f"[{host}]" if ":" in host else host for host in server.hosts)
    yield from (f"and on {url.replace(f'//{first}:', f'//{host}:', 1)}" for host in others)
    yield curl(url, server, can_chat, embeds)
    if server.ui:
        yield f"or see which model wrote each token: {_reachable(url)}/"


def _reachable(url: str) -> str:
    """An address for this machine's own browser."""
    for any_address, local in _ANY.items():
        url = url.replace(any_address, local)
    return url


def curl(url: str, server: ServerConfig, can_chat: bool, embeds: Embeds | None = None) -> str:
    """A command to copy that gets an answer from the server at `url`; the key itself is not printed."""
    url = _reachable(url)
    chat, plain = '"messages": [{"role": "user", "content": "Tell me a story."}]', '"prompt": "Once upon a time"'
    route, ask = ("/v1/chat/completions", chat) if can_chat else ("/v1/completions", plain)
    more = ', "max_tokens": 64'
    if embeds is not None:
        ranking = '"query": "tea", "documents": ["A cup of tea.", "A steam engine."]'
        ranks = embeds.facts.ranks
        route, ask, more = ("/v1/rerank", ranking, "") if ranks else ("/v1/embeddings", '"input": "A cup of tea."', "")
    key = ' -H "Authorization: Bearer $LLAMA_API_KEY"' if server.api_keys else ""
    body = shlex.quote(f"{{{ask}{more}}}")
    return f"curl {url}{route} -H 'Content-Type: application/json'{key} -d {body}"
