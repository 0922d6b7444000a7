"""Event filters: which events match a trigger. They compare values; they never run code.

`filter_problems` says what is wrong with filters when a schedule is created, `compile_filters` prepares good ones
once for many events, and `matches` does both for a single event. A filter is a key and a condition:

    key        a payload field; else a dotted path through nested objects; else `event_type` or `source`
    condition  a scalar   equal, and of the same JSON type
               null       present, and null
               a list     any of its conditions
               an object  operators, all of which must hold

A missing field meets no condition but `{"exists": false}`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import field
from itertools import islice
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import InvalidTrigger, Problem
from noonmark.core.frozen import frozen
from noonmark.core.json_values import TOO_LARGE, json_problem, key_path, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_FILTERS = 100
MAX_PROBLEMS = 100
"""The maximum number of problems reported for one list."""

Condition = Callable[[object], bool]

MISSING = object()
"""What an event has where it has nothing."""


def matches(filters: Mapping[str, Any], payload: object, *, event_type: str = "", source: str = "") -> bool:
    """Whether all filters hold for one event. Any payload is fine; bad filters raise InvalidTrigger."""
    return compile_filters(filters)(payload, event_type=event_type, source=source)


def filter_problems(filters: object) -> list[tuple[str, str]]:
    """What is wrong with filters, as (path below the filters, sentence); empty when nothing is."""
    if not isinstance(filters, dict):
        return [("", f"must be an object, not {shown(filters)}")]
    if len(filters) > MAX_FILTERS:
        return [("", f"has {len(filters):,} keys; at most {MAX_FILTERS} are allowed")]
    if (problem := json_problem(filters)) == TOO_LARGE:
        return [("", problem)]
    if problem is not None:
        alone = ((key_path(key), json_problem({key: value})) for key, value in filters.items())
        return [(path, own) for path, own in alone if own is not None] or [("", problem)]
    problems = (bad for key, value in filters.items() for bad in _condition_problems(key_path(key), value))
    return list(islice(problems, MAX_PROBLEMS))


def compile_filters(filters: Mapping[str, Any]) -> Matcher:
    """Make filters ready to be held against many events; raises InvalidTrigger with everything wrong in them."""
    problems = [
        Problem(f"filters.{path}" if path else "filters", message, InvalidTrigger.code)
        for path, message in filter_problems(filters)
    ]
    if problems:
        raise InvalidTrigger(problems[0].message, field=problems[0].field, problems=problems)
    return Matcher(tuple(_Filter(key, tuple(key.split(".")), _condition(own), own) for key, own in filters.items()))


@frozen
class _Filter:
    key: str
    path: tuple[str, ...]
    holds: Condition
    condition: Any = field(hash=False)
    """The condition as it was written."""

    def find(self, payload: object, envelope: Mapping[str, str]) -> object:
        """The value of the key."""
        return found_at(self.key, self.path, payload, envelope)


@frozen
class Unmet:
    """A filter that does not hold for an event: its key, its condition, and what the event has there."""

    key: str
    condition: Any = field(hash=False)
    found: Any = field(default=None, hash=False)
    is_missing: bool = False


@frozen
class Matcher:
    """Compiled filters: call it with an event."""

    filters: tuple[_Filter, ...]

    def __call__(self, payload: object, *, event_type: str = "", source: str = "") -> bool:
        """Whether all filters hold for this event. Never raises."""
        envelope = {"event_type": event_type, "source": source}
        return all(each.holds(each.find(payload, envelope)) for each in self.filters)

    def unmet(self, payload: object, *, event_type: str = "", source: str = "") -> Unmet | None:
        """The first filter that does not hold for this event; None when all do. Never raises."""
        envelope = {"event_type": event_type, "source": source}
        for each in self.filters:
            actual = each.find(payload, envelope)
            if not each.holds(actual):
                is_missing = actual is MISSING
                return Unmet(each.key, each.condition, None if is_missing else actual, is_missing)
        return None


def found_at(key: str, path: Sequence[str], payload: object, envelope: Mapping[str, str]) -> object:
    """The value of a key: a literal field wins over its path, and the payload over the envelope."""
    if isinstance(payload, dict) and key in payload:
        return payload[key]
    value = payload
    for step in path:
        if not isinstance(value, dict) or step not in value:
            return envelope.get(key, MISSING)
        value = value[step]
    return value


def _condition(value: Any) -> Condition:
    if isinstance(value, dict):
        return _all_of([_OPERATORS[name].build(operand) for name, operand in value.items()])
    return _any_of(value if isinstance(value, list | tuple) else [value])


def _all_of(conditions: Sequence[Condition]) -> Condition:
    return conditions[0] if len(conditions) == 1 else lambda value: all(holds(value) for holds in conditions)


def _any_of(values: Sequence[object]) -> Condition:
    # Scalars go into a set, so that a list of a thousand names costs one look-up an event.
    scalars = frozenset(_scalar(member) for member in values if not isinstance(member, dict))
    others = tuple(_condition(member) for member in values if isinstance(member, dict))
    if not others:
        return lambda value: _scalar(value) in scalars
    return lambda value: _scalar(value) in scalars or any(holds(value) for holds in others)


def kind_of(value: object) -> str:
    """The JSON type of a value; whatever is not JSON, the missing field included, has none."""
    if value is None:
        return "null"
    if isinstance(value, bool):  # before the numbers: Python counts true as 1
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    return ""


def _scalar(value: object) -> tuple[str, object]:
    """A value with its type, so that 1 and 1.0 are one, and 1, true and "1" are three."""
    kind = kind_of(value)
    return (kind, value if kind else None)


def _same(expected: object, actual: object) -> bool:
    """Equality of JSON values. Never recurses, and never looks further than `wanted` reaches."""
    pending = [(expected, actual)]
    while pending:
        left, right = pending.pop()
        if isinstance(left, dict) and isinstance(right, dict):
            if left.keys() != right.keys():
                return False
            pending.extend((left[key], right[key]) for key in left)
        elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
            if len(left) != len(right):
                return False
            pending.extend(zip(left, right, strict=True))
        elif not kind_of(left) or _scalar(left) != _scalar(right):
            return False
    return True


def _equals(operand: object) -> Condition:
    return lambda value: _same(operand, value)


def _contains(operand: object) -> Condition:
    def holds(value: object) -> bool:
        if isinstance(value, str):
            return isinstance(operand, str) and operand in value
        return isinstance(value, list | tuple) and any(_same(operand, member) for member in value)

    return holds


def _prefix(operand: str) -> Condition:
    return lambda value: isinstance(value, str) and value.startswith(operand)


def _suffix(operand: str) -> Condition:
    return lambda value: isinstance(value, str) and value.endswith(operand)


def _not(operand: object) -> Condition:
    unwanted = _condition(operand)
    return lambda value: value is not MISSING and not unwanted(value)


def _exists(operand: bool) -> Condition:  # noqa: FBT001 - the operand of a filter
    return lambda value: (value is not MISSING) is operand


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any], Condition]:
    def build(operand: object) -> Condition:
        kind = kind_of(operand)
        return lambda value: kind_of(value) == kind and compare(value, operand)

    return build


@frozen
class _Operator:
    """How an operator tests a value, and which operand it takes; `kinds` empty means any."""

    build: Callable[[Any], Condition]
    takes: str
    kinds: tuple[str, ...] = ()


_ORDERED = ("a number or text", ("number", "text"))
_OPERATORS = {
    "prefix": _Operator(_prefix, "text", ("text",)),
    "suffix": _Operator(_suffix, "text", ("text",)),
    "contains": _Operator(_contains, "text, a number, true, false or null", ("text", "number", "boolean", "null")),
    "equals": _Operator(_equals, "any value"),
    "not": _Operator(_not, "a value, a list or an object of operators"),
    "exists": _Operator(_exists, "true or false", ("boolean",)),
    "gt": _Operator(_ordered(operator.gt), *_ORDERED),
    "gte": _Operator(_ordered(operator.ge), *_ORDERED),
    "lt": _Operator(_ordered(operator.lt), *_ORDERED),
    "lte": _Operator(_ordered(operator.le), *_ORDERED),
}
_KNOWN = ", ".join(_OPERATORS)


def _condition_problems(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        if not value:
            yield path, f'names no operator; allowed are {_KNOWN} (an empty object is {{"equals": {{}}}})'
        for name, operand in value.items():
            yield from _operator_problems(f"{path}.{key_path(name)}", name, operand)
    elif isinstance(value, list | tuple):
        for index, member in enumerate(value):
            where = f"{path}[{index}]"
            if isinstance(member, list | tuple):
                yield where, 'is a list inside a list; to compare with a whole list use {"equals": [..]}'
            else:
                yield from _condition_problems(where, member)


def _operator_problems(path: str, name: str, operand: object) -> Iterator[tuple[str, str]]:
    operator = _OPERATORS.get(name)
    if operator is None:
        hint = '(to compare with an object use "equals", to look inside one a dotted key)'
        yield path, f"unknown operator {shown(name)}; allowed are {_KNOWN} {hint}"
    elif operator.kinds and kind_of(operand) not in operator.kinds:
        yield path, f'"{name}" takes {operator.takes}, not {shown(operand)}'
    elif name == "not":
        yield from _condition_problems(path, operand)
