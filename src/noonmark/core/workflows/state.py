"""The state of a run: the records of its steps, and what follows from them at once.

A run of thousands of steps is looked at thousands of times. So each record that changes is counted when it does, and
no caller has to go through all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noonmark.core.workflows.run import StepPhase
from noonmark.core.workflows.substitution import elements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from noonmark.core.workflows.definition import Definition
    from noonmark.core.workflows.run import StepKey, StepRecord
    from noonmark.core.workflows.steps import Step


@dataclass(slots=True)
class Elements:
    """The elements of one list that have begun."""

    open: dict[int, None] = field(default_factory=dict)
    """Those that have not ended, in the order in which they began."""
    ended: int = 0
    failed: int = 0
    """Those that have ended and not completed."""
    next: int = 0
    """All before this one have begun."""
    beyond: set[int] = field(default_factory=set)
    """Those after it that have begun."""

    def put(self, before: StepRecord | None, record: StepRecord, index: int) -> None:
        """Count an element that has changed."""
        if before is None:
            self.beyond.add(index)
            while self.next in self.beyond:
                self.beyond.remove(self.next)
                self.next += 1
        if not record.has_ended:
            self.open[index] = None
        elif before is None or not before.has_ended:
            self.open.pop(index, None)
            self.ended += 1
            self.failed += record.phase is not StepPhase.COMPLETED


class RunState:
    """How far a run has come. A record that has ended stays ended."""

    def __init__(self, definition: Definition, records: Iterable[StepRecord] = ()) -> None:
        self.definition = definition
        self.records: dict[StepKey, StepRecord] = {}
        self.open: dict[str, None] = {}
        """The steps that have begun and not ended."""
        self.next = {step.id: None for step in definition.steps if not step.depends_on}
        """The steps that have not begun, and all of whose upstreams have ended."""
        self.ended = 0
        """How many steps have ended; elements do not count."""
        self.failed: dict[str, StepRecord] = {}
        """The steps that have failed."""
        self.awaiting: dict[StepKey, None] = {}
        """The steps and elements that somebody else is to end."""
        self.lists: dict[str, Elements] = {}
        self.sequence = 0
        """The last place in the order of completion that is taken."""
        self._items: dict[str, list[Any]] = {}
        for record in records:
            self.put(record)

    def put(self, record: StepRecord) -> None:
        """Note how a step or an element is now."""
        key = record.key
        before = self.records.get(key)
        self.records[key] = record
        self.sequence = max(self.sequence, record.sequence)
        if record.awaits_others:
            self.awaiting[key] = None
        else:
            self.awaiting.pop(key, None)
        if record.index is not None:
            self.lists.setdefault(record.step_id, Elements()).put(before, record, record.index)
        elif not record.has_ended:
            self.open[record.step_id] = None
            self.next.pop(record.step_id, None)
        elif before is None or not before.has_ended:
            self._note_end(record)

    def items(self, step: Step, facts: Mapping[str, Any]) -> list[Any]:
        """The elements of a list. They never change: what they are made of is given, or has ended."""
        if step.id not in self._items:
            self._items[step.id] = elements(step, facts)
        return self._items[step.id]

    def _note_end(self, record: StepRecord) -> None:
        step_id = record.step_id
        self.open.pop(step_id, None)
        self.next.pop(step_id, None)
        self.ended += 1
        if record.phase is StepPhase.FAILED:
            self.failed[step_id] = record
        for later in self.definition.dependents(step_id):
            if (later.id, None) not in self.records and all(map(self._has_ended, later.depends_on)):
                self.next[later.id] = None

    def _has_ended(self, step_id: str) -> bool:
        record = self.records.get((step_id, None))
        return record is not None and record.has_ended
