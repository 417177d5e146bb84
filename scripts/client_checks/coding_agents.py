"""codex, Claude Code, gemini-cli and opencode, as their users start them.

UAD_CLIENTS_AGENTS is the folder in which npm has installed them. They get a home and a project of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from checks import BASE_URL, KEY, MODEL, ROOT_URL, tell

AGENTS = Path(os.environ.get("UAD_CLIENTS_AGENTS", "."))
LOCK = json.loads((AGENTS / "package-lock.json").read_text(encoding="utf-8"))["packages"]
ASKED = "Say hello to me in one sentence. Use no tool."
TURN_S = 600
CODEX = """
model = "local"
model_provider = "uad"
[model_providers.uad]
name = "uad"
base_url = "{url}"
wire_api = "responses"
"""

OPENCODE = {
    "model": "uad/local",
    "provider": {
        "uad": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": BASE_URL},
            "models": {"local": {"limit": {"context": 32768, "output": 1024}}},
        }
    },
    "permission": {"edit": "allow"},
    "share": "disabled",
    "autoupdate": False,
}
GREETING = 'def greet() -> str:\n    return "Hello"\n'
EDIT = "Replace Hello by Goodbye in greeting.py. Read the file first."


def run(command: list[str | Path], folder: Path, **variables: str) -> str:
    """A program's output on stdout. Raises AssertionError where it fails, with the end of its output."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), **variables}
    done = subprocess.run(
        command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TURN_S
    )
    assert done.returncode == 0, f"code {done.returncode}: {(done.stdout + done.stderr)[-250:]}"
    return done.stdout


def codex(folder: Path) -> str:
    """The last message of `codex exec`."""
    home = folder / ".codex"
    home.mkdir()
    (home / "config.toml").write_text(CODEX.format(url=BASE_URL), encoding="utf-8")
    last = folder / "last.txt"
    words: list[str | Path] = [
        "exec",
        "--skip-git-repo-check",
        "--sandbox",
        "read-only",
        "--output-last-message",
        last,
        ASKED,
    ]
    run([AGENTS / "node_modules" / ".bin" / "codex", *words], folder, CODEX_HOME=str(home))
    return last.read_text(encoding="utf-8")


def claude_code(folder: Path) -> str:
    """The answer of `claude -p`."""
    variables = {
        "ANTHROPIC_BASE_URL": ROOT_URL,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "256",
    }
    return run([AGENTS / "node_modules" / ".bin" / "claude", "-p", ASKED, "--tools", "Bash"], folder, **variables)


def gemini_cli(folder: Path) -> str:
    """The answer of `gemini -p`."""
    home = folder / ".gemini"
    home.mkdir()
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    (home / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    variables = {"GOOGLE_GEMINI_BASE_URL": ROOT_URL, "GEMINI_API_KEY": KEY, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    return run([AGENTS / "node_modules" / ".bin" / "gemini", "-m", MODEL, "-p", ASKED], folder, **variables)


def opencode(folder: Path, asked: str) -> tuple[str, str]:
    """The answer of `opencode run` in a repository of one file, and that file as it is then."""
    config, project = folder / ".config" / "opencode", folder / "project"
    for made in (config, project):
        made.mkdir(parents=True)
    (config / "opencode.json").write_text(json.dumps(OPENCODE), encoding="utf-8")
    file = project / "greeting.py"
    file.write_text(GREETING, encoding="utf-8")
    author: list[str | Path] = ["-c", "user.name=uad", "-c", "user.email=uad@localhost"]
    for words in (["init", "--quiet"], ["add", "."], [*author, "commit", "--quiet", "--message", "First"]):
        run(["git", "-C", project, *words], folder)
    quiet = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
    variables = {f"OPENCODE_DISABLE_{name}": "1" for name in quiet}
    program = AGENTS / "node_modules" / ".bin" / "opencode"
    said = run([program, "run", "--dir", project, asked], folder, npm_config_offline="true", **variables)
    return said, file.read_text(encoding="utf-8")


def opencode_words(folder: Path) -> str:
    """Its answer; the file must be as it was."""
    said, file = opencode(folder, ASKED)
    assert file == GREETING, f"the file was changed: {file!r}"
    return said


def opencode_edit(folder: Path) -> str:
    """Its last words, after an edit of the file."""
    said, file = opencode(folder, EDIT)
    assert file == GREETING.replace("Hello", "Goodbye"), f"the file is {file!r}, and it said {said!r}"
    return said


def check(client: str, package: str, what: str, answer: Callable[[Path], str]) -> None:
    """Does a check in a folder of its own."""

    def answered() -> None:
        with tempfile.TemporaryDirectory() as folder:
            said = answer(Path(folder))
        assert said.strip(), "no text"

    tell(client, LOCK[f"node_modules/{package}"]["version"], what, answered)


check("codex", "@openai/codex", "codex exec, over responses", codex)
check("claude-code", "@anthropic-ai/claude-code", "claude -p, over messages", claude_code)
check("gemini-cli", "@google/gemini-cli", "gemini -p, over Google's API", gemini_cli)
check("opencode", "opencode-ai", "opencode run, over chat completions", opencode_words)
check("opencode", "opencode-ai", "opencode run: a file is read and edited", opencode_edit)
