"""The names that the placeholders and conditions of a step may use, and what is wrong with those that they do use."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any

from noonmark.core.frozen import frozen
from noonmark.core.json_values import key_path, shown
from noonmark.core.secret import header_place
from noonmark.core.targets.placeholders import FACTS_IN_WORDS, NOT_CLOSED, is_fact, is_open, names_in, path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

_WORD = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OF_STEPS = "of a step there are steps.<id>.result, steps.<id>.result.<field> and steps.<id>.phase"
_IN_WORDS = f"{FACTS_IN_WORDS}, inputs.<name>, steps.<id>.result, and item and index in a step with for_each"
_LISTED = 10
"""How many names a message lists."""
FIXED = {"function": ("function",), "command": ("argv[0]",), "bundle": ("bundle_id", "labels")}
"""What decides what runs, and where, by the kind of target: it has no placeholders.

The other texts of this kind are too narrow for one: ids, event types, names of headers and secrets.
"""


def word(value: object) -> str:
    """The id of a step, or the name of an input."""
    if isinstance(value, str) and _WORD.fullmatch(value):
        return value
    raise ValueError(f"must be 1 to 64 letters, digits, - or _, not {shown(value)}")


@frozen(kw_only=True)
class StepNames:
    """What one place of a definition may ask for."""

    steps: Collection[str]
    """All steps."""
    has_ended: Callable[[str], bool]
    """Whether a step has ended for sure by the time that this place is filled in."""
    inputs: Collection[str] | None = None
    """The declared inputs; None where any are taken."""
    has_item: bool = False

    def problem(self, name: str) -> str | None:
        """Why there is no such name; None if there is."""
        if is_fact(name):
            return None
        match path_of(name):
            case ["inputs", *rest]:
                return self._input_problem(rest)
            case ["item", *_] | ["index"]:
                return None if self.has_item else "only a step with for_each has an item and its index"
            case ["steps", step, "result", *_] | ["steps", step, "phase"]:
                return self._step_problem(step)
            case ["steps", *_]:
                return _OF_STEPS
            case _:
                return f"there is no such name; allowed are {_IN_WORDS}"

    def _input_problem(self, path: list[str]) -> str | None:
        if self.inputs is None or not path or path[0] in self.inputs:
            return None
        more = ", .." if len(self.inputs) > _LISTED else ""
        listed = ", ".join(islice(self.inputs, _LISTED)) + more
        return f"there is no such input; there are {listed}" if listed else "the workflow has no inputs"

    def _step_problem(self, step: str) -> str | None:
        if step not in self.steps:
            return f"there is no step {shown(step)}"
        if not self.has_ended(step):
            return f"this step does not depend on {step}; add it to depends_on"
        return None


def placeholder_problems(
    value: Any,
    path: str,
    names: StepNames,
    *,
    repeats: bool = True,
) -> Iterator[tuple[str, str]]:
    """What is wrong with the placeholders in some JSON, each with its path; the names of fields have none.

    An unknown name is not repeated from a text that may hold a password.
    """
    for where, text in texts_in(value, path):
        if is_open(text):
            yield where, NOT_CLOSED
        for name in dict.fromkeys(names_in(text)):
            if (problem := names.problem(name)) is not None:
                is_safe = repeats or path_of(name)[:1] in (["steps"], ["inputs"], ["item"], ["index"])
                yield where, f"{_asks_for(name) if is_safe else 'has an unknown placeholder'}: {problem}"


def target_problems(target: Mapping[str, Any], path: str, names: StepNames) -> Iterator[tuple[str, str]]:
    """What is wrong with the placeholders in a target document, whatever else is wrong with it."""
    kind = target.get("target_kind")
    if kind == "http" and target.get("literal") is True:
        return
    fixed = tuple(f"{path}.{name}" for name in FIXED.get(kind, ())) if isinstance(kind, str) else ()
    for name, value in target.items():
        where = f"{path}.{key_path(name)}"
        if kind == "http" and name == "headers" and isinstance(value, dict):
            for header, text in value.items():
                place = f"{where}{header_place(header, value)}"
                yield from placeholder_problems(text, place, names, repeats=False)
        elif not (kind == "http" and name == "secret_headers"):
            for place, text in texts_in(value, where):
                if place.startswith(fixed):
                    yield place, "must not have a placeholder: it decides what runs, or where"
                else:
                    yield from placeholder_problems(text, place, names, repeats=not (kind == "http" and name == "url"))


def texts_in(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The texts in some JSON that have braces, each with its path, in their order."""
    # Each value has its key and the place above it: a path is written only where it is asked for.
    pending: list[tuple[Any, _Place]] = [(value, (None, path))] if _has_texts(value) else []
    while pending:
        item, place = pending.pop()
        if isinstance(item, str):
            if "{{" in item:
                yield _path(place), item
        elif isinstance(item, dict):
            pending.extend((member, (place, key)) for key, member in reversed(item.items()) if _has_texts(member))
        else:
            members = [(member, (place, index)) for index, member in enumerate(item) if _has_texts(member)]
            pending.extend(reversed(members))


def _has_texts(value: Any) -> bool:
    return bool(value) and isinstance(value, str | dict | list | tuple)


_Place = tuple[Any, str | int]
"""The place above, and a key or an index in it."""


def _path(place: _Place) -> str:
    parts: list[str] = []
    above, key = place
    while above is not None:
        parts.append(f"[{key}]" if isinstance(key, int) else f".{key_path(key)}")
        above, key = above
    return "".join([str(key), *reversed(parts)])


def _asks_for(name: str) -> str:
    return f"asks for {{{{{key_path(name)}}}}}"
