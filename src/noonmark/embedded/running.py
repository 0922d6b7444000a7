"""Running now: one occurrence by hand, and its result."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from noonmark.clocks import SystemClock
from noonmark.core.documents import Reader
from noonmark.core.errors import Conflict, InvalidSchedule, NotFound, OverlapConflict, Problem, RunFailed, refusal
from noonmark.core.instants import to_text
from noonmark.core.json_values import printable
from noonmark.core.lifecycle import FINAL, Phase
from noonmark.core.policies.overlap import read_overlap
from noonmark.core.policies.overrides import Overrides
from noonmark.core.reasons import Reason
from noonmark.embedded.settings import LOOK_EVERY
from noonmark.operations import schedule_edits
from noonmark.wiring import fresh_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.overlap import OverlapPolicy
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule
    from noonmark.embedded.engine import AnyEngine
    from noonmark.ports.runtime import Runtime
    from noonmark.ports.target import Assignment


MAX_SAID = 300
"""Characters of an answer that an error repeats."""
LAST_NEWS = 5.0
"""Seconds at most between the end of a run in the store and the news of it."""


class _Ending:
    """How an occurrence ended, for the thread that waits for it."""

    def __init__(self) -> None:
        self.has_come = threading.Event()
        self.assignment: Assignment | None = None

    def __call__(self, assignment: Assignment | None) -> None:
        self.assignment = assignment
        self.has_come.set()


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller asked for, once it was found to be sound."""

    schedule: Schedule
    payload: Any
    overlap: OverlapPolicy | None


def read_request(schedule: Schedule, payload: Any, overlap: str | Mapping[str, Any] | None) -> Request:  # noqa: ANN401 - JSON
    """Judge the payload and the overlap policy of a call."""
    return Request(schedule, checked_payload(payload), read_override(overlap))


def run_now(
    runtime: Runtime, engine: AnyEngine | None, new_engine: Callable[[], AnyEngine], asked: Request, *, wait: bool
) -> Any:  # noqa: ANN401 - whatever the function returns
    """Add an occurrence and see it through; without an engine that runs, one is made for it alone."""
    if wait and engine is not None and engine.is_own_thread:
        raise Conflict("an async function cannot wait here, on the loop that runs it: use wait=False, or a thread")
    if wait and engine is None:
        _check_function(runtime, asked.schedule)
    now = runtime.store.clock()
    overrides = None if asked.overlap is None else Overrides(overlap_policy=asked.overlap)
    one = schedule_edits.run_now(
        asked.schedule, key=fresh_id(runtime.clock), payload=asked.payload, now=now, overrides=overrides
    )
    if wait:
        return _see_through(runtime, engine, new_engine, one)
    _add(runtime, one)
    if engine is not None:
        engine.wake()
    return one.id


def _see_through(
    runtime: Runtime, engine: AnyEngine | None, new_engine: Callable[[], AnyEngine], one: Occurrence
) -> Any:  # noqa: ANN401 - whatever the function returns
    with an_engine(engine, new_engine) as used:
        node, ending = used.loop.driver.node, _Ending()
        node.on_end[one.id] = ending
        try:
            _add(runtime, one)
            return _wait(runtime, used, one, ending)
        finally:
            node.on_end.pop(one.id, None)


@contextmanager
def an_engine(engine: AnyEngine | None, new_engine: Callable[[], AnyEngine]) -> Iterator[AnyEngine]:
    """The engine that runs, or without one an engine for a while, which begins what it is asked to fetch."""
    if engine is not None:
        yield engine
        return
    its_own = new_engine()
    try:
        yield its_own
    finally:
        # Whatever still runs there is of no use to the caller, who was interrupted.
        its_own.stop(0)
        its_own.wait()


def _check_function(runtime: Runtime, schedule: Schedule) -> None:
    """Nobody but this process would run it, and that needs the function."""
    route = schedule.declaration.target.route
    runtime.target.adopt([route])
    if route not in runtime.target.routes():
        raise Conflict(
            f"{route} cannot be run here: this process has no such function, and cannot import it; register it with "
            "register_function, or start() and let another process run it"
        )


def read_override(overlap: str | Mapping[str, Any] | None) -> OverlapPolicy | None:
    """The overlap policy for one call, as a name or a document."""
    if overlap is None:
        return None
    problems: list[Problem] = []
    reader = Reader({"overlap": overlap}, path="", code=InvalidSchedule.code, problems=problems)
    policy = read_overlap(reader, "overlap", trigger_type="")
    if problems:
        raise refusal(problems)
    return policy


def checked_payload(payload: Any) -> Any:  # noqa: ANN401 - JSON
    """A payload that can be kept: JSON, within its limits."""
    problems: list[Problem] = []
    kept = Reader({"payload": payload}, path="", code=InvalidSchedule.code, problems=problems).json("payload")
    if problems:
        raise refusal(problems)
    return kept


def _add(runtime: Runtime, one: Occurrence) -> None:
    if not runtime.store.add([one])[0]:
        raise NotFound("the schedule was deleted", field="job_id")


def _wait(runtime: Runtime, engine: AnyEngine, one: Occurrence, ending: _Ending) -> Any:  # noqa: ANN401 - the result
    """Wait for its end, which may come about in another process."""
    stored: Occurrence | None = one
    while stored is not None and stored.phase not in FINAL:
        if stored.phase is Phase.PENDING and not engine.loop.is_stopping:
            _check_time_passes(runtime, stored)
            engine.call(lambda loop: loop.fetch(one.id))
        was_alive = engine.is_alive
        ending.has_come.wait(LOOK_EVERY)
        stored = runtime.store.occurrence(one.id)
        if not was_alive and stored is not None and stored.phase not in FINAL:
            raise Conflict("the scheduler was stopped before the run had ended; it runs again after the next start")
    if stored is None:
        raise NotFound("the occurrence was removed with its schedule", field="job_id")
    if ending.assignment is None and ran_here(runtime, engine, stored):
        ending.has_come.wait(LAST_NEWS)  # it is on its way from the store to the loop
    return answer(runtime, stored, ending.assignment)


def ran_here(runtime: Runtime, engine: AnyEngine, stored: Occurrence) -> bool:
    """Whether this engine ran it, so that its result and its error are at hand."""
    last = _last_run(runtime, stored)
    return last is not None and last.node == engine.loop.driver.node.id and engine.is_alive


def _check_time_passes(runtime: Runtime, stored: Occurrence) -> None:
    """Refuse to wait for a time that a clock which stands still does not reach."""
    if not isinstance(runtime.clock, SystemClock) and stored.due > runtime.clock.micros():
        raise Conflict(
            f"it is to be tried again at {to_text(stored.due)}, and the clock stands still: let ManualDriver run it"
        )


def answer(runtime: Runtime, stored: Occurrence, mine: Assignment | None) -> Any:  # noqa: ANN401 - the result
    """What became of an occurrence that has ended: its result, or its error is raised."""
    if stored.phase is not Phase.COMPLETED:
        _raise(runtime, stored, None if mine is None else mine.error)
    if mine is not None:
        return mine.result
    last = _last_run(runtime, stored)
    return None if last is None else last.result


def _last_run(runtime: Runtime, stored: Occurrence) -> Run | None:
    runs = runtime.store.occurrence_runs(stored.id)
    return next((run for run in runs if run.outcome is not None), None)


def _raise(runtime: Runtime, stored: Occurrence, error: BaseException | None) -> NoReturn:
    if error is not None and stored.phase is Phase.FAILED:
        raise error
    if stored.reason is Reason.OVERLAP:
        raise OverlapConflict("another occurrence of the schedule is in flight, and its overlap policy is skip")
    if stored.phase is Phase.TIMED_OUT:
        raise TimeoutError("the run took longer than its timeout")
    why = "" if stored.reason is None else f": {stored.reason.sentence}"
    last = _last_run(runtime, stored)
    # The last line of a traceback says what was raised, and what to do about it.
    what = "" if last is None or not last.error else last.error.rstrip().splitlines()[-1]
    # What nobody could say anything of has the words of its reason.
    more = f" ({what})" if what and what.lower() not in why.lower() else ""
    result = None if last is None else last.result
    raise RunFailed(f"the run ended as {stored.phase}{why}{more}{_said(result)}", result=result)


def _said(result: object) -> str:
    """The beginning of what the other side answered to a request: it often says what is wrong."""
    if not isinstance(result, dict) or not result.get("body"):
        return ""
    body = result["body"]
    text = printable(body if isinstance(body, str) else json.dumps(body, ensure_ascii=False))
    return f"; the answer was: {text if len(text) <= MAX_SAID else f'{text[:MAX_SAID]}…'}"
