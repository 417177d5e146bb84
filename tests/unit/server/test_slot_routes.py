"""POST /slots/{id}?action=…: llama-server's fields, answers and errors."""

from pathlib import Path

import pytest
from kit.fake_runtime import FakeRuntime
from kit.server_kit import post

from uad.base.config import ServerConfig
from uad.base.errors import InvalidRequestError, UadError
from uad.base.events import SlotAction

SAVING = ServerConfig(port=0, slot_save_path=Path())


def test_a_slot_is_saved_restored_and_erased_with_llama_servers_answers():
    fake = FakeRuntime()
    assert post("/slots/1?action=save", {"filename": "a.bin"}, fake, SAVING) == (
        200,
        {"id_slot": 1, "filename": "a.bin", "n_saved": 84, "n_written": 4096, "timings": {"save_ms": 1.5}},
    )
    assert fake.slot_actions == [(SlotAction.SAVE, 1, "a.bin")]
    assert post("/slots/0?action=restore", {"filename": "b"}, FakeRuntime(), SAVING) == (
        200,
        {"id_slot": 0, "filename": "b", "n_restored": 84, "n_read": 4096, "timings": {"restore_ms": 1.5}},
    )
    assert post("/slots/1?action=erase", b"", FakeRuntime(), SAVING) == (200, {"id_slot": 1, "n_erased": 84})


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/slots/x?action=save", {"filename": "a"}, "Invalid slot ID"),
        ("/slots/-1?action=erase", {}, "Invalid slot ID"),
        ("/slots/2?action=erase", {}, "Invalid slot ID"),
        ("/slots/²?action=erase", {}, "Invalid slot ID"),
        (f"/slots/{'9' * 5000}?action=erase", {}, "Invalid slot ID"),
        ("/slots/0?action=copy", {"filename": "a"}, "Invalid action"),
        ("/slots/0", {"filename": "a"}, "Invalid action"),
        ("/slots/0?action=save", {}, "filename: field required"),
        ("/slots/0?action=restore", {"filename": 3}, "filename: input should be a valid string"),
        ("/slots/0?action=save", b"{", None),
    ],
)
def test_what_is_wrong_with_a_request_is_said(path: str, body: object, message: str | None):
    fake = FakeRuntime()
    status, answer = post(path, body, fake, SAVING)
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
    assert message in (None, answer["error"]["message"])


@pytest.mark.parametrize(
    ("error", "status"), [(InvalidRequestError("no file", "filename"), 400), (UadError("full"), 500)]
)
def test_what_fails_later_is_an_error_of_that_request(error: UadError, status: int):
    found, answer = post("/slots/0?action=save", {"filename": "a"}, FakeRuntime(fail=error), SAVING)
    assert (found, answer["error"]["message"]) == (status, str(error))


@pytest.mark.parametrize("action", ["save", "restore", "erase", "copy"])
def test_without_a_folder_the_answer_names_the_flag(action: str):
    fake = FakeRuntime()
    status, answer = post(f"/slots/0?action={action}", {"filename": "a"}, fake, ServerConfig(port=0))
    assert (status, answer["error"]["type"]) == (501, "not_supported_error")
    assert "Start it with `--slot-save-path`" in answer["error"]["message"]
    assert fake.slot_actions == []
