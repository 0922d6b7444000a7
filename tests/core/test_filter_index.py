"""Discriminators: what is not looked at could not have matched."""

import json
from enum import Enum, IntEnum
from functools import cache
from math import inf, nan, nextafter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonmark.core.event import Event
from noonmark.core.filters.index import (
    BOUNDS,
    LEVELS,
    MAX_AFFIX,
    MAX_FIELDS,
    NONE,
    discriminator,
    discriminators,
    is_fields,
    known_before,
    value_discriminator,
)
from noonmark.core.filters.match import compile_filters, matches
from tests.core.test_filters import conditions, names, payloads
from tests.soak import examples


class Word(str, Enum):  # noqa: UP042 - its str() is not its text
    A = "a"


class Number(IntEnum):
    ONE = 1


def event(payload, event_type="seen", source="tests"):
    return Event(event_type=event_type, emitted=0, payload=payload, source=source)


def is_shown(filters, payload):
    """Whether an event is shown to a trigger with these filters."""
    own = discriminator(filters)
    return own == NONE or own in discriminators(event(payload), [own.fields])


def fields(filters, make=discriminator):
    found = make(filters).fields
    return json.loads(found) if found else []


# Few values, which are alike in one language or another: many triggers match, and many nearly do.
FEW = [1, 1.0, True, "1", "true", "", 0, -0.0, False, None, 2**53, float(2**53), 2**53 + 1]
KEYS = ["a", "b", "a.b", "source"]
TRIGGERS = [
    *(
        {key: one}
        for key in KEYS
        for value in FEW
        for one in (value, {"equals": value}, [value], [value, "x"], ["x", value])
    ),
    *({"a": value, "b": other} for value in FEW for other in FEW),
    *({"a": {"not": value}, "a.b": other} for value in FEW for other in FEW),
    *(
        {"a": {low: first, high: second}, "b": 1}
        for low in ("gt", "gte")
        for high in ("lt", "lte")
        for first, second in [(0, 2), (0, 0.5), (1, 1), (-1, 2**53), (2**53, 2**53 + 1), ("", "true"), ("t", "tz")]
    ),
    *({"a": {name: value}} for name in ("gt", "gte", "lt", "lte") for value in (0, 0.5, 1, -1, 2**53, "", "t")),
    *({"a": {name: value}} for name in ("prefix", "suffix") for value in ("", "t", "true", "e", "1")),
]
few = st.sampled_from(FEW)
flat = st.dictionaries(st.sampled_from(KEYS), few | st.dictionaries(st.sampled_from(KEYS), few, max_size=2), max_size=4)


@cache
def prepared():
    return [(compile_filters(one), discriminator(one)) for one in TRIGGERS]


def unseen(triggers, emitted):
    """The discriminators of the triggers that match an event, and are not looked at."""
    shown = {NONE, *discriminators(emitted, {own.fields for _, own in triggers} - {NONE.fields})}
    told = {"event_type": emitted.event_type, "source": emitted.source}
    return [own for holds, own in triggers if own not in shown and holds(emitted.payload, **told)]


@settings(max_examples=examples(60), deadline=None)
@given(flat, st.sampled_from(["1", "true", ""]))
def test_all_that_match_are_looked_at(payload, source):
    assert unseen(prepared(), event(payload, source=source)) == []


@settings(max_examples=examples(60), deadline=None)
@given(st.dictionaries(names, conditions, max_size=3), payloads, st.sampled_from(["seen", "a", ""]))
def test_every_match_is_a_candidate(filters, payload, event_type):
    assert unseen([(compile_filters(filters), discriminator(filters))], event(payload, event_type)) == []


@settings(max_examples=examples(50), deadline=None)
@given(flat)
def test_what_an_event_has_is_what_a_trigger_for_it_wants(payload):
    wanted = {key: value for key, value in payload.items() if not isinstance(value, dict)}
    assert is_shown(wanted, payload)
    assert is_shown({key: {"equals": value} for key, value in wanted.items()}, payload)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, []),
        ({"b": "x", "a": 1}, ["a", "b"]),
        ({"a": None, "b": True, "c": 0.5, "d": ""}, ["a", "b", "c", "d"]),
        ({"a": ["x"]}, ["a"]),
        ({"a": [{"equals": "x"}]}, ["a"]),
        ({"a": {"equals": "x", "not": "y"}}, ["a"]),
        ({"a": {"contains": "x"}, "b": "y"}, ["b"]),
        ({"a": []}, []),
        ({"a": ["x", "y"]}, []),
        ({"a": {"equals": ["x"]}}, []),
        ({"a": {"equals": {}}}, []),
        ({"a": {"not": "x"}}, []),
        ({"a": {"contains": "x"}, "b": {"exists": False}, "c": {"not": {"gte": 1}}}, []),
    ],
)
def test_filters_that_want_one_scalar_make_it(filters, expected):
    assert fields(filters) == expected
    assert (discriminator(filters) == NONE) is (not expected)
    assert value_discriminator(filters) == discriminator(filters) == known_before(discriminator(filters))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"a": {"prefix": "xyz"}}, [["a", "prefix", 3]]),
        ({"a": {"prefix": "x" * 1_000}}, [["a", "prefix", MAX_AFFIX]]),
        ({"a": {"prefix": ""}}, []),
        ({"a": {"suffix": "xyz"}}, [["a", "suffix", 3]]),
        ({"a": {"suffix": "x" * 1_000}}, [["a", "suffix", MAX_AFFIX]]),
        ({"a": {"gte": "2026-01-01", "lt": "2026-01-02"}}, [["a", "prefix", 9]]),
        ({"a": {"gte": "ab", "lte": "abc"}}, [["a", "prefix", 2]]),
        ({"a": {"gte": "a", "lte": "b"}}, []),
        ({"a": {"gte": "a"}}, []),
        ({"a": {"gt": 1, "lt": "b"}}, []),
        ({"a": {"gte": 10, "lt": 20}}, [["a", "range", 3]]),
        ({"a": {"gt": 3, "gte": 10, "lt": 20, "lte": 90}}, [["a", "range", 3]]),
        ({"a": {"gte": 1_800_000_000, "lt": 1_800_000_060}}, [["a", "range", 5]]),
        ({"a": {"gte": 0.1, "lt": 0.2}}, [["a", "range", -3]]),
        ({"a": {"gte": 7, "lte": 7}}, [["a", "range", LEVELS[0]]]),
        ({"a": {"gte": 8, "lte": 7}}, [["a", "range", LEVELS[0]]]),
        ({"a": {"gte": -1, "lte": 1}}, [["a", "range", 1]]),
        ({"a": {"gte": 0, "lte": 1e30}}, [["a", "from", 0]]),
        ({"a": {"gte": -1e30, "lte": 3}}, [["a", "to", 4]]),
        ({"a": {"gte": -1e30, "lte": 1e30}}, []),
        ({"a": {"gt": 5}}, [["a", "from", 4]]),
        ({"a": {"gte": 4}}, [["a", "from", 4]]),
        ({"a": {"gt": -5}}, [["a", "from", -8]]),
        ({"a": {"gt": 1e30}}, [["a", "from", BOUNDS[-1]]]),
        ({"a": {"gt": -1e30}}, []),
        ({"a": {"lt": 5}}, [["a", "to", 8]]),
        ({"a": {"lte": 8}}, [["a", "to", 8]]),
        ({"a": {"lt": -1e30}}, [["a", "to", BOUNDS[0]]]),
        ({"a": {"lt": 1e30}}, []),
        ({"a": [{"prefix": "x"}]}, [["a", "prefix", 1]]),
        ({"a": [{"prefix": "x"}, {"prefix": "y"}]}, []),
        ({"a": {"prefix": "x"}, "b": "y", "c": 1}, ["b", "c", ["a", "prefix", 1]]),
        ({"a": {"gt": 1}, "b": {"gt": 1, "lt": 2}, "c": {"suffix": "z"}, "d": 1}, ["d", ["b", "range", 0]]),
        ({"x" * MAX_FIELDS: {"prefix": "x"}, "y": {"gt": 1}}, [["y", "from", 1]]),
        ({"x" * MAX_FIELDS: {"prefix": "x"}, "y": 1}, ["y"]),
    ],
)
def test_one_filter_for_more_than_one_value_is_part_of_it(filters, expected):
    assert fields(filters) == expected
    assert is_fields(discriminator(filters).fields) is bool(expected)
    assert fields(filters, value_discriminator) == [one for one in expected if isinstance(one, str)]
    has_part = any(isinstance(one, list) for one in expected)
    assert known_before(discriminator(filters)) == (NONE if has_part else discriminator(filters))


@pytest.mark.parametrize(
    ("condition", "shown", "hidden"),
    [
        ({"prefix": "ab"}, ["ab", "abc", "ab" * 99], ["a", "ba", "Ab", "", 1, None, ["ab"]]),
        ({"suffix": "ab"}, ["ab", "cab"], ["b", "ba", "abc", ""]),
        ({"prefix": "x" * 200}, ["x" * 200, "x" * 100], ["x" * 99]),
        ({"gte": "2026-01-01", "lt": "2026-01-02"}, ["2026-01-01T09", "2026-01-09"], ["2026-01-1", "2026-02-01", 2026]),
        ({"gte": 10, "lt": 20}, [10, 15.5, 19, 20, 23.9], [7, 24, 1e300, True, "15", None, inf, -inf, nan]),
        ({"gte": -5, "lt": -3}, [-5, -4.5, -3, -2.5], [-6.5, -2, 3, 4]),
        ({"gte": 0.1, "lt": 0.2}, [0.1, nextafter(0.2, 0)], [-0.1, 0.25, 1, 10**400]),
        ({"gt": 5}, [4, 5.5, 10**400, inf], [3.9, -6, False, "6", nan, -inf]),
        ({"lt": 5}, [8, -(10**400), -inf], [8.1, 9, nan, inf]),
    ],
)
def test_values_that_cannot_match_are_mostly_not_shown(condition, shown, hidden):
    assert [is_shown({"a": condition}, {"a": one}) for one in shown] == [True] * len(shown)
    assert [is_shown({"a": condition}, {"a": one}) for one in hidden] == [False] * len(hidden)
    assert not is_shown({"a": condition}, {})


numbers = (
    st.integers(-40, 40)
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([one for bound in BOUNDS for one in (bound, nextafter(bound, inf), nextafter(bound, -inf))])
)
texts = st.text("ab\U0001f600", max_size=4)


@settings(max_examples=examples(300), deadline=None)
@given(st.tuples(*[numbers | texts] * 3), st.sampled_from(["gt", "gte"]), st.sampled_from(["lt", "lte"]))
def test_a_value_that_a_range_or_affix_allows_is_looked_at(values, low, high):
    few = [{low: values[0], high: values[1]}, {low: values[0]}, {high: values[1]}]
    few += [{name: one} for name in ("prefix", "suffix") for one in values[:2] if isinstance(one, str)]
    triggers = [(compile_filters({"a": one}), discriminator({"a": one})) for one in few]
    assert [unseen(triggers, event({"a": one})) for one in values] == [[]] * 3


@pytest.mark.parametrize("width", [1, 7, 64, 1_000])
def test_an_event_is_shown_to_few_of_many_ranges(width):
    triggers = [discriminator({"n": {"gte": n * width, "lt": (n + 1) * width}}) for n in range(1_000)]
    for value in range(0, 1_000 * width, 97 * width + 1):
        own = set(discriminators(event({"n": value}), {one.fields for one in triggers}))
        assert len(own) <= 4
        assert 1 <= sum(one in own for one in triggers) <= 5


def test_an_event_is_shown_to_those_prefixes_that_it_has():
    triggers = [discriminator({"n": {"prefix": f"{n}/"}}) for n in range(1_000)]
    own = discriminators(event({"n": "17/orders"}), {one.fields for one in triggers})
    assert len(own) == 3
    assert [n for n, one in enumerate(triggers) if one in own] == [17]


@pytest.mark.parametrize(
    ("wanted", "found", "expected"),
    [
        (1, 1.0, True),
        (1.0, 1, True),
        (0, -0.0, True),
        (1, True, False),
        (1, "1", False),
        ("1", 1, False),
        (True, "true", False),
        (None, False, False),
        (0.1, 0.1, True),
        (0.1, 0.10000000000000002, False),
        (2**53, float(2**53), True),
        (2**53 + 1, float(2**53), False),
        (2**64 - 1, 2**64 - 1, True),
        (1e300, 10**300, False),
        pytest.param(1, 10**5_000, False, id="more digits than Python prints"),
        (1, float("nan"), False),
        (1, float("inf"), False),
        ("é", "é", True),
        ("é", "e\u0301", False),
        ("a", "A", False),
        pytest.param("a", "\ud800", False, id="a lone surrogate"),
        ("x" * 10_000, "x" * 10_000, True),
        ("a", ["a"], False),
        ("a", {"a": "a"}, False),
        ("a", Word.A, True),
        (1, Number.ONE, True),
        ("a", b"a", False),
    ],
)
def test_values_are_told_apart_as_filters_do(wanted, found, expected):
    assert is_shown({"a": wanted}, {"a": found}) is expected
    assert matches({"a": wanted}, {"a": found}) is expected


@pytest.mark.parametrize(
    ("key", "payload"),
    [
        ("a.b", {"a.b": "x", "a": {"b": "y"}}),
        ("a.b", {"a": {"b": "x"}}),
        ("source", {"source": "x"}),
        ("", {"": "x"}),
        ('é "\n', {'é "\n': "x"}),
    ],
)
def test_keys_lead_where_those_of_filters_do(key, payload):
    assert is_shown({key: "x"}, payload)
    assert not is_shown({key: "y"}, payload)
    assert fields({key: "x"}) == [key]


@pytest.mark.parametrize("payload", [{}, {"a": "x"}, {"a": [{"b": "x"}]}, "x", None, [{"a": {"b": "x"}}]])
def test_an_event_without_the_field_is_not_shown(payload):
    assert not is_shown({"a.b": "x"}, payload)


def test_the_envelope_is_looked_at_where_the_payload_has_nothing():
    assert is_shown({"source": "tests", "event_type": "seen"}, {})
    assert not is_shown({"source": "tests"}, {"source": 1})


def test_it_is_short_for_any_filters():
    many = {f"key {number:03} {'é' * 10}": "x" * 1_000 for number in range(100)}
    found = discriminator(many)
    assert 0 < len(found.fields) <= MAX_FIELDS
    assert found.fields.isascii()
    assert len(found.wanted) == 16
    assert is_shown(many, many)
    assert not is_shown(many, many | {"key 000 éééééééééé": "y"})
    assert discriminator({"x" * MAX_FIELDS: 1}) == NONE
    assert fields({"x" * MAX_FIELDS: 1, "y": 1}) == ["y"]


def test_what_is_stored_stays_as_it_is():
    # Triggers that were kept by earlier versions have these; another answer needs a migration.
    assert discriminator({"customer": "c-17"}) == ('["customer"]', "4e637dd5541d9074")
    assert discriminator({"user.id": 7, "ok": True, "rate": 0.5, "é": None}) == (
        '["ok","rate","user.id","\\u00e9"]',
        "a50e2f4ed3af358b",
    )

    assert discriminator({"customer": "c-17", "total": {"gte": 10, "lt": 20}}) == (
        '["customer",["total","range",3]]',
        "1f90d9fbe88bfb1c",
    )
    assert discriminator({"path": {"prefix": "/é"}}) == ('[["path","prefix",2]]', "f2d48af2a1456cef")
    assert discriminator({"total": {"gt": 0.3}}) == ('[["total","from",0.25]]', "614acd49c1ef1e73")


DAMAGED = [
    *("garbage", "[1", "[1]", "{}", "", b"[]", None, 7, "[]", "[" * 100_000, '["a",1]', '[1,"a"]'),
    '[["a","range",1],"b"]',
    *('[["a","range",999]]', '[["a","range",0.5]]', '[["a","prefix",0]]', '[["a","prefix",101]]', '[["a","from",3]]'),
    *('[["a","about",1]]', '[["a","prefix"]]', '[["a",1,1]]', '[[1,"prefix",1]]', '[["a","from",NaN]]'),
]


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_what_names_no_fields_is_reported(text):
    assert not is_fields(text)
    assert is_fields('["a.b"]')
    if isinstance(text, str):
        assert discriminators(event({"a": 1}), [text]) == []
