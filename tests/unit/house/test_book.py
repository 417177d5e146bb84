"""The pages of docs/ are one book: all are in its index, say for whom they are, and lead to each other."""

from __future__ import annotations

import re

import pytest
from test_docs import ROOT, anchors

from uad.base.config.flags import FLAGS
from uad.http.server.app import ABSENT_BY_ANY_METHOD, GET_ROUTES, POST_ROUTES

DOCS = ROOT / "docs"
INDEX = "README.md"
PAGES = sorted(path.name for path in DOCS.glob("*.md") if path.name not in {INDEX, "modules.md"})  # which is generated
OWN_COLUMN = 1
FLAG_NAMES = {name for flag in FLAGS for name in (*flag.names.split(), *flag.off.split())}
VARIABLES = {name for flag in FLAGS for name in flag.variables} | {"HF_HOME"}
ROUTES = {*GET_ROUTES, *POST_ROUTES, *ABSENT_BY_ANY_METHOD, "/"}


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def links(markdown: str) -> set[str]:
    """Files that a page links to, without anchors; those of other sites are left out."""
    return {link for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", markdown) if "://" not in link}


def cells(name: str) -> list[list[str]]:
    """The rows of all tables of a page, without their headings."""
    found = re.findall(r"^\|(?!-)(.*)\|$", re.sub(r"^\|.*\|\n\|-.*\|$", "", text_of(name), flags=re.M), re.MULTILINE)
    return [[cell.strip() for cell in row.replace(r"\|", "/").split("|")] for row in found]


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_in_the_index(page: str) -> None:
    assert page in links(text_of(INDEX))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_begins_with_for_whom_it_is_and_what_it_answers(page: str) -> None:
    title, blank, *rest = text_of(page).splitlines()
    opening = " ".join(rest[:2])
    assert title.startswith("# ")
    assert not blank
    assert re.search(r"\b(for|whoever|who|you|your|users|operators|developers)\b", opening, re.IGNORECASE), opening


def test_every_word_of_the_glossary_leads_to_a_page() -> None:
    rows = cells("glossary.md")
    assert len(rows) > 40
    assert [row[0] for row in rows if not links(row[-1])] == []


def test_pages_lead_back_to_the_glossary() -> None:
    for page in ("design.md", "drafters.md", "translation.md", "profile.md", "memory.md", "same-text.md", "request.md"):
        assert "glossary.md" in links(text_of(page)), page


def test_one_finds_the_book_from_the_projects_first_page() -> None:
    assert {"docs/README.md", "docs/install.md", "docs/scope.md", "docs/coming-from.md", "docs/glossary.md"} <= links(
        (ROOT / "README.md").read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("folder", ["docs", "packaging", "samples", "lab", ".github"])
def test_relative_links_resolve_with_their_anchors(folder: str) -> None:
    """Also in HTML, with titles, and where a folder is meant."""
    for path in sorted((ROOT / folder).rglob("*.md")):
        markdown = path.read_text(encoding="utf-8")
        for link in re.findall(r"""(?:\]\(|(?:src|href)=")([^)"\s]+)""", re.sub(r"`[^`]*`", "", markdown)):
            name, _, anchor = link.partition("#")
            if "://" in link or link.startswith("mailto:"):
                continue
            at = path.parent / name if name else path
            assert at.exists(), f"{path.relative_to(ROOT)}: {link}"
            assert not anchor or anchor in anchors(at.read_text(encoding="utf-8")), f"{path.relative_to(ROOT)}: {link}"


def test_what_other_servers_call_otherwise_is_called_here_as_the_map_says() -> None:
    rows = [row for row in cells("coming-from.md") if len(row) == OWN_COLUMN + 1]
    assert len(rows) > 40
    for row in rows:
        for code in re.findall(r"`([^`]+)`", row[OWN_COLUMN]):
            for word in re.findall(r"(?<![\w-])--?[a-z][\w-]*", code):
                assert word in FLAG_NAMES, word
            for word in re.findall(r"\b[A-Z]+_[A-Z_]+\b", code):
                assert word in VARIABLES, word
            if code.startswith("/"):
                assert code in ROUTES, code
        if row[OWN_COLUMN] == "the same":
            for route in re.findall(r"`(/[^`]*)`", row[0]):
                assert route in ROUTES, route
        if row[OWN_COLUMN].startswith("501"):
            for route in re.findall(r"`(/[^`]*)`", row[0]):
                assert route in ABSENT_BY_ANY_METHOD, route


def test_the_lines_of_the_installation_take_the_version_that_the_package_needs() -> None:
    text = text_of("install.md")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r'"llama-cpp-python>=(\S+),<(\S+)"', project) == re.findall(
        r"llama-cpp-python (\S+) or newer, below (\S+)\.\s", text
    )
    assert set(re.findall(r"--only-binary (\S+)|--no-build-package (\S+)", text.replace("`", " "))) == {
        ("llama-cpp-python", ""),
        ("", "llama-cpp-python"),
    }
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    [index] = set(re.findall(r"https://\S+/whl/(?=\$)", workflow))
    assert set(re.findall(r"https://\S+/whl/", text)) == {index}
