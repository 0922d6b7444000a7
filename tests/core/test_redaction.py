"""Concealing: a secret is found wherever it stands, however it is written, at a cost that is known beforehand."""

import json
from base64 import b64encode
from html import escape
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark.core.redaction import MAX_DECODED, Redactor, is_secret_name, redact

SIGNS = "tok\"en'/with\\&<odd>%2fsigns+1234"
VALUE = f"Bearer {SIGNS}"


def numbered(text):
    return "".join(f"&#{ord(one)};" for one in text)


def by_code(text):
    return "".join(f"\\u{ord(one):04x}" for one in text)


def percent(text):
    return "".join(f"%{ord(one):02x}" for one in text)


WAYS = {
    "as it is": str,
    "JSON": json.dumps,
    "JSON in JSON": lambda text: json.dumps(json.dumps(json.dumps(text))),
    "JSON by code": by_code,
    "another JSON": lambda text: json.dumps(text).replace("/", "\\/").replace("&", "\\u0026"),
    "repr": repr,
    "repr of bytes": lambda text: repr(text.encode()),
    "repr of repr": lambda text: repr(repr(text)),
    "percent": quote,
    "percent, all": lambda text: quote(text, safe=""),
    "percent in lower case": percent,
    "percent twice": lambda text: quote(quote(text, safe=""), safe=""),
    "HTML": escape,
    "HTML by number": numbered,
    "HTML by hex": lambda text: escape(text).replace("&#x27;", "&#39;"),
    "HTML in JSON": lambda text: json.dumps({"page": escape(text)}),
    "percent in HTML in JSON": lambda text: json.dumps(numbered(quote(text, safe=""))),
    "upper case": str.upper,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("value", [VALUE, SIGNS, "x'\"\\", "a%41b&amp;", "%2541%2541", "\\u0041\\u0042"])
def test_a_value_is_found_however_it_is_written(way, value):
    hidden = Redactor([value])
    assert hidden.text(f"it said {way(value)}, and more") == "***"
    assert hidden.json({"a": [way(value)]}) == {"a": ["***"]}
    assert hidden.text("it said nothing") == "it said nothing"


ways = st.sampled_from([str, json.dumps, repr, quote, percent, escape, numbered, by_code])


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=4, max_size=40),
    st.text(max_size=20),
    st.lists(ways, max_size=3),
)
def test_no_value_is_left_in_any_text(value, around, wrapped):
    said = value
    for way in wrapped:
        said = way(said)
    assert Redactor([value]).text(f"{around} {said} {around}") == "***"


def test_a_token_is_found_without_its_scheme():
    assert Redactor(["Bearer abcdefgh12"]).text("the token abcdefgh12 has expired") == "***"
    assert Redactor(["Bearer abcd"]).json(["Bearer of it", "abcd", "Bearer abcd"]) == ["Bearer of it", "***", "***"]


def test_a_password_is_found_without_its_name():
    value = f"Basic {b64encode(b'ada:pass word').decode()}"
    assert Redactor([value]).json(["ada", "no pass word for ada", value]) == ["ada", "***", "***"]
    for broken in ("Basic *", "Basic", "Basic a b", f"Basic {b64encode(bytes([255] * 8)).decode()}"):
        assert Redactor([broken]).text("ada") == "ada"


def test_short_values_are_found_and_shorter_ones_are_none():
    assert Redactor(["1234", "", " ", "abc"]).json({"n": [1234, 123], "abc": "is 1234."}) == {
        "n": ["***", 123],
        "abc": "***",
    }


def test_other_text_is_left_alone():
    told = {"Bearer": ["of a token", 12345678, 1.5, True, None, "%41 &amp; \\u0041"], "deep": {"x": "abcdefg"}}
    assert Redactor(["Bearer abcdefgh12"]).json(told) == told
    assert Redactor([]).json(told) is told
    assert Redactor([]).text("abcdefgh12") == "abcdefgh12"


def test_every_text_in_json_is_looked_at_and_numbers_too():
    told = {"abcdefgh12": ["abcdefgh12", {"n": 1234567890, "m": 123456789, "f": 1234567890.0}], "b": False}
    kept = Redactor(["abcdefgh12", "1234567890"]).json(told)
    assert kept == {"***": ["***", {"n": "***", "m": 123456789, "f": "***"}], "b": False}


def test_what_is_wrapped_without_an_end_is_not_kept():
    wrapped, deep = "%41", "%41"
    for _ in range(MAX_DECODED - 1):
        wrapped = quote(wrapped, safe="")
    for _ in range(MAX_DECODED + 1):
        deep = quote(deep, safe="")
    assert Redactor(["abcdefgh12"]).text(wrapped) == wrapped
    assert Redactor(["abcdefgh12"]).text(deep) == "***"
    assert Redactor([deep]).json([deep, "AAAA"]) == ["***", "AAAA"]


class Counted(set):
    """Counts how often it is asked."""

    asked = 0

    def __contains__(self, one):
        Counted.asked += 1
        return super().__contains__(one)


def looks(secrets, length):
    """How often a text of that length is compared, where there are so many secrets."""
    hidden = Redactor([f"Bearer {number:08}{'k' * 200}{number:08}" for number in range(secrets)])
    hidden._tails = {length: Counted(tails) for length, tails in hidden._tails.items()}
    Counted.asked = 0
    assert hidden.json(["%41kkkk " * (length // 8)]) != ["***"]
    return Counted.asked


def test_the_cost_is_that_of_the_text_however_many_secrets_there_are():
    assert looks(100, 4_000) == looks(400, 4_000) == looks(1, 4_000)
    assert looks(100, 16_000) < 5 * looks(100, 4_000)


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("nothing to hide", "nothing to hide"),
        ("word", "word"),
        ("postgresql://ada:hunter2@db/noonmark?sslpassword=x1", "postgresql://ada:***@db/noonmark?sslpassword=***"),
        ("host=db password=hunter2", "host=db password=***"),
        ("Authorization: Bearer abcdefgh12", "Authorization: Bearer ***"),
        (f"/x/nm_live_ab12cd_{'A1b2' * 10}C3d", "/x/nm_live_ab12cd_***"),
        ("the key nm_live_ab12cd", "the key nm_live_ab12cd"),
    ],
)
def test_credentials_are_masked_by_their_form(text, redacted):
    assert redact(text) == redacted


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("api_key", True),
        ("X-Token", True),
        ("tokens", True),
        ("secret_max_tokens", True),
        ("monkey", False),
        ("url", False),
        ("max_tokens", False),
        ("agent_max_output_tokens", False),
        ("cache_read_tokens", False),
    ],
)
def test_secrets_are_recognised_by_their_names(name, is_secret):
    assert is_secret_name(name) is is_secret
