"""Placeholders: `{{ name }}` stands for a fact of the occurrence. The list is closed; no code runs.

`payload` and `event` are JSON, and a dotted path leads into them, as in filters: a field whose name has dots itself
wins, and what an event does not have itself is looked for in its payload. A text that is nothing but one placeholder
becomes the value itself inside JSON; anywhere else, a placeholder becomes text.

The request of a schedule knows the facts alone. A step of a workflow also knows `inputs`, `steps`, `item` and `index`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

FACTS = ("schedule_id", "schedule_name", "occurrence_id", "nominal_at", "due_at", "attempt")
ALIASES = {
    "schedule.id": "schedule_id",
    "schedule.name": "schedule_name",
    "occurrence.id": "occurrence_id",
    "nominal_time": "nominal_at",
    "due_time": "due_at",
}
"""Other names of the facts."""
EVENT_ALIASES = {"id": "event_id", "type": "event_type"}
"""Other names of what an event has itself."""
MAX_FILLED = 1_048_576
"""Characters that may be filled in altogether."""
SKIPPED = "skipped"
"""The phase of a step that did not run: whatever is asked of its result is null."""

NOT_CLOSED = "has {{ without its }}; a placeholder is written as {{payload.name}}"
"""The problem of a text that `is_open`."""

_PLACEHOLDER = re.compile(r"\{\{([^{}]{0,300})\}\}")
_PATH = re.compile(r"[a-z]+(?:\.[^.\s{}]{1,100}){0,20}")
FACTS_IN_WORDS = ", ".join((*FACTS, "payload, payload.<field>", "event and event.<field>"))


def is_fact(name: str) -> bool:
    """Whether every occurrence has something of this name."""
    return name in FACTS or name in ALIASES or path_of(name)[:1] in (["payload"], ["event"])


def path_of(name: str) -> list[str]:
    """The parts of a dotted name, the first of which is a word; empty if it is not such a name."""
    return name.split(".") if _PATH.fullmatch(name) else []


def names_in(text: str) -> Iterator[str]:
    """The names in the placeholders of a text."""
    return (found[1].strip() for found in _PLACEHOLDER.finditer(text))


def is_one_placeholder(text: str) -> bool:
    """Whether a text is nothing but one placeholder."""
    return _PLACEHOLDER.fullmatch(text) is not None


def is_open(text: str) -> bool:
    """Whether a placeholder begins in the text and does not end."""
    # What stands between two placeholders: braces there begin one that does not end.
    return any("{{" in piece for piece in _PLACEHOLDER.split(text)[::2])


def normalize_placeholders(text: str, *, repeats: bool = True, is_known: Callable[[str], bool] = is_fact) -> str:
    """The text with every placeholder written without blanks; a ValueError names one that there is not.

    It is not repeated from a text that may hold a password.
    """

    def normal(match: re.Match[str]) -> str:
        name = match[1].strip()
        if not is_known(name):
            which = f" {shown(name)}" if repeats else ""
            raise ValueError(f"has an unknown placeholder{which}; allowed are {FACTS_IN_WORDS}")
        return "{{" + name + "}}"

    return _PLACEHOLDER.sub(normal, text)


def check_json(value: Any, *, is_known: Callable[[str], bool] = is_fact) -> None:
    """A ValueError names a placeholder in this JSON that there is not; the names of fields have none."""
    for text in _texts(value):
        normalize_placeholders(text, is_known=is_known)


def unfillable(value: Any, *, has_event: bool) -> str | None:
    """Why what this JSON asks for can never be filled in, if it cannot; `has_event` where events set it off."""
    for text in _texts(value):
        if is_open(text):
            return NOT_CLOSED
        for name in names_in(text):
            if name.partition(".")[0] == "event" and not has_event:
                return f"asks for {{{{{name}}}}}, and only a schedule with an event trigger has an event"
    return None


def has_placeholder(value: Any) -> bool:
    """Whether anything in this JSON may be filled in."""
    return any("{{" in text for text in _texts(value))


def _texts(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)


class Filling:
    """The facts of one occurrence, put where the placeholders are. What is too much, or not there, is a ValueError."""

    def __init__(self, facts: Mapping[str, Any], *, is_step: bool = False) -> None:
        """`facts` has a value for each of the names; None for an event where there is none.

        A step of a workflow, which may be started by an event or not, has null where there is none.
        """
        self._facts, self._is_step = facts, is_step
        self._left = MAX_FILLED
        self._known: dict[str, tuple[Any, str]] = {}

    def text(self, text: str, convert: Callable[[str], str] = str) -> str:
        """The text with the facts in it, each as `convert` writes it."""
        return _PLACEHOLDER.sub(lambda found: convert(self._value(found[1])[1]), text)

    def prose(self, text: str) -> str:
        """The text with the facts in it; braces around anything else stay, as in words about templates."""
        return _PLACEHOLDER.sub(lambda found: self._value(found[1])[1] if is_fact(found[1].strip()) else found[0], text)

    def json(self, value: Any) -> Any:
        """The JSON with the facts in it."""
        if isinstance(value, dict):
            return {name: self.json(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self.json(member) for member in value]
        if not isinstance(value, str):
            return value
        alone = _PLACEHOLDER.fullmatch(value)
        return self.text(value) if alone is None else self._value(alone[1])[0]

    def _value(self, name: str) -> tuple[Any, str]:
        """The value, and the same as text."""
        name = name.strip()
        if name not in self._known:
            value = self._required(name)
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            self._known[name] = value, text
        self._left -= len(self._known[name][1])
        if self._left < 0:
            raise ValueError(f"{self._asker} is larger than {MAX_FILLED:,} characters when it is filled in")
        return self._known[name]

    @property
    def _asker(self) -> str:
        return "the step" if self._is_step else "the request"

    def _required(self, name: str) -> Any:
        if name.partition(".")[0] == "event" and self._facts["event"] is None and not self._is_step:
            raise ValueError(f"{self._asker} asks for {{{{{name}}}}}, and no event triggered this occurrence")
        try:
            return self.look_up(name)
        except LookupError as missing:
            why = f"{self._asker} asks for {{{{{name}}}}}, and there is no {shown(missing.args[0])}"
            raise ValueError(why) from None

    def look_up(self, name: str) -> Any:
        """The value of a name; a LookupError has the part of it that there is not."""
        first, *path = ALIASES.get(name, name).split(".")
        value = self._facts[first]
        if first == "event":
            return None if value is None else _in_event(value, path)
        if first == "steps" and path[1:2] == ["result"] and value[path[0]]["phase"] == SKIPPED:
            return None
        return _within(value, path)


def _in_event(event: Mapping[str, Any], path: list[str]) -> Any:
    own = [EVENT_ALIASES.get(path[0], path[0]), *path[1:]] if path else path
    try:
        return _within(event, own)
    except LookupError:
        if own[:1] == ["payload"]:
            raise
        return _within(event["payload"], path)


def _within(value: Any, path: list[str]) -> Any:
    """What the path leads to; a LookupError has the part of it that there is not."""
    for at, part in enumerate(path):
        if isinstance(value, dict) and (rest := ".".join(path[at:])) in value:
            return value[rest]
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and part.isascii() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise LookupError(part)
    return value
