"""Run a schedule now: one manual occurrence, and its result."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from noonmark.clocks import SystemClock
from noonmark.core.documents import Reader
from noonmark.core.errors import Conflict, InvalidSchedule, NotFound, OverlapConflict, Problem, RunFailed, refusal
from noonmark.core.frozen import frozen
from noonmark.core.instants import to_text
from noonmark.core.json_values import printable
from noonmark.core.lifecycle import FINAL, Phase
from noonmark.core.occurrence import Overrides
from noonmark.core.policies.options import as_document
from noonmark.core.policies.overlap import read_overlap
from noonmark.core.reasons import Reason, reason_sentence
from noonmark.core.targets import AGENT_ROUTES, BundleTarget
from noonmark.core.targets.session import SessionTarget
from noonmark.embedded.arguments import POLL_SECONDS
from noonmark.operations import schedule_edits
from noonmark.wiring import fresh_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from noonmark.core.occurrence import Occurrence
    from noonmark.core.policies.options import Overlap, OverlapDocument, OverlapName
    from noonmark.core.policies.overlap import OverlapPolicy
    from noonmark.core.run import Run
    from noonmark.core.schedule import Schedule
    from noonmark.embedded.runners import Runner
    from noonmark.ports.runtime import Runtime
    from noonmark.ports.target import Assignment


MAX_BODY = 300
"""Characters of an answer that an error repeats."""
TRACEBACK = "Traceback (most recent call last):"
REPORT_SECONDS = 5.0
"""How long a report of a run takes at most from the store to the waiting thread."""


class Ending:
    """How an occurrence ended, for the thread that waits for it."""

    def __init__(self) -> None:
        self.has_come = threading.Event()
        self.assignment: Assignment | None = None

    def __call__(self, assignment: Assignment | None) -> None:
        """Take the run that ended."""
        self.assignment = assignment
        self.has_come.set()


@frozen
class Request:
    """A valid request to run a schedule."""

    schedule: Schedule
    payload: Any
    overlap: OverlapPolicy | None


def read_request(schedule: Schedule, payload: Any, overlap: Overlap | OverlapName | OverlapDocument | None) -> Request:
    """Judge the payload and the overlap policy of a call."""
    return Request(schedule, _payload(payload), _overlap(overlap))


def run_now(
    runtime: Runtime, runner: Runner | None, new_runner: Callable[[], Runner], request: Request, *, wait: bool
) -> Any:
    """Add an occurrence and wait for its end; without a runner, one is made for this call."""
    if wait and runner is None:
        _check_function(runtime, request.schedule)
    now = runtime.store.clock()
    overrides = None if request.overlap is None else Overrides(overlap_policy=request.overlap)
    occurrence = schedule_edits.run_now(
        request.schedule, key=fresh_id(runtime.clock), payload=request.payload, now=now, overrides=overrides
    )

    def add(expect: Callable[[str], None]) -> Occurrence:
        expect(occurrence.id)
        _add(runtime, occurrence)
        return occurrence

    if wait:
        return add_and_wait(runtime, runner, new_runner, add)
    _add(runtime, occurrence)
    if runner is not None:
        runner.wake()
    return occurrence.id


def add_and_wait(
    runtime: Runtime,
    runner: Runner | None,
    new_runner: Callable[[], Runner],
    add: Callable[[Callable[[str], None]], Occurrence],
) -> Any:
    """Wait for the end of an occurrence; `add` calls its argument with the id before it stores the occurrence."""
    check_may_wait(runner)
    with any_runner(runner, new_runner) as used:
        on_end, ending, expected = used.loop.driver.node.on_end, Ending(), list[str]()

        def expect(occurrence_id: str) -> None:
            expected.append(occurrence_id)
            on_end[occurrence_id] = ending

        try:
            occurrence = add(expect)
            if occurrence.phase in FINAL:  # it was added before, under the same key
                return result_of(runtime, occurrence, None)
            return _wait(runtime, used, occurrence, ending)
        finally:
            for occurrence_id in expected:
                on_end.pop(occurrence_id, None)


def check_may_wait(runner: Runner | None) -> None:
    """Refuse to wait on the event loop that would have to run what is waited for."""
    if runner is not None and runner.is_own_thread:
        raise Conflict("an async function cannot wait here, on the loop that runs it: use wait=False, or a thread")


def served_routes(runtime: Runtime) -> set[str]:
    """The routes that this process or a live node on the store serves."""
    return {*runtime.target.routes(), *(r for node in runtime.store.nodes() if node.is_alive for r in node.routes)}


def check_sessions_served(runtime: Runtime) -> None:
    """Refuse to wait for an answer that no process gives."""
    if SessionTarget.route not in served_routes(runtime):
        raise Conflict(
            'no agent answers here: create the scheduler with agents="embedded", start another process that has agents,'
            " or use wait=False"
        )


@contextmanager
def run_in_background(runtime: Runtime, new_runner: Callable[[], Runner], occurrence_id: str) -> Iterator[None]:
    """Run one occurrence in this process, and nothing else."""
    ended = threading.Event()
    with any_runner(None, new_runner) as runner:

        def keep_fetching() -> None:
            while not ended.wait(POLL_SECONDS):
                stored = runtime.store.occurrence(occurrence_id)
                if stored is None or stored.phase in FINAL:
                    return
                if stored.phase is Phase.PENDING:
                    runner.call(lambda loop: loop.fetch(occurrence_id))

        thread = threading.Thread(target=keep_fetching, name="noonmark-fetch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


@contextmanager
def any_runner(runner: Runner | None, new_runner: Callable[[], Runner]) -> Iterator[Runner]:
    """The runner that is given, or else a new one that only starts what it is asked to fetch."""
    if runner is not None:
        yield runner
        return
    new = new_runner()
    try:
        yield new
    finally:
        # If something still runs there, the caller was interrupted and does not need it.
        new.stop(0)
        new.wait()


def _check_function(runtime: Runtime, schedule: Schedule) -> None:
    """Refuse what this process cannot run: no other node is asked to."""
    route = schedule.declaration.target.route
    runtime.target.adopt([route])
    if route not in runtime.target.routes():
        raise not_here(route)


def not_here(route: str) -> Conflict:
    """The error for a target that this process cannot run."""
    if route in AGENT_ROUTES:
        why = 'this scheduler has no agents; create it with agents="embedded"'
    elif route.partition(":")[0] == BundleTarget.kind:
        why = "this scheduler runs no bundles; create it with allow_bundles=True"
    else:
        why = "this process has no such function and cannot import it; register it with register_function"
    return Conflict(f"{route} cannot be run here: {why}, or start() and let another process run it")


def _overlap(overlap: Overlap | OverlapName | OverlapDocument | None) -> OverlapPolicy | None:
    if overlap is None:
        return None
    problems: list[Problem] = []
    reader = Reader(
        {"overlap": as_document(overlap, option="overlap")}, path="", code=InvalidSchedule.code, problems=problems
    )
    policy = read_overlap(reader, "overlap", trigger_type="")
    if problems:
        raise refusal(problems)
    return policy


def _payload(payload: Any) -> Any:
    """A payload that can be stored: JSON, within the limits."""
    problems: list[Problem] = []
    value = Reader({"payload": payload}, path="", code=InvalidSchedule.code, problems=problems).json("payload")
    if problems:
        raise refusal(problems)
    return value


def _add(runtime: Runtime, occurrence: Occurrence) -> None:
    if not runtime.store.add([occurrence])[0]:
        raise NotFound("the schedule was deleted", field="job_id")


def _wait(runtime: Runtime, runner: Runner, occurrence: Occurrence, ending: Ending) -> Any:
    return result_of(runtime, wait_for_end(runtime, runner, occurrence, ending), ending.assignment)


def wait_for_end(
    runtime: Runtime,
    runner: Runner,
    occurrence: Occurrence,
    ending: Ending,
    go_on: Callable[[], None] | None = None,
) -> Occurrence:
    """Wait for the end of an occurrence, here or in another process; `go_on` is called from time to time."""
    stored: Occurrence | None = occurrence
    while stored is not None and stored.phase not in FINAL:
        if stored.phase is Phase.PENDING and not runner.loop.is_stopping:
            _check_time_passes(runtime, stored)
            runner.call(lambda loop: loop.fetch(occurrence.id))
        if go_on is not None and not runner.loop.is_stopping:
            go_on()
        was_alive = runner.is_alive
        ending.has_come.wait(POLL_SECONDS)
        stored = runtime.store.occurrence(occurrence.id)
        if not was_alive and stored is not None and stored.phase not in FINAL:
            raise Conflict("the scheduler was stopped before the run had ended; it runs again after the next start")
    if stored is None:
        raise NotFound("the occurrence was removed with its schedule", field="job_id")
    if ending.assignment is None and ran_here(runtime, runner, stored):
        ending.has_come.wait(REPORT_SECONDS)  # the report is on its way
    return stored


def ran_here(runtime: Runtime, runner: Runner, stored: Occurrence) -> bool:
    """Whether this runner ran it, so that its result and its error are in this process."""
    last = _last_run(runtime, stored)
    return last is not None and last.node == runner.loop.driver.node.id and runner.is_alive


def _check_time_passes(runtime: Runtime, stored: Occurrence) -> None:
    """Refuse to wait for a time that a clock which stands still does not reach."""
    if not isinstance(runtime.clock, SystemClock) and stored.due > runtime.clock.micros():
        raise Conflict(
            f"it is to be tried again at {to_text(stored.due)}, and the clock stands still: let ManualDriver run it"
        )


def result_of(runtime: Runtime, stored: Occurrence, assignment: Assignment | None) -> Any:
    """The result of an occurrence that has ended, or its error raised."""
    if stored.phase is not Phase.COMPLETED:
        _raise(runtime, stored, None if assignment is None else assignment.error)
    if assignment is not None:
        return assignment.result
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
    reason = "" if stored.reason is None else f": {reason_sentence(stored.reason, stored.detail)}"
    last = _last_run(runtime, stored)
    error_line = "" if last is None else exception_line(last.error)
    # An error that only repeats the reason is left out.
    detail = f" ({error_line})" if error_line and error_line.lower() not in reason.lower() else ""
    result = None if last is None else last.result
    raise RunFailed(f"the run ended as {stored.phase}{reason}{detail}{_answer(result)}", result=result)


def exception_line(error: str | None) -> str:
    """The exception, which is the last line of a traceback, and what is said before the traceback."""
    before, traceback, rest = (error or "").strip().partition(TRACEBACK)
    return before + rest.rpartition("\n")[2] if traceback else before.rpartition("\n")[2]


def _answer(result: object) -> str:
    """The beginning of the answer to a request, which often has the cause."""
    if not isinstance(result, dict) or not result.get("body"):
        return ""
    body = result["body"]
    text = printable(body if isinstance(body, str) else json.dumps(body, ensure_ascii=False))
    return f"; the answer was: {text if len(text) <= MAX_BODY else f'{text[:MAX_BODY]}…'}"
