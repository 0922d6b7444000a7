"""Frozen values: dataclasses that cost little to define, and fast constructors and copies for those that need them.

A dataclass compiles six methods when it is defined. Noonmark has hundreds of them, and a program that uses a few pays
for all when it starts. `frozen` makes the same dataclass with methods that are not compiled, but for its constructor,
which is compiled when it is first called.

A frozen dataclass sets its fields one by one past its own guard, which is slow. `fast_frozen` gives a class another
constructor: the new object becomes a draft, an object of a class with the same slots and no guard, gets its fields, and
becomes what it is a draft of. An occurrence has some thirty fields and changes several times in its life, so this is
where a burst spends its time.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields, is_dataclass
from functools import partial, wraps
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, dataclass_transform, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
P = ParamSpec("P")
_MAKERS: dict[Any, Callable[..., Any]] = {}
_COPIES: dict[Any, Callable[[Any, dict[str, Any]], Any]] = {}
_DRAFTS: dict[Any, Any] = {}
"""The class of the drafts of each class."""
_SET_CLASS = object.__dict__["__class__"].__set__
"""Changes the class of an object, past the guard of its present class."""


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: type[T]) -> type[T]: ...


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...


def frozen(kind: type[T] | None = None, *, kw_only: bool = False) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a frozen dataclass with slots; methods that the class has itself stay."""
    return partial(_frozen, kw_only=kw_only) if kind is None else _frozen(kind, kw_only=kw_only)


def _frozen(kind: type[T], *, kw_only: bool) -> type[T]:
    own = dict(vars(kind))
    # A dataclass takes fields from a frozen one only if it is frozen as well, which compiles two methods.
    inherits = any(is_dataclass(base) for base in kind.__bases__)
    options: Any = {"slots": True, "kw_only": kw_only, "frozen": inherits}
    of_kind: Any = dataclass(init=False, repr=False, eq=False, **options)(kind)
    declared = fields(of_kind)
    compared = [one.name for one in declared if one.compare]
    hashed = [one.name for one in declared if (one.compare if one.hash is None else one.hash)]
    methods = {
        "__init__": _Constructor(of_kind),
        "__repr__": _representation([one.name for one in declared if one.repr]),
        "__eq__": _equality(_getter(compared)),
        "__hash__": _hash(_getter(hashed)),
        "__setattr__": _refuse_change,
        "__delattr__": _refuse_removal,
        "__getstate__": _state,
        "__setstate__": _restore,
    }
    for name, method in methods.items():
        if own.get(name) is None:  # a class that has __eq__ has None as its __hash__
            setattr(of_kind, name, method)
    of_kind.__dataclass_params__.frozen = True
    return of_kind  # type: ignore[no-any-return] # it is of that type


class _Constructor:
    """The constructor of a class until it is first needed; then the compiled one takes its place."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        declared = fields(self._kind)
        parameters, filled, names = _parameters(declared)
        names["_set"] = object.__setattr__
        compiled = _compile(
            [
                f"def __init__({', '.join(['self', *parameters])}):",
                *filled,
                *(f"    _set(self, {one.name!r}, {one.name})" for one in declared),
                "    self.__post_init__()" if hasattr(self._kind, "__post_init__") else "    return",
            ],
            names,
        )["__init__"]
        compiled.__qualname__ = f"{self._kind.__qualname__}.__init__"
        compiled.__annotations__ = {one.name: one.type for one in declared} | {"return": None}
        self._kind.__init__ = compiled
        return compiled.__get__(instance, owner)


def _getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that gives some fields of a value, as a tuple."""
    match names:
        case []:
            return lambda _: ()
        case [name]:
            return lambda value: (getattr(value, name),)
        case _:
            return attrgetter(*names)


def _equality(get: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], bool]:
    def __eq__(self: Any, other: Any) -> bool:  # noqa: N807 - it becomes this method
        return get(self) == get(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(get: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    return lambda self: hash(get(self))


def _representation(names: Sequence[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:  # noqa: N807 - likewise
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _refuse_change(_self: object, name: str, _value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_removal(_self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


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
    return _compile(lines, known)["copy"]  # type: ignore[no-any-return] # it was just made


def brief(value: object, **shown: int | str | None) -> str:
    """A value on one line: the given fields, without those that are None."""
    parts = (f"{name}={one if isinstance(one, int) else str(one)!r}" for name, one in shown.items() if one is not None)
    return f"{type(value).__name__}({', '.join(parts)})"


def fast_frozen(kind: type[T]) -> type[T]:
    """Give a frozen dataclass with slots, without `__post_init__`, a fast constructor, and prepare it for `evolve`."""
    of_kind: Any = kind
    declared = fields(of_kind)
    draft = type(f"{kind.__name__}Draft", (), {"__slots__": tuple(one.name for one in declared)})
    parameters, filled, names = _parameters(declared)
    names |= {"kind": kind, "draft_of": draft, "new": object.__new__, "set_class": _SET_CLASS}
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
    _compile(lines, names)
    of_kind.__init__ = wraps(of_kind.__init__)(names["__init__"])
    _MAKERS[kind], _COPIES[kind], _DRAFTS[kind] = names["make"], names["copy"], draft
    return kind


def _parameters(declared: Sequence[Field[Any]]) -> tuple[list[str], list[str], dict[str, Any]]:
    """The parameters of a constructor, the lines that make missing values, and the names that both mention."""
    names: dict[str, Any] = {"_missing": MISSING}
    parameters: list[str] = []
    filled: list[str] = []
    for one in sorted(declared, key=lambda one: one.kw_only is True):
        if one.kw_only and "*" not in parameters:
            parameters.append("*")
        if one.default_factory is not MISSING:
            names[f"_make_{one.name}"] = one.default_factory
            parameters.append(f"{one.name}=_missing")
            filled.append(f"    if {one.name} is _missing: {one.name} = _make_{one.name}()")
        elif one.default is not MISSING:
            names[f"_default_{one.name}"] = one.default
            parameters.append(f"{one.name}=_default_{one.name}")
        else:
            parameters.append(one.name)
    return parameters, filled, names


def _compile(lines: Sequence[str], names: dict[str, Any]) -> dict[str, Any]:
    """Define functions from the names of fields, as dataclasses does; the names are those that they know, and theirs.

    The text is compiled apart: `exec` of a text while a program ends by Ctrl-C loses its exit status.
    """
    exec(compile("\n".join(lines), "<frozen>", "exec"), names)  # noqa: S102 - the names of fields alone
    return names
