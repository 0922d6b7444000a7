"""The limit of a JSON value: its bytes are counted exactly, however much they differ from its characters."""

import json

import pytest

from noonmark.core.json_values import json_problem, too_large

DENSE = {
    "control characters": "\x01" * 500,
    "characters of four bytes": "\U0001f319" * 500,
    "quotes": '"' * 500,
    "long floats": [-1.2345678901234567e-300] * 200,
    "long integers": [2**64 - 1] * 200,
    "one number": -(2**63),
    "null": [None] * 200,
    "empty objects": [{}] * 200,
    "short keys": {f"{number}": False for number in range(200)},
    "keys of control characters": {"\x02" * number: {} for number in range(1, 60)},
}


@pytest.mark.parametrize("value", DENSE.values(), ids=DENSE)
def test_a_value_may_have_as_many_bytes_as_its_text_and_no_fewer(value):
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    assert json_problem(value, high=size) is None
    assert json_problem(value, high=size - 1) == too_large(size - 1)
