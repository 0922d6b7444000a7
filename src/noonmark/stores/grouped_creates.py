"""Creates of schedules that share transactions, though each is of a caller of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.errors import StoreUnavailable
from noonmark.stores.group_commit import GroupCommit
from noonmark.stores.rules.plan_writes import is_independent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noonmark.core.errors import NoonmarkError
    from noonmark.core.planner import Plan


class GroupedCreates(GroupCommit["Plan", bool]):
    """Independent plans of one lock share transactions; all others have one of their own."""

    def __init__(
        self,
        commit_each: Callable[[str, Callable[[], Sequence[Plan]]], Sequence[bool | NoonmarkError]],
        commit_all: Callable[[Sequence[Plan]], list[bool]],
        lock_name: Callable[[str], str],
    ) -> None:
        """`lock_name` names what the creates of a tenant wait for."""
        super().__init__(commit_each)
        self._commit_all, self._lock_name = commit_all, lock_name

    def create(self, plans: Sequence[Plan]) -> list[bool]:
        """Create all or none; one that is independent may share its transaction with those of other callers."""
        if len(plans) == 1 and is_independent(plans[0]):
            return [self.write(self._lock_of(plans[0]), plans[0])]
        return self._commit_all(plans)

    def create_each(self, plans: Sequence[Plan]) -> list[bool | Exception]:
        """Create each by itself."""
        answers: dict[int, bool | Exception] = {}
        groups: dict[str, list[int]] = {}
        for place, plan in enumerate(plans):
            if is_independent(plan):
                groups.setdefault(self._lock_of(plan), []).append(place)
        for lock, places in groups.items():
            written = self.write_each(lock, [plans[place] for place in places])
            answers.update(zip(places, written, strict=True))
        others = iter(create_one_by_one([plan for plan in plans if not is_independent(plan)], self._commit_all))
        return [answers[place] if place in answers else next(others) for place in range(len(plans))]

    def _lock_of(self, plan: Plan) -> str:
        return self._lock_name(plan.snapshot.schedule.owner.tenant)


def create_one_by_one(plans: Sequence[Plan], create: Callable[[Sequence[Plan]], list[bool]]) -> list[bool | Exception]:
    """Create each in a transaction of its own."""
    answers: list[bool | Exception] = []
    for plan in plans:
        try:
            answers += create([plan])
        except StoreUnavailable as error:  # the others would wait as long, one after another, and learn the same
            return answers + [error] * (len(plans) - len(answers))
        except Exception as error:  # noqa: BLE001 - it is the answer for this plan
            answers.append(error)
    return answers
