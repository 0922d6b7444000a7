"""The ledger at work beside a history, verb by verb, as a node calls them."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from noonmark import OnceTrigger, Scheduler
from noonmark.core.admission import admit
from noonmark.core.instants import SECOND, from_micros
from noonmark.core.run import Outcome
from noonmark.core.settlement import Delivered, settle
from noonmark.ports.records import Admitted

if TYPE_CHECKING:
    from collections.abc import Callable

    from noonmark.core.admission import Claim
    from noonmark.core.instants import Micros
    from noonmark.core.occurrence import Occurrence

T = TypeVar("T")

NODE, RESULT = "worker-3.example-4711-0a1b2c", {"rows": 1024}
"""As in the history: a shorter row would be put where one page after another has a little room left at its end."""
LEASE = 15 * SECOND
PAGE = 100
EVERYTHING = 10**9


class Work:
    """A scheduler on a database with a history, and how many seconds its store takes for what."""

    def __init__(self, url: str, batch: int) -> None:
        """So many occurrences to a call."""
        self._scheduler = Scheduler(url)
        self._store = self._scheduler._store
        self.batch = batch

    def close(self) -> None:
        """Hang up."""
        self._scheduler.close()

    def cycle(self) -> dict[str, float]:
        """A burst, claimed, started and settled."""
        now = self._add_due()
        claimed, claims = _timed(
            lambda: self._store.claim(NODE, ["function:work"], now=now, until=now, limit=self.batch, lease=LEASE)
        )
        assert len(claims) == self.batch, f"{len(claims)} of {self.batch} were claimed"
        started, running = self._start(claims, now)
        return {"claim": claimed, "start": started, "settle": self._settle(claims, running)}

    def read(self, uids: list[str], fullest: str) -> dict[str, float]:
        """The newest page of the history of some schedules, the middle of them, and of the fullest."""
        occurrences, runs = self._store.occurrences, self._store.runs
        return {
            "occurrences": median(_timed(lambda uid=uid: occurrences(uid, PAGE))[0] for uid in uids),
            "runs": median(_timed(lambda uid=uid: runs(uid, PAGE))[0] for uid in uids),
            "fullest": _timed(lambda: runs(fullest, PAGE))[0],
        }

    def prune(self, *, before: Micros = 0, keep: int = EVERYTHING) -> float:
        """Forget a batch."""
        took, count = _timed(lambda: self._store.prune(before=before, keep=keep, limit=self.batch))
        assert count == self.batch, f"{count} of {self.batch} were forgotten"
        return took

    def prune_nothing(self) -> float:
        """Find that nothing is too old or too much."""
        return _timed(lambda: self._store.prune(before=0, keep=EVERYTHING, limit=self.batch))[0]

    def cut(self, keep: int) -> None:
        """Forget all that is too much."""
        while self._store.prune(before=0, keep=keep, limit=self.batch):
            pass

    def _add_due(self) -> Micros:
        """Keep as many schedules as a batch has, all of them due at one instant; a moment after it."""
        due = self._store.clock() + SECOND
        one = {"func": _work, "function_name": "work", "trigger": OnceTrigger(from_micros(due))}
        self._scheduler.create_many(one for _ in range(self.batch))
        while (now := self._store.clock()) < due:
            time.sleep(0.01)
        return now

    def _start(self, claims: list[Claim], now: Micros) -> tuple[float, list[Occurrence]]:
        decisions = [admit(claim, now=now, lease=LEASE) for claim in claims]
        took, answers = _timed(lambda: self._store.admit(decisions, now=now, lease=LEASE))
        running = [one.occurrence for one in answers if isinstance(one, Admitted)]
        assert len(running) == self.batch, f"{len(running)} of {self.batch} have started"
        return took, running

    def _settle(self, claims: list[Claim], running: list[Occurrence]) -> float:
        ends = []
        for claim, one in zip(claims, running, strict=True):
            assert one.started is not None
            ended = one.started + 40_000
            delivered = Delivered(outcome=Outcome.COMPLETED, started=one.started, ended=ended, result=RESULT)
            ends.append(settle(one, claim.schedule, delivered, node=NODE))
        took, written = _timed(lambda: self._store.settle(ends))
        assert all(written), "something has not ended"
        return took


def _work() -> None:
    """What is due. The verbs are called by hand, so it never runs."""


def _timed(call: Callable[[], T]) -> tuple[float, T]:
    started = time.perf_counter()
    answer = call()
    return time.perf_counter() - started, answer
