"""The image and the service: their flags, variables, ports, routes and files are those that there are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from uad.base.config import load_config
from uad.base.config.flags import FLAGS
from uad.http.server.app import GET_ROUTES
from uad.tools import health

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
IGNORED_BY_DOCKER = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
SERVICE = (ROOT / "packaging" / "uad.service").read_text(encoding="utf-8")
ENVIRONMENT = (ROOT / "packaging" / "uad.env").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
VARIABLES = {name for flag in FLAGS for name in flag.variables}
NAMES = {name for flag in FLAGS for name in (*flag.names.split(), *flag.off.split())}
COPIED = [
    source for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE) for source in line.split()
]


def settings(text: str) -> dict[str, str]:
    """Variables of a file of the environment, also those that are commented out."""
    return dict(re.findall(r"^(?:# )?([A-Z_]+)=(.*)$", text, re.MULTILINE))


@pytest.mark.parametrize("text", [DOCKERFILE, SERVICE, ENVIRONMENT, PAGE], ids=["image", "service", "env", "page"])
def test_variables_of_the_server_exist(text: str) -> None:
    assert set(re.findall(r"LLAMA_(?:ARG|API)_\w+", text)) <= VARIABLES


def test_the_file_of_the_environment_is_a_configuration() -> None:
    given = {name: value for name, value in settings(ENVIRONMENT).items() if value}
    local = {name: value for name, value in given.items() if "HF_REPO" not in name}
    config = load_config([], local)
    assert config.notes == ()
    assert (config.server.port, config.server.host) == (8080, "127.0.0.1")
    assert config.draft is not None
    assert load_config([], given).target.hub is not None


def test_port_and_route_of_the_image_agree() -> None:
    [port] = re.findall(r"LLAMA_ARG_PORT=(\d+)", DOCKERFILE)
    assert (
        re.findall(r"^EXPOSE (\d+)$", DOCKERFILE, re.MULTILINE)
        == [port]
        == [str(load_config(["-m", "x"], {}).server.port)]
    )
    assert 'CMD ["/opt/uad/.venv/bin/python", "-m", "uad.tools.health"]' in DOCKERFILE
    assert "/health" in GET_ROUTES
    assert "}/health" in Path(health.__file__).read_text(encoding="utf-8")
    assert f"127.0.0.1:{port}:{port}" in PAGE


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    assert "uad" in COPIED
    for source in COPIED:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in IGNORED_BY_DOCKER
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = [package["project"]["readme"], *package["project"]["license-files"]]
    needed += list(package["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"])
    assert set(needed) <= set(COPIED)


def test_every_stage_that_is_named_is_there() -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE))
    for prefix in ("tools-", "base-"):
        assert {f"{prefix}cpu", f"{prefix}cuda"} <= stages
    assert set(re.findall(r"--from=(\S+)", DOCKERFILE)) <= stages


def test_image_and_service_start_a_command_that_exists() -> None:
    assert 'ENTRYPOINT ["/opt/uad/.venv/bin/uad"]\nCMD ["serve"]' in DOCKERFILE
    assert "ExecStart=/opt/uad/.venv/bin/uad serve\n" in SERVICE
    assert "sh scripts/setup.sh .venv ." in DOCKERFILE
    assert "RestartPreventExitStatus=2\n" in SERVICE


def test_the_page_names_flags_that_exist() -> None:
    commands = re.findall(r"^    .*(?:uad serve|docker run).*(?:\n    +.*)*", PAGE, re.MULTILINE)
    assert commands
    own = ("--rm", "--gpus", "--name", "--restart", "--build-arg", "--env-file")
    for command in commands:
        assert [word for word in re.findall(r"(?<=\s)--[\w-]+", command) if word not in NAMES and word not in own] == []
