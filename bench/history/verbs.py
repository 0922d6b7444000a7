"""The ledger at work beside what is stored, verb by verb, as a node calls them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from noonmark import OnceTrigger, Scheduler
from noonmark.core.admission import admit
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.run import Outcome
from noonmark.core.settlement import Delivered, settle
from noonmark.operations.service import LOCAL
from noonmark.ports.records import Admitted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noonmark.core.admission import Claim
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.settlement import Settlement
    from noonmark.ports.store import Store

T = TypeVar("T")

NODE, RESULT = "worker-3.example-4711-0a1b2c", {"rows": 1024}
ROUTES = ["function:work"]
LEASE = 15 * SECOND
PAGE = 100
SINGLES = 20
"""How many claims of one occurrence are timed."""
EVERYTHING = 10**9


class Work:
    """A scheduler beside what is stored, and how many seconds its store takes for what."""

    def __init__(self, url: str, batch: int) -> None:
        """Open the store; each call gets `batch` occurrences."""
        self._scheduler = Scheduler(url)
        self._store = self._scheduler._store
        self.batch = batch

    def close(self) -> None:
        """Close the store."""
        self._scheduler.close()

    def cycle(self) -> dict[str, float]:
        """A burst: created, claimed, started and settled, after claims of one occurrence each."""
        created, now = self._add_due(self.batch + SINGLES)
        claims: list[Claim] = []
        ones = 0.0
        for _ in range(SINGLES):
            took, found = _timed(lambda: self._claim(now, 1))
            ones += took / SINGLES
            claims += found
        claimed, found = _timed(lambda: self._claim(now, self.batch))
        assert len(found) == self.batch, f"{len(found)} of {self.batch} were claimed"
        started, settled = work_off(self._store, found, now)
        work_off(self._store, claims, now)
        return {
            "create": created,
            "claim one": ones,
            "claim": claimed,
            "start": started,
            "settle": settled,
            "burst": claimed + started + settled,
        }

    def read(self, uid: str, largest: str, middle: str) -> dict[str, float]:
        """A page of the schedules, and the newest page of the history of one of them, and of the largest."""
        store, tenant = self._store, LOCAL.owner.tenant
        reads: dict[str, Callable[[], Sequence[object]]] = {
            "page of schedules": lambda: store.schedules(tenant, limit=PAGE),
            "the same from the middle": lambda: store.schedules(tenant, limit=PAGE, after=middle),
            "page of occurrences": lambda: store.occurrences(uid, PAGE),
            "page of runs": lambda: store.runs(uid, PAGE),
            "the same of the largest": lambda: store.runs(largest, PAGE),
        }
        found = {}
        for what, read in reads.items():
            found[what], page = _timed(read)
            assert len(page) == PAGE, f"{what} has {len(page)}"
        return found

    def prune(self, *, before: Micros = 0, keep: int = EVERYTHING) -> float:
        """Prune a batch; returns the seconds."""
        took, count = _timed(lambda: self._store.prune(before=before, keep=keep, limit=self.batch))
        assert count == self.batch, f"{count} of {self.batch} were pruned"
        return took

    def prune_nothing(self) -> float:
        """Find that nothing is too old or too much."""
        return _timed(lambda: self._store.prune(before=0, keep=EVERYTHING, limit=self.batch))[0]

    def cut(self, keep: int) -> None:
        """Prune each history to `keep` ends."""
        while self._store.prune(before=0, keep=keep, limit=self.batch):
            pass

    def _claim(self, now: Micros, limit: int) -> list[Claim]:
        return self._store.claim(NODE, ROUTES, now=now, until=now, limit=limit, lease=LEASE)

    def _add_due(self, count: int) -> tuple[float, Micros]:
        """Store schedules that are due at one instant; returns how long it took, and a time after that instant."""
        due = self._store.clock() + SECOND
        one = {"func": _work, "function_name": "work", "trigger": OnceTrigger(from_micros(due))}
        took, _ = _timed(lambda: self._scheduler.create_many(one for _ in range(count)))
        while (now := self._store.clock()) < due:
            time.sleep(0.01)
        return took, now


def work_off(store: Store, claims: list[Claim], now: Micros) -> tuple[float, float]:
    """Start what was claimed, and settle it; how long either took."""
    decisions = [admit(claim, now=now, lease=LEASE) for claim in claims]
    started, answers = _timed(lambda: store.admit(decisions, now=now, lease=LEASE))
    running = [answer.occurrence for answer in answers if isinstance(answer, Admitted)]
    assert len(running) == len(claims), f"{len(running)} of {len(claims)} have started"
    ends = [_end(claim, occurrence) for claim, occurrence in zip(claims, running, strict=True)]
    settled, written = _timed(lambda: store.settle(ends))
    assert all(written), "something has not ended"
    return started, settled


def _end(claim: Claim, occurrence: Occurrence) -> Settlement:
    assert occurrence.started is not None
    ended = occurrence.started + 40_000
    delivered = Delivered(outcome=Outcome.COMPLETED, started=occurrence.started, ended=ended, result=RESULT)
    return settle(occurrence, claim.schedule, delivered, node=NODE)


def _work() -> None:
    """What is due. The verbs are called by hand, so it never runs."""


def _timed(call: Callable[[], T]) -> tuple[float, T]:
    started = time.perf_counter()
    answer = call()
    return time.perf_counter() - started, answer
