"""Pauses, edits and deletions against work in flight: once the call has returned, nothing of the old rule starts."""

from collections import Counter

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import FINAL, Phase
from noonmark.core.triggers import IntervalTrigger
from noonmark.ports.runtime import Timing
from tests.processes import work
from tests.processes.fleet import CLOCK, STORES, Chance
from tests.soak import SCALE

STARTED = {phase for phase in Phase if phase not in (Phase.PENDING, Phase.CLAIMED, Phase.SUPERSEDED)}
ALL = {"type": "catch_up_all", "limit": 1_000}


class Changed:
    """One schedule, the changes that were made to it, and what had been committed to start when each returned."""

    def __init__(self, fleet, name):
        self.fleet, self.name, self.tag = fleet, name, 0
        self.id = self.declare()
        self.uid = fleet.kept(self.id).schedule.uid
        self.is_paused = False
        self.changes, self.manual = [], set()

    def declare(self):
        """Each declaration is a revision of its own, and each run tells which it belongs to."""
        self.tag += 1
        return self.fleet.scheduler.schedule(
            work.record, name=self.name, trigger=IntervalTrigger(0.1), args=[0, self.tag], overlap="allow", misfire=ALL
        )

    def change(self, what):
        """Make a change; when it has returned, remember what had been committed to start by then."""
        old, asked = self.tag, CLOCK.micros()
        if what == "edit":
            self.manual.add(self.fleet.scheduler.run_now(self.id, wait=False))
            self.declare()
        else:
            getattr(self.fleet.scheduler, what)(self.id)
        acknowledged = CLOCK.micros()
        rows = self.fleet.scheduler._store.occurrences(self.uid)
        committed = {row.id for row in rows if row.phase in STARTED}
        self.is_paused = what == "pause"
        self.changes.append((what, old, asked, acknowledged, committed))

    def late_starts(self):
        """Runs of what was no longer in force, which had not been committed to start when the change returned."""
        return [
            line
            for n, (what, old, _, acknowledged, committed) in enumerate(self.changes)
            for line in self.fleet.journal.begins(self.id)
            if acknowledged < line["at"] < self._holds_until(n)
            and self._is_out_of_force(line, what, old)
            and (line["occurrence"] not in committed or line["due"] > acknowledged + Timing().early)
        ]

    def _holds_until(self, n):
        """When the next change was asked for, which may end a pause; what was edited or deleted is gone for good."""
        later = [asked for _, _, asked, _, _ in self.changes[n + 1 :]]
        return later[0] if self.changes[n][0] == "pause" else CLOCK.micros()

    def _is_out_of_force(self, line, what, old):
        match what:
            case "edit":
                return line["tag"] <= old
            case "pause":  # what was asked for by hand runs all the same
                return line["occurrence"] not in self.manual
            case "delete":
                return True
        return False


@pytest.mark.parametrize("fleet", STORES, indirect=True)
def test_nothing_of_an_old_rule_starts_after_the_change_was_acknowledged(fleet, figure):
    for _ in range(2):
        fleet.node(15.0)
    changed = [Changed(fleet, f"changed-{n}") for n in range(4)]
    fleet.until(lambda: all(fleet.journal.begins(one.id) for one in changed))
    chance = Chance("changes")
    for _ in range(25 * SCALE):
        chance.pause(0.02, 0.15)
        one = chance.of(changed)
        one.change("resume" if one.is_paused else chance.of(["edit", "edit", "pause"]))
    for one in changed:
        one.change("delete")
    fleet.until(lambda: FINAL.issuperset(phase for _, _, _, phase, *_ in fleet.occurrences()))
    quiet = CLOCK.micros() + SECOND
    fleet.until(lambda: CLOCK.micros() > quiet)
    counts = Counter(what for one in changed for what, *_ in one.changes)
    late = [line for one in changed for line in one.late_starts()]
    begins = [line for one in changed for line in fleet.journal.begins(one.id)]
    repeated = len(begins) - len({line["occurrence"] for line in begins})
    figure(
        f"changes in flight: {dict(counts)}, {len(begins)} runs, begun under a rule no longer in force {len(late)}, "
        f"repeated {repeated}"
    )
    assert not late
    assert repeated == 0
    assert counts["edit"] > 0
    assert counts["pause"] > 0
