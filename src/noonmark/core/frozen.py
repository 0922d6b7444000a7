"""Frozen values: a fast constructor and fast copies for those of which a burst makes many, and values on one line.

A frozen dataclass sets its fields one by one past its own guard, which is slow. `fast_frozen` gives a class another
constructor: the new object becomes a draft, an object of a class with the same slots and no guard, gets its fields, and
becomes what it is a draft of. An occurrence has some thirty fields and changes several times in its life, so this is
where a burst spends its time.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
P = ParamSpec("P")
_MAKERS: dict[Any, Callable[..., Any]] = {}
_COPIES: dict[Any, Callable[[Any, dict[str, Any]], Any]] = {}
_DRAFTS: dict[Any, Any] = {}
"""The class of the drafts of each class."""
_SET_CLASS = object.__dict__["__class__"].__set__
"""Changes the class of an object, past the guard of its present class."""


def evolve(value: T, **changes: Any) -> T:
    """A copy of a value of a `fast_frozen` class with some fields changed; `__post_init__` is not called."""
    return _COPIES[type(value)](value, changes)  # type: ignore[no-any-return] # it is of that type


def maker(kind: Callable[P, T]) -> Callable[P, T]:
    """A function that makes values of a `fast_frozen` class as its constructor does, in half the time.

    A call of a class with keywords puts them into a dictionary for its constructor; a call of a function does not.
    """
    return _MAKERS[kind]


def evolver(kind: type[T], *names: str) -> Callable[..., T]:
    """A function that copies values of a `fast_frozen` class with these fields changed, and is faster than `evolve`."""
    lines = [
        f"def copy(value, *, {', '.join(names)}):",
        "    draft = new(draft_of)",
        *(f"    draft.{one} = {one if one in names else f'value.{one}'}" for one in _DRAFTS[kind].__slots__),
        "    draft.__class__ = kind",
        "    return draft",
    ]
    known: dict[str, Any] = {"kind": kind, "draft_of": _DRAFTS[kind], "new": object.__new__}
    exec("\n".join(lines), known)  # noqa: S102 - likewise
    return known["copy"]  # type: ignore[no-any-return] # it was just made


def brief(value: object, **shown: int | str | None) -> str:
    """A value on one line: the given fields, without those that are None."""
    parts = (f"{name}={one if isinstance(one, int) else str(one)!r}" for name, one in shown.items() if one is not None)
    return f"{type(value).__name__}({', '.join(parts)})"


def fast_frozen(kind: type[T]) -> type[T]:
    """Give a frozen dataclass with slots and without `__post_init__` a fast constructor, and prepare it for `evolve`.

    The code is compiled here, not on first use: a program that ends by Ctrl-C must not compile while it exits, or
    Python would lose its exit status.
    """
    of_kind: Any = kind
    declared = fields(of_kind)
    draft = type(f"{kind.__name__}Draft", (), {"__slots__": tuple(one.name for one in declared)})
    names: dict[str, Any] = {"kind": kind, "draft_of": draft, "new": object.__new__, "set_class": _SET_CLASS}
    names["missing"] = MISSING
    parameters: list[str] = []
    filled: list[str] = []
    for one in sorted(declared, key=lambda one: one.kw_only is True):
        if one.kw_only and "*" not in parameters:
            parameters.append("*")
        if one.default_factory is not MISSING:
            names[f"make_{one.name}"] = one.default_factory
            parameters.append(f"{one.name}=missing")
            filled.append(f"    if {one.name} is missing: {one.name} = make_{one.name}()")
        elif one.default is not MISSING:
            names[f"default_{one.name}"] = one.default
            parameters.append(f"{one.name}=default_{one.name}")
        else:
            parameters.append(one.name)
    assigned = [f"    self.{one.name} = {one.name}" for one in declared]
    lines = [
        f"def __init__(self, {', '.join(parameters)}):",
        *filled,
        "    set_class(self, draft_of)",
        *assigned,
        "    self.__class__ = kind",
        f"def make({', '.join(parameters)}):",
        *filled,
        "    self = new(draft_of)",
        *assigned,
        "    self.__class__ = kind",
        "    return self",
        "def copy(value, changes):",
        "    draft = new(draft_of)",
        *(f"    draft.{one.name} = value.{one.name}" for one in declared),
        "    for name, changed in changes.items(): setattr(draft, name, changed)",
        "    draft.__class__ = kind",
        "    return draft",
    ]
    exec("\n".join(lines), names)  # noqa: S102 - the names of fields alone, as dataclasses does
    of_kind.__init__ = wraps(of_kind.__init__)(names["__init__"])
    _MAKERS[kind], _COPIES[kind], _DRAFTS[kind] = names["make"], names["copy"], draft
    return kind
