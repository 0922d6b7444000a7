"""Strict JSON: what is rejected, with which message and path."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark.core.errors import InvalidRequest
from noonmark.server.strict_json import MAX_DEPTH, parse

REFUSED = [
    (b"", "", "Expecting value"),
    (b"{", "", "Expecting property name"),
    (b'{"a": 1,}', "", "not JSON"),
    (b"[1] 2", "", "Extra data"),
    (b"\xef\xbb\xbf[]", "", "BOM"),
    (b'"\xff"', "", "byte 1 is not part of a character"),
    (b'"\xed\xa0\x80"', "", "not UTF-8"),
    (b'"a\x00b"', "", "control character"),
    (b'"a\nb"', "", "control character"),
    (b'{"a": 1, "b": 2, "a": 3}', "a", "given twice"),
    (b'{"trigger": {"type": "once", "type": "cron"}}', "trigger.type", "given twice"),
    (b'{"a": [1, {"b": NaN}]}', "a[1].b", "NaN, which is not JSON"),
    (b"[Infinity]", "[0]", "Infinity"),
    (b"[-Infinity]", "[0]", "-Infinity"),
    (b'{"a": 18446744073709551616}', "a", "beyond 64 bits"),
    (b'{"a": -9223372036854775809}', "a", "beyond 64 bits"),
    (b'{"a": ' + b"9" * 5_000 + b"}", "a", "beyond 64 bits"),
    (b'{"a": ' + b"9" * 500_000 + b"}", "a", "beyond 64 bits"),
    (b'{"a": 1e400}', "a", "beyond the range of a float"),
    (b'{"a": -1e400}', "a", "beyond the range of a float"),
    (b'{"a": 0.' + b"1" * 5_000 + b"}", "a", "more than 100 characters"),
    (b'{"a": {"b": "x\\u0000y"}}', "a.b", "NUL"),
    (b'{"a": {"x\\u0000y": 1}}', "a", "NUL"),
    (b'{"a": "\\ud800"}', "a", "lone surrogate"),
    (b'{"a": "\\uDC00\\uD800"}', "a", "lone surrogate"),
    (b"[" * 100_000, "", "levels deep"),
    (b'{"a":' * 100_000, "", "levels deep"),
    (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "[0]", "levels deep"),
]


@pytest.mark.parametrize(("body", "field", "words"), REFUSED, ids=lambda value: repr(value)[:40])
def test_rejected_json_names_the_path_and_the_problem(body, field, words):
    with pytest.raises(InvalidRequest) as refused:
        parse(body)
    assert refused.value.field.startswith(field)
    assert bool(refused.value.field) == bool(field)
    assert words in refused.value.message
    assert len(str(refused.value)) < 300


TAKEN = [
    (b" null ", None),
    (b'{"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 2}]}', {"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 2}]}),
    (b"[18446744073709551615, -9223372036854775808, -0, 1e308, 0.1]", [2**64 - 1, -(2**63), 0, 1e308, 0.1]),
    (b'"\\ud83d\\ude00 \\\\u0000 \\u00e9"', "\U0001f600 \\u0000 é"),
    ('"é\U0001f600"'.encode(), "é\U0001f600"),
    (b'"a\\nb"', "a\nb"),
    (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH)),
    (b'"' + b"[" * 1_000 + b'"', "[" * 1_000),
]


@pytest.mark.parametrize(("body", "value"), TAKEN, ids=lambda value: repr(value)[:40])
def test_valid_json_is_parsed_unchanged(body, value):
    assert parse(body) == value


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])), inner)
    ),
    max_leaves=30,
)


@given(JSON, st.booleans())
def test_every_storable_value_is_parsed(value, is_ascii):
    assert parse(json.dumps(value, ensure_ascii=is_ascii).encode()) == value


@given(st.binary(max_size=60) | st.text('[]{}":,.-+eE0123456789ntNaIfu\\d8c ', max_size=60).map(str.encode))
def test_any_input_is_parsed_or_rejected(body):
    try:
        value = parse(body)
    except InvalidRequest:
        return
    assert value == json.loads(body, parse_constant=lambda _: math.nan)


@pytest.mark.parametrize(
    "body",
    [
        b'{"hunter2": 1, "hunter2": 2}',
        b'{"hunter2": {"a": 1, "a": 2}}',
        b'{"hunter2": NaN}',
        b'{"hunter2\\u0000": 1}',
        b'{"hunter2": "\\ud800"}',
        b'{"hunter2": ' + b"[" * 101 + b"]" * 101 + b"}",
    ],
)
def test_nothing_of_a_body_with_a_secret_is_quoted(body):
    assert "hunter2" in str(refusal(body))
    error = refusal(body, repeats=False)
    assert "hunter2" not in str(error)
    assert error.field == ""
    assert error.message.startswith("something in the body ")


def refusal(body, **options):
    with pytest.raises(InvalidRequest) as caught:
        parse(body, **options)
    return caught.value
