"""Build hook: compiles uad/policy and uad/drafters, what is computed in every round, with mypyc. The same Python, up to four times as fast.

An editable install gets the compiled modules beside their sources; a wheel holds them, and leaves the sources' folder as it is. Where the
machine cannot compile them (no C compiler, no headers of Python), or UAD_COMPILE=0 asks for it, they run as they are; the installation and
`uad --version` say which it is.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MADE = (".so", ".pyd", ".sha256")


class CompileRooms(BuildHookInterface):  # type: ignore[type-arg]
    """Adds compiled modules and the digests of the sources that they come from, which `uad.compiled` compares."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root, in_place = Path(self.root), version == "editable"
        if in_place:
            self.clean([version])
        if os.environ.get("UAD_COMPILE") == "0":
            self.app.display_warning("uad: not compiled: UAD_COMPILE=0")
            return
        self._folder = tempfile.TemporaryDirectory()  # until `finalize`: a wheel is written after this
        try:
            rooms = compile_into(root, Path(self._folder.name))
        except (Exception, SystemExit) as error:  # whatever setuptools, mypyc or the compiler find wrong: uad runs without
            self.app.display_warning(f"uad: not compiled, rounds cost some 50 us more: {error}")
            return
        for room in rooms:
            for made in Path(self._folder.name, "out", room).iterdir():
                if in_place:
                    shutil.copy(made, root / room / made.name)
                else:
                    build_data["force_include"][str(made)] = f"{room.as_posix()}/{made.name}"
        build_data["pure_python"], build_data["infer_tag"] = False, True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()

    def clean(self, versions: list[str]) -> None:
        for made in Path(self.root, "uad").glob("*/*"):
            if made.suffix in MADE:
                made.unlink()


def compile_into(root: Path, folder: Path) -> list[Path]:
    """Compiled modules and the digests of their sources, under folder/out/ROOM for each of the rooms that it returns. Raises whatever mypyc
    and setuptools do."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    shutil.copytree(root / "uad", folder / "uad", ignore=shutil.ignore_patterns("__pycache__"))
    sys.path.insert(0, str(folder))
    before = Path.cwd()
    os.chdir(folder)
    try:
        from uad.compiled import DIGEST, ROOMS, digest, sources

        rooms = [Path("uad", room) for room in ROOMS]
        extensions = []
        for room in rooms:
            files = map(str, sources(room))
            extensions += mypycify(
                ["--ignore-missing-imports", *files], group_name=f"uad.{room.name}._group", opt_level="3", debug_level="0"
            )
        command = Distribution({"name": "uad", "ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = "out", "temp"
        command.parallel = os.cpu_count()
        command.ensure_finalized()
        command.run()
        for room in rooms:
            Path("out", room, DIGEST).write_text(digest(room), encoding="utf-8")
        return rooms
    finally:
        os.chdir(before)
        sys.path.remove(str(folder))
