"""Event filters: a table for every sentence of the rule, a naive model beside it, and hostile input."""

import json
import math
import sys
from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noonmark.core.describe.words import mismatch
from noonmark.core.errors import InvalidTrigger
from noonmark.core.event import parse_event
from noonmark.core.filters.match import MAX_PROBLEMS, compile_filters, filter_problems, matches
from noonmark.core.triggers import EventTrigger
from tests.soak import examples

PAYLOAD = {
    "path": "/datasets/a.csv",
    "size": 1024,
    "ratio": 0.5,
    "one": 1,
    "whole": 2.0,
    "ok": True,
    "off": False,
    "nothing": None,
    "empty": "",
    "tags": ["red", 7, None, True, ["deep"], {"k": 1}],
    "none_of": [],
    "user": {"name": "Ann", "address": {"city": "Oslo", "zip": None}, "tags": ["a", "b"]},
    "box": {"a": [1, 2.0, {"b": None}], "t": True},
    "dotted.name": "literal",
    "dotted": {"name": "nested", "only": "path"},
    "": "no name",
    "event_type": "from the payload",
}

SCALARS = [
    ({"path": "/datasets/a.csv"}, True),
    ({"path": "/datasets/A.csv"}, False),
    ({"one": 1}, True),
    ({"one": 1.0}, True),
    ({"whole": 2}, True),
    ({"one": True}, False),
    ({"one": "1"}, False),
    ({"ok": True}, True),
    ({"ok": 1}, False),
    ({"ok": "true"}, False),
    ({"off": False}, True),
    ({"off": 0}, False),
    ({"off": None}, False),
    ({"off": ""}, False),
    ({"empty": ""}, True),
    ({"empty": None}, False),
    ({"": "no name"}, True),
    ({"tags": "red"}, False),
    ({"missing": ""}, False),
    ({"missing": 0}, False),
    ({"missing": False}, False),
]
NULLS = [
    ({"nothing": None}, True),
    ({"user.address.zip": None}, True),
    ({"one": None}, False),
    ({"missing": None}, False),
    ({"user.address.missing": None}, False),
]
LISTS = [
    ({"path": ["/x", "/datasets/a.csv"]}, True),
    ({"path": ["/x", "/y"]}, False),
    ({"path": []}, False),
    ({"missing": []}, False),
    ({"missing": [None]}, False),
    ({"one": [True, "1", None]}, False),
    ({"one": [True, "1", 1.0]}, True),
    ({"ok": [0, 1]}, False),
    ({"nothing": ["x", None]}, True),
    ({"path": [{"prefix": "/x"}, {"suffix": ".csv"}]}, True),
    ({"path": ["/x", {"prefix": "/y"}]}, False),
    ({"size": [1, {"gt": 1000, "lt": 2000}]}, True),
    ({"missing": ["x", {"exists": False}]}, True),
    ({"tags": ["red"]}, False),
]
TEXT_OPERATORS = [
    ({"path": {"prefix": "/datasets/"}}, True),
    ({"path": {"prefix": ""}}, True),
    ({"path": {"prefix": "datasets"}}, False),
    ({"size": {"prefix": "10"}}, False),
    ({"tags": {"prefix": "red"}}, False),
    ({"nothing": {"prefix": ""}}, False),
    ({"missing": {"prefix": ""}}, False),
    ({"path": {"suffix": ".csv"}}, True),
    ({"path": {"suffix": ".CSV"}}, False),
    ({"path": {"suffix": ""}}, True),
    ({"size": {"suffix": "4"}}, False),
    ({"missing": {"suffix": ""}}, False),
]
CONTAINS = [
    ({"path": {"contains": "sets"}}, True),
    ({"path": {"contains": ""}}, True),
    ({"path": {"contains": "nope"}}, False),
    ({"tags": {"contains": "red"}}, True),
    ({"tags": {"contains": "re"}}, False),
    ({"tags": {"contains": 7}}, True),
    ({"tags": {"contains": 7.0}}, True),
    ({"tags": {"contains": "7"}}, False),
    ({"tags": {"contains": None}}, True),
    ({"tags": {"contains": True}}, True),
    ({"tags": {"contains": 1}}, False),
    ({"tags": {"contains": "deep"}}, False),
    ({"none_of": {"contains": None}}, False),
    ({"user.tags": {"contains": "b"}}, True),
    ({"size": {"contains": 1}}, False),
    ({"path": {"contains": 1}}, False),
    ({"user": {"contains": "name"}}, False),
    ({"missing": {"contains": None}}, False),
]
EQUALS = [
    ({"path": {"equals": "/datasets/a.csv"}}, True),
    ({"one": {"equals": 1.0}}, True),
    ({"one": {"equals": True}}, False),
    ({"nothing": {"equals": None}}, True),
    ({"missing": {"equals": None}}, False),
    ({"box": {"equals": {"t": True, "a": [1.0, 2, {"b": None}]}}}, True),
    ({"box": {"equals": {"t": 1, "a": [1, 2, {"b": None}]}}}, False),
    ({"box": {"equals": {"t": True}}}, False),
    ({"box": {"equals": [1]}}, False),
    ({"box.a": {"equals": [1, 2, {"b": None}]}}, True),
    ({"box.a": {"equals": [2, 1, {"b": None}]}}, False),
    ({"box.a": {"equals": [1, 2]}}, False),
    ({"none_of": {"equals": []}}, True),
    ({"none_of": {"equals": {}}}, False),
    ({"none_of": {"equals": None}}, False),
]
NOT = [
    ({"path": {"not": "/x"}}, True),
    ({"path": {"not": "/datasets/a.csv"}}, False),
    ({"one": {"not": "1"}}, True),
    ({"one": {"not": True}}, True),
    ({"one": {"not": 1.0}}, False),
    ({"one": {"not": [1, 2]}}, False),
    ({"one": {"not": [2, 3]}}, True),
    ({"one": {"not": []}}, True),
    ({"one": {"not": None}}, True),
    ({"nothing": {"not": None}}, False),
    ({"path": {"not": {"prefix": "/other"}}}, True),
    ({"path": {"not": {"prefix": "/datasets"}}}, False),
    ({"path": {"not": {"prefix": "/datasets", "suffix": ".txt"}}}, True),
    ({"path": {"not": {"not": {"suffix": ".csv"}}}}, True),
    ({"path": {"not": {"gt": 5}}}, True),
    ({"path": {"not": {"exists": False}}}, True),
    ({"path": {"not": {"exists": True}}}, False),
    ({"missing": {"not": "x"}}, False),
    ({"missing": {"not": []}}, False),
    ({"missing": {"not": None}}, False),
    ({"missing": {"not": {"exists": True}}}, False),
    ({"missing": {"not": {"not": {"exists": False}}}}, False),
]
EXISTS = [
    ({"path": {"exists": True}}, True),
    ({"path": {"exists": False}}, False),
    ({"nothing": {"exists": True}}, True),
    ({"nothing": {"exists": False}}, False),
    ({"missing": {"exists": False}}, True),
    ({"missing": {"exists": True}}, False),
    ({"missing": {"exists": False, "not": 1}}, False),
    ({"user.missing": {"exists": False}}, True),
    ({"user.name.first": {"exists": False}}, True),
    ({"tags.0": {"exists": False}}, True),
    ({"source": {"exists": True}}, True),
]
ORDER = [
    ({"size": {"gt": 1023}}, True),
    ({"size": {"gt": 1024}}, False),
    ({"size": {"gte": 1024}}, True),
    ({"size": {"gte": 1024.5}}, False),
    ({"size": {"lt": 1025}}, True),
    ({"size": {"lt": 1024}}, False),
    ({"size": {"lte": 1024}}, True),
    ({"size": {"lte": 1023.9}}, False),
    ({"ratio": {"gt": 0}}, True),
    ({"path": {"gt": "/dat"}}, True),
    ({"path": {"lt": "/e"}}, True),
    ({"path": {"gte": "/datasets/a.csv"}}, True),
    ({"path": {"lte": "/datasets/a.cs"}}, False),
    ({"size": {"gt": "1"}}, False),
    ({"size": {"lt": "9999"}}, False),
    ({"path": {"gt": 0}}, False),
    ({"path": {"lt": 0}}, False),
    ({"ok": {"gt": 0}}, False),
    ({"ok": {"gte": 1}}, False),
    ({"off": {"lt": 1}}, False),
    ({"nothing": {"lte": 0}}, False),
    ({"tags": {"gt": ""}}, False),
    ({"user": {"gt": ""}}, False),
    ({"missing": {"gte": 0}}, False),
]
KEYS = [
    ({"user.name": "Ann"}, True),
    ({"user.address.city": "Oslo"}, True),
    ({"user.address": "Oslo"}, False),
    ({"user.name.x": "Ann"}, False),
    ({"dotted.name": "literal"}, True),
    ({"dotted.name": "nested"}, False),
    ({"dotted.only": "path"}, True),
    ({".user": {"exists": False}}, True),
    ({"user.": {"exists": False}}, True),
    ({"event_type": "from the payload"}, True),
    ({"event_type": "uploaded"}, False),
    ({"source": "disk"}, True),
    ({"source": {"prefix": "di"}}, True),
    ({"source": ["net", "disk"]}, True),
    ({"source": "net"}, False),
    ({"source.x": {"exists": False}}, True),
]
TOGETHER = [
    ({}, True),
    ({"one": 1, "ok": True, "path": {"suffix": ".csv"}}, True),
    ({"one": 1, "ok": False}, False),
    ({"one": 2, "ok": True}, False),
    ({"path": {"prefix": "/datasets/", "suffix": ".csv", "contains": "a"}}, True),
    ({"path": {"prefix": "/datasets/", "suffix": ".txt"}}, False),
    ({"size": {"gte": 1000, "lt": 2000, "not": [1500, 1600]}}, True),
    ({"size": {"gte": 1000, "lt": 2000, "not": 1024}}, False),
]


@pytest.mark.parametrize(
    ("filters", "expected"),
    SCALARS + NULLS + LISTS + TEXT_OPERATORS + CONTAINS + EQUALS + NOT + EXISTS + ORDER + KEYS + TOGETHER,
)
def test_filters(filters, expected):
    assert filter_problems(filters) == []
    assert matches(filters, PAYLOAD, event_type="uploaded", source="disk") is expected
    assert compile_filters(filters)(PAYLOAD, event_type="uploaded", source="disk") is expected


@pytest.mark.parametrize("payload", [None, 5, "text", True, [], ["source"], {}])
def test_a_payload_without_fields_leaves_the_envelope(payload):
    assert matches({"event_type": "up", "source": "disk"}, payload, event_type="up", source="disk")
    assert matches({"0": {"exists": False}, "source": {"not": "net"}}, payload, source="disk")
    assert not matches({"path": {"exists": True}}, payload, event_type="path")


def test_the_envelope_is_empty_text_unless_given():
    assert matches({"event_type": "", "source": ""}, {})


def test_a_payload_path_wins_over_the_envelope():
    assert matches({"source": None}, {"source": None}, source="disk")
    assert not matches({"source": "disk"}, {"source": None}, source="disk")


def test_arrays_may_be_tuples_and_objects_any_dict():
    payload = OrderedDict(tags=("a", "b"), box=OrderedDict(k=(1,)))
    assert matches({"tags": {"contains": "b"}, "box": {"equals": {"k": [1]}}, "box.k": {"equals": (1,)}}, payload)
    assert matches({"kind": ("a", "b")}, {"kind": "b"})


def test_a_compiled_filter_is_a_value_that_serves_many_events():
    wanted = compile_filters({"n": {"gte": 10}})
    assert [n for n in range(20) if wanted({"n": n})] == list(range(10, 20))


ALLOWED = "prefix, suffix, contains, equals, not, exists, gt, gte, lt, lte"
REFUSED = [
    ({"a": {"startswith": "x"}}, "a.startswith", 'unknown operator "startswith"'),
    ({"a": {"startswith": "x"}}, "a.startswith", f"allowed are {ALLOWED}"),
    ({"a": {"Prefix": "x"}}, "a.Prefix", "unknown operator"),
    ({"a": {"b": {"c": 1}}}, "a.b", 'use "equals"'),
    ({"a": {"$where": "1"}}, "a.$where", "unknown operator"),
    ({"a": {}}, "a", f"names no operator; allowed are {ALLOWED}"),
    ({"a": {"not": {}}}, "a.not", "names no operator"),
    ({"a": ["x", {}]}, "a[1]", "names no operator"),
    ({"a": {"prefix": 1}}, "a.prefix", '"prefix" takes text, not 1'),
    ({"a": {"prefix": ["x"]}}, "a.prefix", '"prefix" takes text, not a list'),
    ({"a": {"prefix": None}}, "a.prefix", '"prefix" takes text, not null'),
    ({"a": {"suffix": True}}, "a.suffix", '"suffix" takes text, not true'),
    ({"a": {"contains": ["x"]}}, "a.contains", '"contains" takes text, a number, true, false or null'),
    ({"a": {"contains": {}}}, "a.contains", '"contains" takes'),
    ({"a": {"exists": 1}}, "a.exists", '"exists" takes true or false, not 1'),
    ({"a": {"exists": "yes"}}, "a.exists", '"exists" takes true or false'),
    ({"a": {"exists": None}}, "a.exists", '"exists" takes true or false'),
    ({"a": {"gt": True}}, "a.gt", '"gt" takes a number or text, not true'),
    ({"a": {"gte": None}}, "a.gte", '"gte" takes a number or text'),
    ({"a": {"lt": [1]}}, "a.lt", '"lt" takes a number or text'),
    ({"a": {"lte": {}}}, "a.lte", '"lte" takes a number or text'),
    ({"a": [["x"]]}, "a[0]", 'use {"equals": [..]}'),
    ({"a": {"not": ["x", []]}}, "a.not[1]", "is a list inside a list"),
    ({"a": {"not": {"bad": 1}}}, "a.not.bad", "unknown operator"),
    ({"a": {"not": {"not": {"gt": None}}}}, "a.not.not.gt", '"gt" takes'),
    ({"a": ["x", {"prefix": 5}]}, "a[1].prefix", '"prefix" takes text'),
    ({"a": math.nan}, "a", "NaN"),
    ({"fine": 1, "a": {"gt": math.inf}}, "a", "infinity"),
    ({"a": 2**64}, "a", "64 bits"),
    ({"a": "\ud800"}, "a", "lone surrogate"),
    ({"a\x00": 1}, '"a\\u0000"', "NUL"),
    ({"a": object()}, "a", "is not JSON"),
    ({"a": {1: 2}}, "a", "is not JSON"),
    ({5: 1}, "5", "is not JSON"),
    ({"a": {"equals": b"x"}}, "a", "is not JSON"),
    ({"a": "x" * 300_000}, "", "256 KiB"),
    ({str(n): "x" * 100_000 for n in range(3)}, "", "256 KiB"),
    ({str(n): n for n in range(101)}, "", "101 keys; at most 100"),
    ([], "", "must be an object, not a list"),
    (None, "", "must be an object, not null"),
    ("x", "", 'must be an object, not "x"'),
]


@pytest.mark.parametrize(("filters", "path", "words"), REFUSED)
def test_refused_with_the_place_and_what_is_allowed(filters, path, words):
    problems = filter_problems(filters)
    assert path in [where for where, _ in problems]
    assert any(words in message for where, message in problems if where == path)
    with pytest.raises(InvalidTrigger) as error:
        matches(filters, {"a": "x"})
    assert error.value.code == "invalid_trigger"
    assert error.value.field == ".".join(["filters", path] if path else ["filters"])
    assert error.value.problems[0].code == "invalid_trigger"
    with pytest.raises(InvalidTrigger):
        compile_filters(filters)


def test_every_problem_is_reported():
    filters = {"a": {"gt": None, "bad": 1}, "b": [[], {}], "fine": 1}
    assert [path for path, _ in filter_problems(filters)] == ["a.gt", "a.bad", "b[0]", "b[1]"]
    with pytest.raises(InvalidTrigger) as error:
        compile_filters(filters)
    assert [problem.field for problem in error.value.problems] == [
        "filters.a.gt",
        "filters.a.bad",
        "filters.b[0]",
        "filters.b[1]",
    ]


def test_the_list_of_problems_is_bounded():
    assert len(filter_problems({"a": [[]] * 10_000})) == MAX_PROBLEMS


def test_a_hundred_keys_are_fine():
    assert filter_problems({str(n): {"exists": False} for n in range(100)}) == []


def test_a_long_key_is_cut_in_the_path():
    ((path, _),) = filter_problems({"k" * 5_000: {}})
    assert path == "k" * 60


def nested(levels, inner, wrap):
    for _ in range(levels):
        inner = wrap(inner)
    return inner


def test_nesting_is_bounded_at_create():
    assert filter_problems({"a": nested(60, 1, lambda inner: {"not": inner})}) == []
    for levels in (64, 100_000):
        for wrap in (lambda inner: {"not": inner}, lambda inner: [inner], lambda inner: {"equals": inner}):
            problems = filter_problems({"a": nested(levels, 1, wrap)})
            assert problems == [("a", "is nested more than 64 levels deep")]


def test_deep_payloads_do_not_recurse():
    deep = nested(100_000, "x", lambda inner: {"a": inner})
    lists = nested(100_000, "x", lambda inner: [inner])
    wanted = nested(50, "x", lambda inner: {"a": inner})
    assert not matches({"a": {"equals": wanted}}, deep)
    assert not matches({"a": {"equals": [[[]]]}}, {"a": lists})
    assert not matches({"a": {"contains": "x"}, "b": 1}, {"a": lists})
    assert matches({".".join("a" * 100_000): "x"}, deep)
    assert matches({"b": {"equals": wanted}}, {"b": nested(50, "x", lambda inner: {"a": inner})})
    # Unravelled by hand: letting the interpreter free it would recurse instead.
    while isinstance(deep, dict):
        deep = deep.popitem()[1]
    while isinstance(lists, list):
        lists = lists.pop()


EVERY_CONDITION = [
    *("x", 1, 1.5, True, None, [], ["x", 1, None, {"gt": 0}]),
    *({"prefix": "x"}, {"suffix": "x"}, {"contains": "x"}, {"contains": 1}, {"equals": {"a": [1]}}),
    *({"not": 1}, {"not": {"lt": 5}}, {"exists": True}, {"gt": 1}, {"gte": "a"}, {"lt": 1.5}, {"lte": "z"}),
]
HOSTILE = [
    *(math.nan, math.inf, -math.inf, 10**400, -(10**400), 10**5000, "\ud800", "\x00", "x" * 1_000_000),
    *(b"x", object(), Decimal("NaN"), Decimal(1), datetime(2026, 1, 1, tzinfo=UTC), {1, 2}, complex(1, 2), range(3)),
    *({1: 2}, {None: {}}, {(1, 2): 3}, [object()], [[]], {"a": object()}, sys, len, Ellipsis, NotImplemented),
]


@pytest.mark.parametrize("condition", EVERY_CONDITION)
def test_no_payload_makes_matching_raise(condition):
    wanted = compile_filters({"a": condition, "a.b.c": condition, "source": condition})
    for value in HOSTILE:
        assert wanted(value) in (True, False)
        assert wanted({"a": value, "source": value}, source="x") in (True, False)
        assert wanted({"a": {"b": value}, "b": [value]}) in (True, False)


def test_numbers_compare_exactly_however_large():
    assert matches({"n": {"gt": 2**53}}, {"n": 2**53 + 1})
    assert not matches({"n": float(2**53)}, {"n": 2**53 + 1})
    assert matches({"n": {"gt": 1e308}}, {"n": 10**400})
    assert not matches({"n": {"gt": 0}}, {"n": math.nan})
    assert matches({"n": {"not": {"gt": 0}}}, {"n": math.nan})


# --- a naive model -----------------------------------------------------------------------------------------------

ABSENT = "no such field"


def model_key(key, payload, envelope):
    if isinstance(payload, dict):
        if key in payload:
            return [payload[key]]
        here = [payload]
        for part in key.split("."):
            here = [each[part] for each in here if isinstance(each, dict) and part in each]
        if here:
            return here
    return [envelope[key]] if key in envelope else ABSENT


def canonical(value):
    """One text per JSON value: numbers by value, so that 1 and 1.0 are one, and true stays true."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return f"number {value.as_integer_ratio()}"
    if isinstance(value, list):
        return "[" + ",".join(canonical(each) for each in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{canonical(value[key])}" for key in sorted(value)) + "}"
    return json.dumps(value)


def comparable(value, operand):
    def sort(each):
        return "text" if isinstance(each, str) else "number" if type(each) in (int, float) else "neither"

    return sort(value) == sort(operand) != "neither"


MODEL = {
    "prefix": lambda operand, value: isinstance(value, str) and value[: len(operand)] == operand,
    "suffix": lambda operand, value: isinstance(value, str) and value[::-1][: len(operand)] == operand[::-1],
    "equals": lambda operand, value: canonical(value) == canonical(operand),
    "not": lambda operand, value: not model_condition(operand, [value]),
    "gt": lambda operand, value: comparable(value, operand) and value > operand,
    "gte": lambda operand, value: comparable(value, operand) and not value < operand,
    "lt": lambda operand, value: comparable(value, operand) and value < operand,
    "lte": lambda operand, value: comparable(value, operand) and not value > operand,
}


def model_contains(operand, value):
    if isinstance(value, str):
        return isinstance(operand, str) and value.find(operand) >= 0
    return isinstance(value, list) and canonical(operand) in [canonical(each) for each in value]


def model_operator(name, operand, found):
    if name == "exists":
        return (found != ABSENT) == operand
    return found != ABSENT and MODEL.get(name, model_contains)(operand, found[0])


def model_condition(condition, found):
    if isinstance(condition, dict):
        return all(model_operator(name, operand, found) for name, operand in condition.items())
    if isinstance(condition, list):
        return any(model_condition(each, found) for each in condition)
    return found != ABSENT and canonical(found[0]) == canonical(condition)


numbers = st.integers(-3, 3) | st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, 2**53 + 1, float(2**53)])
texts = st.text("ab.", max_size=3)
scalars = st.none() | st.booleans() | numbers | texts
names = st.sampled_from(["a", "b", "a.b", "b.a", "a.a.b", "source", "event_type", ""])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)
plain_operators = {
    "prefix": texts,
    "suffix": texts,
    "contains": scalars,
    "equals": values,
    "exists": st.booleans(),
    **dict.fromkeys(["gt", "gte", "lt", "lte"], numbers | texts),
}


def some_operators(inner):
    return st.dictionaries(st.sampled_from([*plain_operators, "not"]), st.just(0), min_size=1, max_size=3).flatmap(
        lambda chosen: st.fixed_dictionaries({name: plain_operators.get(name, inner) for name in chosen})
    )


conditions = st.recursive(
    scalars,
    lambda inner: some_operators(inner) | st.lists(inner.filter(lambda each: not isinstance(each, list)), max_size=3),
    max_leaves=6,
)
payloads = st.dictionaries(names, values, max_size=4) | values


@settings(max_examples=examples(300), deadline=None)
@given(st.dictionaries(names, conditions, max_size=3), payloads, texts, texts)
def test_agrees_with_the_model(filters, payload, event_type, source):
    envelope = {"event_type": event_type, "source": source}
    expected = all(model_condition(value, model_key(key, payload, envelope)) for key, value in filters.items())
    assert filter_problems(filters) == []
    assert matches(filters, payload, event_type=event_type, source=source) is expected


NOW = datetime(2027, 1, 1, tzinfo=UTC)


@settings(max_examples=examples(200), deadline=None)
@given(st.dictionaries(names, conditions, max_size=4), payloads, st.sampled_from(["seen", "told"]))
def test_an_event_is_not_matched_exactly_when_there_is_a_reason(filters, payload, event_type):
    document = {"event_type": event_type, "payload": payload, "source": "tests"}
    event = parse_event(document, now=NOW)
    trigger = EventTrigger(["seen", "heard"], filters)
    found = mismatch(trigger, event)
    assert (found is None) is trigger.matches(event_type, event.payload, source="tests", at=NOW)
    alone = mismatch(compile_filters(filters), event)
    assert (alone is None) is matches(filters, event.payload, event_type=event_type, source="tests")


@pytest.mark.parametrize(
    ("filters", "why"),
    [
        ({"path": {"prefix": "/data"}, "size": 9}, "size: it is 1024, and the filter wants that it is 9"),
        ({"path": {"prefix": "/x"}, "size": 9},
         'path: it is "/datasets/a.csv", and the filter wants that it begins with "/x"'),
        ({"gone": ["a", "b"]}, 'gone: there is none, and the filter wants that it is one of ["a", "b"]'),
        ({"nothing": {"exists": False}}, "nothing: it is null, and the filter wants that it is not there"),
        ({"source": "desk"}, 'source: it is "tests", and the filter wants that it is "desk"'),
        ({"big": 1}, f'big: it is "{"x" * 59}…, and the filter wants that it is 1'),
        ({"line": 1}, 'line: it is "a\\nb\\u202e", and the filter wants that it is 1'),
    ],
)  # fmt: skip
def test_the_reason_is_the_first_filter_that_does_not_hold_and_what_the_event_has(filters, why):
    payload = {**PAYLOAD, "big": "x" * 10_000, "line": "a\nb\u202e"}
    event = parse_event({"event_type": "seen", "payload": payload, "source": "tests"}, now=NOW)
    assert mismatch(EventTrigger("seen", filters), event) == why
    assert mismatch(compile_filters(filters), event) == why


def test_there_is_no_reason_where_all_filters_hold():
    event = parse_event({"event_type": "seen", "payload": PAYLOAD, "source": "tests"}, now=NOW)
    assert mismatch(EventTrigger("seen", {"source": "tests"}), event) is None


def test_the_reason_may_be_the_type_or_the_time():
    event = parse_event({"event_type": "seen"}, now=NOW)
    assert mismatch(EventTrigger(["told", "heard"]), event) == (
        "event_type: it is seen, and the trigger wants told or heard"
    )
    for bounds in ({"start_at": NOW.replace(year=2028)}, {"end_at": NOW.replace(year=2026)}):
        assert mismatch(EventTrigger("seen", **bounds), event) == (
            "emitted_at: it is not between the start and the end of the trigger"
        )


@settings(max_examples=examples(100), deadline=None)
@given(names, conditions, payloads)
def test_a_filter_and_its_opposite_split_the_payloads_that_have_the_field(key, condition, payload):
    both = [matches({key: each}, payload) for each in (condition, {"not": condition})]
    if matches({key: {"exists": True}}, payload):
        assert sorted(both) == [False, True]
    else:
        assert both[1] is False


@settings(max_examples=examples(100), deadline=None)
@given(st.dictionaries(names, conditions, max_size=3), payloads)
def test_filters_survive_json(filters, payload):
    assert matches(json.loads(json.dumps(filters)), json.loads(json.dumps(payload))) == matches(filters, payload)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "gt", "not", "exists", "prefix", "equals", 5]), inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(max_examples=examples(300), deadline=None)
@given(junk, junk)
def test_for_any_filters_only_our_error_comes_out(filters, payload):
    problems = [message for _, message in filter_problems(filters)]
    if problems:
        with pytest.raises(InvalidTrigger) as error:
            matches(filters, payload)
        assert [problem.message for problem in error.value.problems] == problems
    else:
        assert matches(filters, payload) in (True, False)
