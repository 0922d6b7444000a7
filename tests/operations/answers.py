"""Checks of answers against their models: every field, no other field, each of its type."""

import types
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from noonmark.core.instants import parse_instant
from noonmark.operations.table import Operation


def check_answer(model, document):
    """Raise AssertionError unless a document is exactly what its model says."""
    problems = list(_problems(model, document, model.__name__))
    assert not problems, problems


def _problems(hint, value, path):
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        found = [list(_problems(part, value, path)) for part in parts]
        return min(found, key=len)
    if origin in (list, dict):
        if not isinstance(value, origin):
            return [f"{path}: {value!r} is not a {origin.__name__}"]
        entries = enumerate(value) if origin is list else value.items()
        return [problem for name, entry in entries for problem in _problems(parts[-1], entry, f"{path}[{name}]")]
    if is_dataclass(hint):
        return list(_model_problems(hint, value, path))
    return [] if _is_a(hint, value) else [f"{path}: {value!r} is not {hint}"]


def _model_problems(model, value, path):
    if not isinstance(value, dict):
        yield f"{path}: {value!r} is not an object"
        return
    known = {one.name: one for one in fields(model) if not one.metadata.get("is_whole")}
    yield from (f"{path}.{name}: not in the model" for name in value.keys() - known.keys())
    required = {name for name, one in known.items() if one.default is MISSING}
    yield from (f"{path}.{name}: missing" for name in required - value.keys())
    hints = _type_hints(model)
    for name in value.keys() & known.keys():
        yield from _problems(hints[name], value[name], f"{path}.{name}")


_type_hints = cache(get_type_hints)


def _is_a(kind, value):
    if kind is Any or get_origin(kind) is Literal:
        return kind is Any or value in get_args(kind)
    if kind is datetime:
        return isinstance(value, str) and parse_instant(value) is not None
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


@contextmanager
def checked_answers():
    """Check the answer of every operation that is performed in this process."""
    original = Operation.call

    def call(operation):
        handler = original.fget(operation)

        def checked(service, caller, arguments):
            answer = handler(service, caller, arguments)
            if isinstance(answer, Generator):
                return checked_creation(answer)
            check_answer(operation.answer, answer)
            return answer

        def checked_creation(creation):
            answer = yield from creation
            check_answer(operation.answer, answer)
            return answer

        checked.__doc__ = handler.__doc__
        return checked

    Operation.call = property(call)
    try:
        yield
    finally:
        Operation.call = original
