"""Bodies into values: long ones are measured in pieces before, all must give what the standard library gives, and too
much of anything is refused.
"""

import json
import random

import pytest

from uad.base.checkpoint import DroppedError, wanted_while
from uad.base.errors import InvalidRequestError
from uad.http.edge import json_in
from uad.http.edge.json_in import MAX_CONTAINERS, MAX_DEPTH, MAX_VALUES, parse_object

WORDS = [
    "",
    "a",
    '"',
    "\\",
    "\\\\",
    '\\"',
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "\n",
    "é",
    "東京",
    "\U0001f642",
    "\U0001f642" * 2,
    "word " * 9,
]


def gives(data, expected, n_ids=0):
    """Beside pytest's own comparison, whose report on two unequal megabytes takes hours and gigabytes."""
    return parse_object(data, n_ids) == expected


@pytest.fixture
def small_steps(monkeypatch):
    monkeypatch.setattr(json_in, "SMALL_BYTES", 24)
    monkeypatch.setattr(json_in, "_STEP_BYTES", 7)


def value(draw, depth=0):
    kind = draw.randrange(9 if depth < 5 else 5)
    if kind > 6:
        return [value(draw, depth + 1) for _ in range(draw.randrange(6))]
    if kind > 4:
        return {text(draw): value(draw, depth + 1) for _ in range(draw.randrange(6))}
    return [draw.randrange(-9, 10**6), draw.random(), draw.choice([True, False, None]), text(draw), text(draw)][kind]


def text(draw):
    return "".join(draw.choices(WORDS, k=draw.randrange(5)))


def written(draw, body):
    return json.dumps(body, ensure_ascii=draw.random() < 0.5, indent=draw.choice([None, None, 1])).encode()


@pytest.mark.usefixtures("small_steps")
def test_what_was_measured_is_what_the_standard_library_reads():
    draw = random.Random(0)
    for _ in range(400):
        body = {str(i): value(draw) for i in range(draw.randrange(8))}
        assert gives(written(draw, body), {name: member for name, member in body.items() if member is not None})


@pytest.mark.long
@pytest.mark.usefixtures("small_steps")
def test_what_is_no_json_for_the_standard_library_is_none_here():
    """One byte left out, doubled or replaced: both agree on whether that is JSON, and on the value."""
    draw = random.Random(1)
    n_refused = 0
    for _ in range(800):
        data = bytearray(written(draw, {str(i): value(draw) for i in range(1, 5)}))
        at = draw.randrange(len(data))
        data[at : at + draw.randrange(2)] = draw.choice(
            [b"", b",", b"]", b"}", b"[", b"{", b'"', b"\\", b" ", b"1", b":"]
        )
        try:
            expected = json.loads(data.decode())
            is_valid = isinstance(expected, dict)
            json.dumps(expected, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            is_valid = False
        if is_valid:
            assert gives(bytes(data), {name: member for name, member in expected.items() if member is not None})
        else:
            n_refused += 1
            with pytest.raises(InvalidRequestError):
                parse_object(bytes(data))
    assert n_refused > 400


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize(
    "data",
    [
        b'{"a": [' + b" " * 100 + b"]}",
        b'{"a": "' + b"\\" * 200 + b'"}',
        b'{"a": "' + b"\\n" * 99 + b'"}',
        b'{"a": "' + b"\\ud83d\\ude42" * 40 + b'", "b": "' + "é".encode() * 99 + b'"}',
        b'{"a": "' + "\U0001f642".encode() * 50 + b'\\\\"}   ',
        b'{"a": 1, "a": [' + b"2," * 60 + b'3], "b": 4}',
    ],
)
def test_long_ones_of_a_kind(data):
    assert gives(data, json.loads(data))


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize(
    "data",
    [
        b'{"a": "' + b"x" * 100 + b"\\ud83d" + b"x" * 100 + b'"}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": ' + b" " * 100 + b"}",
        b'{"a": [' + b"1," * 100 + b"]}",
        b'{"a": [1][2]' + b" " * 100 + b"}",
        b'{"a": {' + b'"b":1,' * 100 + b"]}",
        b'{"a": 1' + b"}" * 100,
        b'{"a": "x" "' + b"y" * 100 + b'"}',
        b'{"a": [' + b"NaN," * 100 + b"1]}",
        b'{"a": "' + b"\xff" * 100 + b'"}',
        b"[" + b"1," * 100 + b"1]",
    ],
)
def test_long_ones_that_are_refused(data):
    with pytest.raises(InvalidRequestError):
        parse_object(data)


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (b"NaN}", "the body holds NaN, which is not JSON; send a finite number"),
        (b"[1, -Infinity]}", "the body holds -Infinity, which is not JSON; send a finite number"),
        (b'"\\ud800"}', "the body holds half of a surrogate pair (\\ud800 to \\udfff), which is not text"),
        (b'"\\ude42\\ud83d"}', "the body holds half of a surrogate pair (\\ud800 to \\udfff), which is not text"),
        (b'"\xff"}', "the body is not valid UTF-8 (byte 70014); JSON is sent in UTF-8"),
        (b"9" * 5000 + b"}", "the body holds a number with too many digits"),
        (b"1,}", "the body is not valid JSON: trailing comma at byte 70015"),
    ],
)
def test_what_is_wrong_in_a_long_body_is_said_as_in_a_short_one(end: bytes, text: str) -> None:
    """All but the words for broken JSON, which are the parser's own in long ones, with the byte."""
    with pytest.raises(InvalidRequestError) as raised:
        parse_object(b'{"a":"' + b"x" * 70_000 + b'",\n"b":' + end)
    assert str(raised.value) == text
    if "not valid" not in text:
        with pytest.raises(InvalidRequestError) as raised:
            parse_object(b'{"b":' + end)
        assert str(raised.value) == text


@pytest.mark.parametrize(
    ("unit", "n"),
    [
        ('""', MAX_VALUES),
        ("1", MAX_VALUES),
        ("1.5", MAX_VALUES),
        ('"a",1', MAX_VALUES // 2),
        ("[]", MAX_CONTAINERS),
        ('{"a":[]}', MAX_CONTAINERS // 2),
        ('{"type":"text","text":"a"}', MAX_CONTAINERS),
    ],
)
def test_more_values_than_any_request_has_are_refused_before_they_are_parsed(unit, n, monkeypatch):
    monkeypatch.setattr(json_in, "from_json", None)
    monkeypatch.setattr(json_in.json, "loads", None)
    with pytest.raises(InvalidRequestError, match="more than"):
        parse_object(('{"prompt":[' + ",".join([unit] * n) + "]}").encode())


def test_a_long_context_may_have_a_long_list():
    ids = list(range(MAX_VALUES + 10))
    assert gives(json.dumps({"prompt": ids}).encode(), {"prompt": ids}, n_ids=len(ids))


def test_commas_and_brackets_of_a_text_are_no_values():
    said = '{"a",[b]}\\' * MAX_VALUES
    assert gives(json.dumps({"prompt": said}).encode(), {"prompt": said})


@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}")])
def test_depth_has_a_limit(brackets):
    n = MAX_DEPTH - 1
    fits = b'{"a":' + brackets[0] * n + b"1" + brackets[1] * n + b', "b":"' + b"x" * json_in.SMALL_BYTES + b'"}'
    assert gives(fits, json.loads(fits))
    with pytest.raises(InvalidRequestError, match="nested"):
        parse_object(b'{"a":' + brackets[0] * 100_000 + brackets[1] * 100_000 + b"}")


def test_nothing_is_read_for_a_client_that_left():
    with wanted_while(lambda: False), pytest.raises(DroppedError):
        parse_object(b'{"a":"' + b"x" * json_in.SMALL_BYTES + b'"}')


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_other_codings_are_named(coding):
    with pytest.raises(InvalidRequestError, match="UTF-8"):
        parse_object('{"prompt": "naïve"}'.encode(coding))
    with pytest.raises(InvalidRequestError, match="UTF-8"):
        parse_object('{"prompt": "naïve"}'.encode("latin-1"))


@pytest.mark.parametrize("body", [b"", b" \n"])
def test_an_empty_body_is_called_empty(body):
    with pytest.raises(InvalidRequestError, match="the body is empty; send a JSON object"):
        parse_object(body)


def test_a_byte_order_mark_is_no_part_of_the_text():
    assert parse_object(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
    assert gives(b'\xef\xbb\xbf{"a": "' + b"x" * json_in.SMALL_BYTES + b'"}', {"a": "x" * json_in.SMALL_BYTES})
