"""Strict JSON: what is read, and what is refused before it costs anything."""

import json

import pytest

from noonmark.core.errors import InvalidRequest
from noonmark.surfaces.strict_json import MAX_DEPTH, read_json, write_json

READ = [
    (b"null", None),
    (b' {"a": [1, -2.5, "\xc3\xa9", true, null]} ', {"a": [1, -2.5, "é", True, None]}),
    (b"18446744073709551615", 2**64 - 1),
    (b"-9223372036854775808", -(2**63)),
    (b"1e308", 1e308),
    (b'"\\ud83d\\ude00\\n"', "😀\n"),
]
REFUSED = {
    "nothing": (b"", "not JSON"),
    "half an object": (b'{"a":', "not JSON"),
    "two values": (b"1 2", "not JSON"),
    "a mark of byte order": (b"\xef\xbb\xbf{}", "not JSON"),
    "latin 1": (b'"\xe9"', "not UTF-8"),
    "utf 16": ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
    "an overlong code": (b'"\xc0\xaf"', "not UTF-8"),
    "a surrogate as bytes": (b'"\xed\xa0\x80"', "not UTF-8"),
    "a lone surrogate": (b'{"a": "\\ud800"}', "surrogate"),
    "a lone surrogate as a key": (b'{"\\udfff": 1}', "surrogate"),
    "NUL": (b'["\\u0000"]', "NUL"),
    "NUL in a key": (b'{"a\\u0000": 1}', "NUL"),
    "a raw control character": (b'"\n"', "not JSON"),
    "NaN": (b'{"a": NaN}', "NaN"),
    "infinity": (b"[-Infinity]", "Infinity"),
    "more than a double": (b"1e400", "beyond 64 bits"),
    "more than 64 bits": (b"18446744073709551616", "beyond 64 bits"),
    "less than 64 bits": (b"-9223372036854775809", "beyond 64 bits"),
    "5,000 digits": (b"1" * 5_000, "beyond 64 bits"),
    "5,000 places": (b"0." + b"1" * 5_000, "400 characters"),
    "a number in Arabic": ('{"a": ١}'.encode(), "not JSON"),
    "a comment": (b"{} // none", "not JSON"),
    "a comma too many": (b"[1,]", "not JSON"),
    "one key twice": (b'{"a": 1, "b": 2, "a": 1}', "twice"),
    "one key twice, deep": (b'[{"x": {"a": 1, "\\u0061": 2}}]', "twice"),
    "100,000 arrays": (b"[" * 100_000 + b"]" * 100_000, "levels deep"),
    "100,000 arrays, never closed": (b"[" * 100_000, "levels deep"),
    "100,000 objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "levels deep"),
    "one level too many": (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "levels deep"),
}


@pytest.mark.parametrize(("body", "value"), READ)
def test_json_is_read(body, value):
    assert read_json(body) == value


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_strict_json_is_refused(what):
    body, words = REFUSED[what]
    with pytest.raises(InvalidRequest) as refused:
        read_json(body)
    assert words in refused.value.message
    assert len(str(refused.value)) < 300


def test_as_many_levels_as_are_allowed_are_read():
    assert read_json(b"[" * (MAX_DEPTH - 1) + b"1" + b"]" * (MAX_DEPTH - 1)) is not None


def test_the_key_that_came_twice_is_named():
    with pytest.raises(InvalidRequest) as refused:
        read_json(b'{"name": "a", "name": "b"}')
    assert refused.value.field == "name"


def test_whatever_a_run_left_behind_can_be_written():
    assert write_json({"é": 1}) == b'{"\xc3\xa9":1}'
    assert json.loads(write_json(["\ud800"])) == ["\ud800"]
