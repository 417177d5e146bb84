"""The libraries that the page carries: `python scripts/vendor_page.py` fetches them, `--check` compares checksums.

uad/http/edge/page/vendor/vendored.json names each package of npm with its version, the checksum of its archive as npm
states it, and each file that is taken from it with its own. Only `npm pack` is run: nothing of a package is installed
or executed. For another version write it there with `"integrity": ""` and no files' checksums, run this, read what
changed, and rename the folder in uad/http/edge/page/markdown.js or formulas.js.
"""

from __future__ import annotations

import argparse
import base64
import fnmatch
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

VENDOR = Path(__file__).parents[1] / "uad/http/edge/page/vendor"
LIST = VENDOR / "vendored.json"


def main() -> int:
    """Fetch, or check. Returns 1 where a checksum differs or a file is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare what is here with the checksums")
    check = parser.parse_args().check
    packages = json.loads(LIST.read_text("utf-8"))
    wrong = [fault for one in packages for fault in (checked(one) if check else fetched(one))]
    if not check and not wrong:
        LIST.write_text(json.dumps(packages, indent=2) + "\n", encoding="utf-8")
    print(*wrong or [f"{len(packages)} packages are as {LIST.name} states"], sep="\n")
    return bool(wrong)


def folder(package: dict[str, Any]) -> Path:
    """Where a package's files lie. The version is part of the path, so browsers may keep the files for good."""
    return VENDOR / f"{package['name']}-{package['version']}"


def checked(package: dict[str, Any]) -> list[str]:
    """Faults of a package's files here."""
    here = folder(package)
    return [
        f"{here.name}/{name}: {'differs from its checksum' if (here / name).is_file() else 'missing'}"
        for name, wanted in package["files"].items()
        if not (here / name).is_file() or sha256((here / name).read_bytes()) != wanted
    ]


def fetched(package: dict[str, Any]) -> list[str]:
    """Fetch a package and write its files; what is wrong, in which case nothing of it is written."""
    name = f"{package['name']}@{package['version']}"
    with tempfile.TemporaryDirectory() as temp:
        subprocess.run(
            ["npm", "pack", name, "--silent", "--pack-destination", temp], check=True, stdout=subprocess.DEVNULL
        )
        [archive] = Path(temp).iterdir()
        data = archive.read_bytes()
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        if package["integrity"] not in ("", integrity):
            return [f"{name}: the archive's checksum is {integrity}"]
        found = taken(archive, package["take"])
    sums = {path: sha256(content) for path, content in found.items()}
    if package.get("files") not in (None, sums):
        return [f"{name}: its files differ from their checksums"]
    package |= {"integrity": integrity, "files": sums}
    for path, content in found.items():
        target = folder(package) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return []


def taken(archive: Path, patterns: dict[str, str]) -> dict[str, bytes]:
    """The files of an archive that patterns name, by the path that each gets here: a pattern's folder, and its name."""
    found = {}
    with tarfile.open(archive) as opened:
        for member in opened.getmembers():
            path = member.name.partition("/")[2]  # all lies in package/
            for pattern, into in patterns.items():
                content = opened.extractfile(member) if fnmatch.fnmatchcase(path, pattern) else None
                if content is not None:
                    found[f"{into}{Path(path).name}"] = content.read()
    return dict(sorted(found.items()))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
