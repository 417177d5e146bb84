"""What the APIs of the server say of themselves, which its errors and its access go by."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from uad.http.apis.listed import APIS, api_of
from uad.http.apis.openai import OPENAI
from uad.http.apis.problems import Problem

ROUTES = [(path, api) for api in APIS for paths in (api.answers, api.counts, api.facts, api.facts_of) for path in paths]
DOCS = Path(__file__).parents[3] / "docs"
WRONG = Problem(400, "it is wrong", "invalid_request_error")


def filled(path: str) -> str:
    """A path of a route."""
    return re.sub(r"\{.*\}", "toy", path)


def error_at(path: str) -> object:
    return api_of(path).error(WRONG, "req_1")


@pytest.mark.parametrize("prefix", ["", "/api", "/my/own"])
def test_errors_of_a_route_have_the_form_of_its_api(prefix: str) -> None:
    assert len(ROUTES) > 15
    for path, api in ROUTES:
        if prefix == "/api" and api_of(path) is OPENAI and "/v1/" not in path:
            continue  # "/api/completion" could be a route of Ollama's
        assert error_at(prefix + filled(path)) == api.error(WRONG, "req_1"), path


def test_a_path_has_one_owner_and_openai_has_all_others() -> None:
    paths = [filled(path) for path, _ in ROUTES]
    assert [path for path in paths if sum(api.owns(path) for api in APIS) > 1] == []
    assert api_of("/nowhere") is OPENAI


def test_each_route_stands_in_the_docs() -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))
    # of "/v1beta/models/{model:.+}:countTokens" the method, of "/v1beta/models/{model:.+}" what stands before the name
    shown = {path: path.rpartition("}")[2].lstrip(":") or path.partition("{")[0] for path, _ in ROUTES}
    assert [path for path, words in shown.items() if words not in pages] == []


def test_no_two_apis_have_one_route() -> None:
    for kinds in (("answers", "counts", "facts_of"), ("facts",)):
        paths = [path for api in APIS for kind in kinds for path in getattr(api, kind)]
        assert sorted(paths) == sorted(set(paths))
