"""Dataclasses read from the keys of a small YAML file, and the files of a folder by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from uad.base.common.yaml_fields import Fields, field_names, load_all, read_yaml
from uad.base.errors import MappingError


@dataclass(frozen=True)
class Shelf:
    label: str
    books: tuple[str, ...] = ("none",)
    wide: bool = False
    room: str | None = None


def shelf(path: Path, text: str) -> Fields:
    path.write_text(text, encoding="utf-8")
    return Fields(path, read_yaml(path), ("shelf", "label", "books", "wide", "room"))


def test_fields_are_read_by_their_names_and_keep_their_defaults(tmp_path: Path):
    assert shelf(tmp_path / "a.yaml", 'label: "x"').record(Shelf) == Shelf("x")
    full = shelf(tmp_path / "a.yaml", 'label: "x"\nbooks: ["p", "q"]\nwide: true\nroom: "r"').record(Shelf)
    assert full == Shelf("x", ("p", "q"), True, "r")


def test_a_field_that_is_given_is_not_read(tmp_path: Path):
    assert shelf(tmp_path / "a.yaml", "wide: true").record(Shelf, label="y") == Shelf("y", wide=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wide: true", "a.yaml:1:1: the key 'label' is missing"),
        ("label: 3", r"a.yaml:1:8: 'label': expected text"),
        ('label: "x"\nwide: "x"', "a.yaml:2:7: 'wide': expected true or false"),
        ('label: "x"\nbooks: "p"', "a.yaml:2:8: 'books': expected a list"),
    ],
)
def test_what_fits_no_field_is_refused_with_its_place(tmp_path: Path, text: str, message: str):
    with pytest.raises(MappingError, match=message):
        shelf(tmp_path / "a.yaml", text).record(Shelf)


def test_a_record_inside_a_file_has_its_own_keys_only(tmp_path: Path):
    right = shelf(tmp_path / "a.yaml", 'shelf: {label: "x"}')
    assert right.child("shelf", field_names(Shelf)).record(Shelf) == Shelf("x")
    with pytest.raises(MappingError, match=r"unknown key 'lable'; did you mean 'label'\?"):
        shelf(tmp_path / "a.yaml", 'shelf: {lable: "x"}').child("shelf", field_names(Shelf)).record(Shelf)
    assert field_names(Shelf) == ("label", "books", "wide", "room")


def test_an_earlier_directory_wins(tmp_path: Path):
    for name in ("one/kind/a", "two/kind/a", "two/kind/b"):
        path = tmp_path / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = load_all([tmp_path / "one", tmp_path / "two"], "kind", lambda path: path.parent.parent.name)
    assert found == {"a": "one", "b": "two"}


def test_a_file_is_read_again_only_when_it_changed(tmp_path: Path) -> None:
    (tmp_path / "kind").mkdir()
    file = tmp_path / "kind" / "one.yaml"
    file.write_text("before", encoding="utf-8")
    read: list[str] = []

    def load(path: Path) -> str:
        read.append(path.read_text(encoding="utf-8"))
        return read[-1]

    for _ in range(2):
        assert load_all([tmp_path], "kind", load) == {"one": "before"}
    file.write_text("behind it", encoding="utf-8")
    assert load_all([tmp_path], "kind", load) == {"one": "behind it"}
    assert read == ["before", "behind it"]
