"""The libraries of the page: the files that were fetched, nothing else, with their licences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import vendor_page

PACKAGES = json.loads(vendor_page.LIST.read_text("utf-8"))


def test_every_file_is_as_it_was_fetched_and_there_is_no_other() -> None:
    assert [fault for one in PACKAGES for fault in vendor_page.checked(one)] == []
    named = {vendor_page.folder(one) / name for one in PACKAGES for name in one["files"]}
    found = {path for path in vendor_page.VENDOR.rglob("*") if path.is_file()}
    assert found == named | {vendor_page.LIST}


def test_every_library_brings_its_licence() -> None:
    for one in PACKAGES:
        assert [name for name in one["files"] if "LICENSE" in name], one["name"]
        assert one["licence"] in ("MIT", "BSD-2-Clause")


def test_the_page_uses_the_versions_that_are_there() -> None:
    page = vendor_page.VENDOR.parent
    text = "".join(path.read_text("utf-8") for path in page.glob("*.js"))
    used = {one["name"] for one in PACKAGES if f"./vendor/{vendor_page.folder(one).name}/" in text}
    assert used == {"markdown-it", "katex"}


def test_a_changed_or_missing_file_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor_page, "VENDOR", tmp_path)
    package = {"name": "x", "version": "1", "files": {"a.js": vendor_page.sha256(b"a")}}
    (tmp_path / "x-1").mkdir()
    assert vendor_page.checked(package) == ["x-1/a.js: missing"]
    (tmp_path / "x-1" / "a.js").write_bytes(b"b")
    assert vendor_page.checked(package) == ["x-1/a.js: differs from its checksum"]
    (tmp_path / "x-1" / "a.js").write_bytes(b"a")
    assert vendor_page.checked(package) == []
