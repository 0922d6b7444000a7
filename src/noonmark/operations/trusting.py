"""Trusting: what a document that came over the network may name as a target, and what only a program may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.errors import InvalidSchedule
from noonmark.core.schedule import TRUSTED
from noonmark.core.targets import FunctionTarget
from noonmark.core.targets.http import HttpTarget

if TYPE_CHECKING:
    from noonmark.core.schedule import Declaration, Schedule
    from noonmark.core.targets.reach import Reach


def trusted(declaration: Declaration, stored: Schedule | None, reach: Reach | None) -> Declaration:
    """The declaration, unless its target is not for a document to name; what is stored already stays allowed."""
    target = declaration.target
    if stored is not None and stored.declaration.target == target:
        return declaration
    if isinstance(target, FunctionTarget):
        _check_function(target, stored)
    elif stored is not None and stored.source == TRUSTED:
        # Nodes trust what a program has made with more than a document, and go by the source of the schedule.
        raise InvalidSchedule("was made by a program, and only a program can give it another one", field="target")
    elif isinstance(target, HttpTarget) and reach is not None:
        _check_url(target, reach)
    return declaration


def _check_function(target: FunctionTarget, stored: Schedule | None) -> None:
    """Refuse the name of a function by its module: what comes by a document names what a node has registered."""
    before = None if stored is None else stored.declaration.target
    if isinstance(before, FunctionTarget) and before.function == target.function:
        return
    if ":" in target.function:
        raise InvalidSchedule(
            "must be the name under which a node has registered the function; only a program can name one by its"
            " module",
            field="target.function",
        )


def _check_url(target: HttpTarget, reach: Reach) -> None:
    if (problem := reach.url_problem(target.address)) is not None:
        raise InvalidSchedule(problem, field="target.url")
