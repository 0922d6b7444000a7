"""Concealing: a secret is found wherever it stands, and however it is written."""

import json
from html import escape
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark.core.concealing import Concealment

SIGNS = 'tok"en/with &<odd> signs+1234'
VALUE = f"Bearer {SIGNS}"


@pytest.mark.parametrize(
    "said",
    [VALUE, json.dumps(VALUE), quote(VALUE), quote(VALUE, safe=""), escape(VALUE), f"x{VALUE}y{VALUE}z"],
)
def test_a_value_is_masked_however_it_is_written(said):
    kept = Concealment([VALUE]).text(said)
    assert "***" in kept
    for part in SIGNS.split():
        assert part not in kept


def test_a_token_is_masked_without_its_scheme():
    assert Concealment(["Bearer abcdefgh12"]).text("the token abcdefgh12 has expired") == "the token *** has expired"
    assert Concealment(["Bearer abcd"]).text("Bearer of abcd, Bearer abcd") == "Bearer of ***, ***"


def test_short_values_are_masked_and_shorter_ones_are_none():
    assert Concealment(["1234", "", " ", "abc"]).json({"n": [1234, 123], "abc": "is 1234."}) == {
        "n": ["***", 123],
        "abc": "is ***.",
    }
    assert Concealment(["1234"]).text("is 12", is_cut=True) == "is ***"
    assert Concealment(["1234"]).text("is 1", is_cut=True) == "is 1"


def test_other_text_is_left_alone():
    told = {"Bearer": ["of a token", 12345678, 1.5, True, None], "deep": {"x": "abcdefg"}}
    assert Concealment(["Bearer abcdefgh12"]).json(told) == told
    assert Concealment([]).json(told) is told
    assert Concealment([]).text("abcdefgh12", is_cut=True) == "abcdefgh12"


def test_every_text_in_json_is_masked_and_numbers_too():
    told = {"abcdefgh12": ["abcdefgh12", {"n": 1234567890, "m": 123456789}], "b": False}
    kept = Concealment(["abcdefgh12", "1234567890"]).json(told)
    assert kept == {"***": ["***", {"n": "***", "m": 123456789}], "b": False}


@pytest.mark.parametrize(
    ("cut", "kept"),
    [
        ("said abcdefg", "said ***"),
        ("said abcd", "said ***"),
        ("said abc", "said abc"),
        ("said abcdefgh12", "said ***"),
    ],
)
def test_the_beginning_of_a_value_at_the_end_of_a_cut_text(cut, kept):
    concealment = Concealment(["abcdefgh12"])
    assert concealment.text(cut, is_cut=True) == kept
    assert concealment.json([cut], is_cut=True) == [kept]
    assert concealment.text("said abcdefg") == "said abcdefg"


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=4, max_size=40), st.text(max_size=20))
def test_no_value_is_left_in_any_text(value, around):
    kept = Concealment([value]).text(f"{around}{value}{around}{json.dumps(value)}{quote(value, safe='')}")
    assert value not in kept.replace("***", "")
