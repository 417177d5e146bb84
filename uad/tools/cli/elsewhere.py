"""Commands that users of Ollama, LM Studio and llama.cpp try first, and the way there with uad."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from uad.base.common.files import is_file, is_folder, path_of

_FETCH = "`uad serve -hf USER/REPO` fetches a model of Hugging Face and serves it"
_FOLDER = "`uad serve --models-dir FOLDER` serves all models of a folder"
_FILES = (
    "models are files of a folder: add or delete them there, and the list of `uad serve --models-dir FOLDER` follows"
)
_WAYS = {
    f"{_FETCH}, with a page to chat; {_FOLDER}": "run chat start launch open load cli interactive",
    f"{_FETCH}, and `hf download USER/REPO` fetches it alone": "pull get download fetch install add import",
    f"{_FOLDER}, and GET /v1/models lists them; `uad inspect --all FOLDER` shows how they suit each other": (
        "list ls models search"
    ),
    "GET /v1/models of a server for a folder says which models are loaded": "ps status",
    "`uad inspect TARGET DRAFT` shows two models; GET /props of a server shows the one it serves": "show info",
    _FILES: "rm remove delete uninstall cp copy mv push",
    "Ctrl+C stops a server; POST /models/unload of a server for a folder unloads a model": "stop unload kill down",
    "what a Modelfile sets are flags of `uad serve`, or keys in the FILE.ini of --models-preset": "create edit",
    "`uad serve` has the flags of llama-server": "server llama-server up web ui",
    "`uad generate FILE PROMPT` answers a prompt in the terminal": "ask prompt complete completion llama-cli",
    "`uad inspect TARGET DRAFT --measure` measures a pair, `uad bench requests URL` a server": "benchmark llama-bench",
    "llama.cpp's own programs convert and quantize models": "convert quantize split merge",
}


def way(command: str, words: Sequence[str]) -> str:
    """The way to what this command does elsewhere, or to what a file is for; empty where nothing is known."""
    for word in (command, *words):
        path = path_of(word)
        if is_folder(path) or (is_file(path) and word.lower().endswith(".gguf")):
            given = shlex.quote(word)
            chat = (
                ""
                if is_folder(path)
                else f", with a page to chat; `uad generate {given} PROMPT` answers in the terminal"
            )
            return f"`uad serve {given}` serves it{chat}"
    return next((out for out, names in _WAYS.items() if command.lower() in names.split()), "")
