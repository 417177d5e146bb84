"""What is checked before a release, on archives made here; and what is asked of a server that was just installed."""

from __future__ import annotations

import io
import json
import re
import sys
import tarfile
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import first_answer  # noqa: E402
import pip_install  # noqa: E402
import release  # noqa: E402

VERSION = release.version()
WHEEL, SDIST = f"uad-{VERSION}-py3-none-any.whl", f"uad-{VERSION}.tar.gz"
METADATA = {f"uad-{VERSION}.dist-info/{name}" for name in release.METADATA}
HELD = release.files_of("uad") | {f"uad/_{name}" for name in release.files_of("mappings")} | METADATA
TEXT = (
    "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-11-26\n\n- new\n\n### Fixed\n\n- old\n\n"
    "## [1.1.0] - 2026-01-02\n\n- x\n"
)


def wheel(folder: Path, names: set[str]) -> Path:
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return folder / WHEEL


def test_a_wheel_with_all_files_is_whole(tmp_path: Path) -> None:
    assert any("/vendor/katex" in name for name in HELD)
    assert {"uad/py.typed", "uad/http/edge/page/index.html", "uad/_mappings/families/chatml.yaml"} <= HELD
    assert [*release.wrong_wheel(wheel(tmp_path, HELD))] == []


@pytest.mark.parametrize("name", sorted({Path(name).suffix: name for name in sorted(HELD)}.values()))
def test_a_file_that_a_wheel_lacks_is_named(tmp_path: Path, name: str) -> None:
    assert [*release.wrong_wheel(wheel(tmp_path, HELD - {name}))] == [f"{WHEEL} lacks {name}"]


def test_a_file_that_does_not_belong_into_a_wheel_is_named(tmp_path: Path) -> None:
    assert [*release.wrong_wheel(wheel(tmp_path, HELD | {"tests/conftest.py"}))] == [
        f"{WHEEL} holds tests/conftest.py, which does not belong there"
    ]


def test_a_folder_to_be_released_has_one_wheel_and_one_whole_sdist(tmp_path: Path) -> None:
    wheel(tmp_path, HELD)
    (tmp_path / "notes.md").write_text("")
    with tarfile.open(tmp_path / SDIST, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo(f"uad-{VERSION}/PKG-INFO"), io.BytesIO())
    wrong = [*release.wrong_dist(tmp_path, VERSION)]
    assert wrong[0] == f"notes.md does not belong into {tmp_path}"
    assert {f"{SDIST} lacks {name}" for name in ("README.md", "samples/target-chatml.gguf", "uad/__init__.py")} <= {
        *wrong
    }
    assert [*release.wrong_dist(tmp_path, "9.9.9")][-1] == f"{tmp_path}/uad-9.9.9.tar.gz is missing"


KERNELS = release.kernels_version()
KERNELS_WHEELS = [f"uad_kernels-{KERNELS}-py3-none-manylinux_2_28_{one}.whl" for one in release.KERNELS_MACHINES]
KERNELS_HELD = {"uad_kernels/__init__.py", "uad_kernels/py.typed", "uad_kernels/libuad_kernels.so"} | {
    f"uad_kernels-{KERNELS}.dist-info/{name}" for name in release.KERNELS_METADATA
}


def kernels(folder: Path, held: set[str] = KERNELS_HELD) -> Path:
    """Files of the kernels as they are released."""
    for one in KERNELS_WHEELS:
        with zipfile.ZipFile(folder / one, "w") as archive:
            for name in held:
                archive.writestr(name, "")
    with tarfile.open(folder / f"uad_kernels-{KERNELS}.tar.gz", "w:gz") as archive:
        for name in release.files_of("kernels"):
            archive.addfile(tarfile.TarInfo(f"uad_kernels-{KERNELS}/{name.removeprefix('kernels/')}"), io.BytesIO())
    return folder


def test_the_kernels_have_a_whole_wheel_for_each_processor_and_an_sdist(tmp_path: Path) -> None:
    assert [*release.wrong_kernels(kernels(tmp_path), KERNELS)] == []
    assert {"kernels/pyproject.toml", "kernels/src/library.h"} <= release.files_of("kernels")
    (tmp_path / KERNELS_WHEELS[1]).unlink()
    (tmp_path / f"uad_kernels-{KERNELS}.tar.gz").unlink()
    (tmp_path / f"uad_kernels-{KERNELS}-py3-none-linux_x86_64.whl").write_bytes(b"")
    assert [*release.wrong_kernels(tmp_path, KERNELS)] == [
        f"uad_kernels-{KERNELS}-py3-none-linux_x86_64.whl does not belong into {tmp_path}",
        f"{tmp_path}/uad_kernels-{KERNELS}.tar.gz is missing",
        f"{tmp_path} has 0 wheels of the kernels for aarch64",
    ]


def test_a_wheel_of_the_kernels_without_its_library_is_named(tmp_path: Path) -> None:
    library = "uad_kernels/libuad_kernels.so"
    wrong = [*release.wrong_kernels(kernels(tmp_path, KERNELS_HELD - {library}), KERNELS)]
    assert wrong == [f"{name} lacks {library}" for name in KERNELS_WHEELS]


def test_uad_takes_the_kernels_that_lie_beside_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (wanted,) = (one for one in project["dependencies"] if one.startswith("uad-kernels"))
    bounds = re.findall(r"[<>]=?([\d.]+)", wanted.partition(";")[0])
    low, high = (tuple(map(int, one.split("."))) for one in bounds)
    assert low <= tuple(map(int, KERNELS.split("."))) < high
    assert all(f"platform_machine == '{one}'" in wanted for one in release.KERNELS_MACHINES)
    assert {machine for _, machine in pip_install.KERNEL_MACHINES} == {*release.KERNELS_MACHINES}


@pytest.mark.parametrize(
    ("tag", "version", "wrong"),
    [
        ("v1.2.0", "1.2.0", []),
        ("v1.2.1", "1.2.0", ["the tag is v1.2.1, the package is 1.2.0"]),
        ("v1.3.0", "1.3.0", ["CHANGELOG.md has no section '## [1.3.0] - YYYY-MM-DD' with a text"]),
    ],
)
def test_a_tag_is_the_version_and_has_a_dated_section(tag: str, version: str, wrong: list[str]) -> None:
    assert [*release.wrong_tag(tag, version, TEXT)] == wrong


def test_the_notes_are_the_section_of_the_version() -> None:
    assert release.notes(TEXT, "1.2.0") == "- new\n\n### Fixed\n\n- old\n"
    assert release.notes(TEXT, "1.3.0") == ""


def test_the_version_of_this_source_can_be_released() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert [*release.wrong_tag(f"v{VERSION}", VERSION, changelog)] == []


def test_the_newest_dated_section_is_the_version_that_would_be_tagged() -> None:
    """All versions have such a section, the newest first; what comes after it is still unreleased."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", changelog, re.MULTILINE)
    (_, *released) = headings
    assert headings[0] == ("Unreleased", "")
    assert released[0][0] == VERSION
    assert all(date for _, date in released)
    assert [date for _, date in released] == sorted((date for _, date in released), reverse=True)
    assert release.main(["--tag", f"v{released[0][0]}"]) == 0


def test_whoever_writes_a_statement_or_publishes_may_do_that_and_no_more() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))["jobs"]
    rights = {name: job.get("permissions", {}) for name, job in jobs.items()}
    assert rights.pop("publish") == {"id-token": "write"}
    assert rights.pop("page") == {"contents": "write"}
    assert rights.pop("try") == {}
    for name, right in rights.items():
        used = [step["uses"] for step in jobs[name]["steps"] if "uses" in step]
        assert any(one.startswith("actions/attest-build-provenance@") for one in used)
        assert right == {"contents": "read", "id-token": "write", "attestations": "write"} | (
            {"packages": "write"} if name == "images" else {}
        )


def test_images_are_built_of_stages_and_arguments_that_the_dockerfile_has() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    images = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))["jobs"][
        "images"
    ]
    variants = {one["variant"] for one in images["strategy"]["matrix"]["include"]}
    assert variants == set(re.findall(r"^FROM \S+ AS base-(\S+)$", dockerfile, re.MULTILINE))
    builds = [step["with"]["build-args"] for step in images["steps"] if "build-args" in step.get("with", {})]
    assert builds
    for arguments in builds:
        assert set(re.findall(r"^(\w+)=", arguments, re.M)) <= set(re.findall(r"^ARG (\w+)", dockerfile, re.MULTILINE))


@contextmanager
def answering(drafted: str, plain: str, n_drafted: int = 4, health: int = 200) -> Iterator[str]:
    """A server that says one thing with drafts and another without."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(health)
            self.end_headers()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            is_drafted = body["speculative"]["enabled"]
            timings = {"draft_n": n_drafted, "draft_n_accepted": 3} if is_drafted and n_drafted else {}
            choice = {"message": {"content": drafted if is_drafted else plain}}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"choices": [choice], "timings": timings}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def test_the_same_answer_with_and_without_drafts_is_good(capsys: pytest.CaptureFixture[str]) -> None:
    with answering("3, 5", "3, 5") as url:
        assert first_answer.main([url]) == 0
    assert capsys.readouterr().out == "3, 5\n4 tokens drafted, 3 of them accepted\n"


@pytest.mark.parametrize(
    ("drafted", "plain", "n_drafted", "health", "said"),
    [
        ("3, 5", "3, 6", 4, 200, "without drafts it says: 3, 6"),
        ("3, 5", "3, 5", 0, 200, "nothing was written, or nothing drafted"),
        ("", "", 4, 200, "nothing was written, or nothing drafted"),
        ("3", "3", 4, 503, "is not ready"),
        ("3", "3", 4, 404, "is not ready"),
    ],
)
def test_any_other_answer_is_not(
    drafted: str, plain: str, n_drafted: int, health: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(drafted, plain, n_drafted, health) as url:
        assert first_answer.main([url, "0"]) == 1
    assert said in capsys.readouterr().err
