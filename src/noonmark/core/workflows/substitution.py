"""What a step of a run asks for, put where its placeholders are.

`facts` has the facts of the occurrence, its `payload` and its `event`, the `inputs` of the run, the `steps` that have
ended, each with its `result` and its `phase`, and for an element of a `for_each` step its `item` and `index`.
Everything is filled in once: data that looks like a placeholder stays what it is. What cannot be filled in is a
ValueError, which repeats nothing of the data.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.filters.match import compile_filters, filter_problems
from noonmark.core.instants import parse_instant, to_text
from noonmark.core.targets.http import MAX_FILLED_URL, check_header, quote_for_url
from noonmark.core.targets.placeholders import Filling
from noonmark.core.workflows.steps import MAX_ELEMENTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.workflows.steps import Step, Wait

_JSON_FIELDS = {
    "function": frozenset({"args", "kwargs", "payload"}),
    "command": frozenset({"payload"}),
    "event": frozenset({"payload"}),
    "workflow": frozenset({"inputs"}),
    "bundle": frozenset({"inputs"}),
    "task": frozenset({"context"}),
    "mob": frozenset({"params"}),
    "session": frozenset(),
}
"""The parts of a target that are any JSON, by its kind. The others are texts."""
_JSON_OF_ACTIONS = frozenset({"payload", "render_metadata"})
"""The same of the action of a session."""


def fill_step(step: Step, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The target document of a step that has one, with its input."""
    filling = Filling(facts, is_step=True)
    return _with_input(_filled_target(step.target or {}, filling), filling.json(step.input))


def fill_compensation(step: Step, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The target document that undoes a step; the step is among the `steps` of the facts."""
    return _filled_target(step.compensate or {}, Filling(facts, is_step=True))


def fill_wait(wait: Wait, facts: Mapping[str, Any]) -> Wait:
    """The wait with its time and its filters."""
    filling = Filling(facts, is_step=True)
    filters = {key: _filled_condition(condition, filling) for key, condition in wait.filters.items()}
    for path, _ in filter_problems(filters):
        raise ValueError(f"the filter {path} cannot have the value that is filled in")
    return replace(wait, until=None if wait.until is None else _instant(filling.text(wait.until)), filters=filters)


def fill_json(value: Any, facts: Mapping[str, Any]) -> Any:
    """The JSON with the facts in it; a text that is one placeholder becomes the value itself."""
    return Filling(facts, is_step=True).json(value)


def fill_text(text: str, facts: Mapping[str, Any]) -> str:
    """The text with the facts in it, such as the message of an approval."""
    return Filling(facts, is_step=True).text(text)


def holds(when: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether all conditions hold. A missing value meets none but `{"exists": false}`."""
    filling, filled = Filling(facts, is_step=True), {}
    for name in when:
        try:
            filled[name] = filling.look_up(name)
        except LookupError:
            continue
    # A field that has the whole key for its name wins over the path.
    return compile_filters(when)(filled)


def elements(step: Step, facts: Mapping[str, Any]) -> list[Any]:
    """The elements that a `for_each` step runs for."""
    items = fill_json(step.for_each, facts)
    if not isinstance(items, list):
        raise ValueError("for_each must be an array when it is filled in")
    if len(items) > MAX_ELEMENTS:
        raise ValueError(f"for_each has {len(items):,} elements; at most {MAX_ELEMENTS:,} are allowed")
    return items


def _filled_target(target: Mapping[str, Any], filling: Filling) -> dict[str, Any]:
    kind = target["target_kind"]
    if kind == "http":
        return _filled_request(target, filling)
    filled = _filled_fields(target, _JSON_FIELDS[kind], filling)
    if kind == "session":
        filled["action"] = _filled_fields(target["action"], _JSON_OF_ACTIONS, filling)
    return filled


def _filled_fields(fields: Mapping[str, Any], json_fields: frozenset[str], filling: Filling) -> dict[str, Any]:
    return {
        name: filling.json(value) if name in json_fields else _filled_texts(value, filling)
        for name, value in fields.items()
    }


def _filled_texts(value: Any, filling: Filling) -> Any:
    """The same, where every text stays a text."""
    if isinstance(value, dict):
        return {name: _filled_texts(member, filling) for name, member in value.items()}
    if isinstance(value, list):
        return [_filled_texts(member, filling) for member in value]
    return filling.text(value) if isinstance(value, str) else value


def _filled_request(target: Mapping[str, Any], filling: Filling) -> dict[str, Any]:
    """The request as it is sent: nothing that was filled in is taken for a placeholder again."""
    if target.get("literal"):
        return dict(target)
    url = filling.text(target["url"], quote_for_url)
    if len(url) > MAX_FILLED_URL:
        raise ValueError(f"the filled-in URL has more than {MAX_FILLED_URL:,} characters")
    filled = dict(target) | {"url": url, "literal": True}
    if "headers" in target:
        filled["headers"] = {name: check_header(filling.text(text)) for name, text in target["headers"].items()}
    if "body" in target:
        filled["body"] = filling.json(target["body"])
    return filled


def _with_input(target: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The target with the input of the step, where its kind takes one and it has none of its own."""
    if not given:
        return target
    match target["target_kind"]:
        case "function":
            return target | {"kwargs": target["kwargs"] | given}
        case "workflow" | "bundle":
            return target | {"inputs": target.get("inputs", {}) | given}
        case "http":
            return {"body": given} | target
        case "command":
            return target if "stdin" in target else {"payload": given} | target
        case _:  # an event; agents take no input
            return target if target["payload"] else target | {"payload": given}


def _filled_condition(condition: Any, filling: Filling) -> Any:
    """A condition of a filter. Data stays data: an object that is filled in is compared with, and has no operators."""
    if isinstance(condition, dict):
        return {name: _filled_operand(name, operand, filling) for name, operand in condition.items()}
    if isinstance(condition, list):
        return [_filled_condition(member, filling) for member in condition]
    filled = filling.json(condition)
    return {"equals": filled} if isinstance(filled, dict | list) else filled


def _filled_operand(name: str, operand: Any, filling: Filling) -> Any:
    return _filled_condition(operand, filling) if name == "not" else filling.json(operand)


def _instant(text: str) -> str:
    try:
        return to_text(parse_instant(text))
    except ValueError as error:
        raise ValueError(f"the time to wait until {error}") from None
