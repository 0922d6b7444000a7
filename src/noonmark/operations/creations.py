"""Operations that create a schedule, written so that a server can store what several of them create at once.

Such an operation is a generator. It yields the plan to store, and is sent whether the id was free.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from noonmark.core.planner import Plan
    from noonmark.ports.store import Store

T = TypeVar("T")
Creation = Generator["Plan", bool, T]


def create_alone(store: Store, creation: Creation[T]) -> T:
    """Run an operation by itself: each plan has a call of the store of its own."""
    try:
        plan = next(creation)
        while True:
            try:
                [created] = store.create([plan])
            except Exception as error:  # noqa: BLE001 - it is raised where the plan was yielded
                plan = creation.throw(error)
            else:
                plan = creation.send(created)
    except StopIteration as end:
        answer: T = end.value
        return answer
