"""Renaming: an error that speaks of our own fields, told in the words of the document that was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from noonmark.core.errors import InvalidSchedule, NoonmarkError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

E = TypeVar("E", bound=NoonmarkError)


def renamed(error: E, names: Mapping[str, str]) -> E:
    """The same error, with the fields that the caller knows; what is inside a field keeps its path."""
    error.field = _renamed(error.field, names)
    if isinstance(error, InvalidSchedule):
        error.problems = tuple(Problem(_renamed(one.field, names), one.message, one.code) for one in error.problems)
    return error


def _renamed(field: str, names: Mapping[str, str]) -> str:
    """The longest path that has a name gives way to it."""
    for ours in sorted(names, key=len, reverse=True):
        if field == ours or field.startswith((f"{ours}.", f"{ours}[")):
            return names[ours] + field[len(ours) :]
    return field
