"""Build hook: compiles uad/policy, the arithmetic of every round, with mypyc. The same Python, about four times as fast.

An editable install gets the compiled modules beside their sources, a wheel holds them. Where the machine cannot compile them (no C
compiler, no headers of Python), or UAD_COMPILE=0 asks for it, they run as they are; the installation and `uad --version` say which it is.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOM = Path("uad/policy")
MADE = (".so", ".pyd", ".sha256")


class CompilePolicy(BuildHookInterface):  # type: ignore[type-arg]
    """Adds compiled modules and the digest of the sources that they come from, which `uad.policy` compares."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        self.clean([version])
        if os.environ.get("UAD_COMPILE") == "0":
            self.app.display_warning(f"uad: {ROOM} is not compiled: UAD_COMPILE=0")
            return
        with tempfile.TemporaryDirectory() as folder:
            try:
                compile_into(root, Path(folder))
            except (Exception, SystemExit) as error:  # whatever setuptools, mypyc or the compiler find wrong: uad runs without
                self.app.display_warning(f"uad: {ROOM} is not compiled, rounds cost some 50 us more: {error}")
                return
            for made in Path(folder, "out", ROOM).iterdir():
                shutil.copy(made, root / ROOM / made.name)
        build_data["pure_python"], build_data["infer_tag"] = False, True
        build_data["artifacts"] += [f"{ROOM}/*{suffix}" for suffix in MADE]

    def clean(self, versions: list[str]) -> None:
        for made in (Path(self.root) / ROOM).glob("*"):
            if made.suffix in MADE:
                made.unlink()


def compile_into(root: Path, folder: Path) -> None:
    """Compiled modules and the digest of their sources, under folder/out/uad/policy. Raises whatever mypyc and setuptools do."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    shutil.copytree(root / "uad", folder / "uad", ignore=shutil.ignore_patterns("__pycache__"))
    sys.path.insert(0, str(folder))
    before = Path.cwd()
    os.chdir(folder)
    try:
        from uad.policy import digest, sources

        extensions = mypycify(["--strict", *map(str, sources(ROOM))], group_name="uad.policy._group", opt_level="3", debug_level="0")
        command = Distribution({"name": "uad", "ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = "out", "temp"
        command.ensure_finalized()
        command.run()
        Path("out", ROOM, "sources.sha256").write_text(digest(ROOM), encoding="utf-8")
    finally:
        os.chdir(before)
        sys.path.remove(str(folder))
