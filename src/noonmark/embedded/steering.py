"""What is done with a job that is there: it is stopped, held, let go on, or run once more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from noonmark.core.errors import NotFound
from noonmark.embedded.running import read_request, run_now
from noonmark.operations import schedule_edits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.embedded.engines import Engines
    from noonmark.ports.records import StoredSchedule
    from noonmark.ports.runtime import Runtime
    from noonmark.ports.store import Store


class _Steers(Protocol):
    """What it needs of a scheduler."""

    _store: Store
    _runtime: Runtime
    _engines: Engines

    def _find(self, job_id: str, *, deleted: bool = False) -> StoredSchedule: ...

    def _wake(self) -> None: ...


class Steering:
    """Each takes the id of a job, which `schedule` has returned."""

    def cancel(self: _Steers, job_id: str) -> bool:
        """Start nothing of it any more, and ask what runs to stop; False when there is no such job, or it has ended."""
        try:
            asked = schedule_edits.cancel(self._store, self._find(job_id))
        except NotFound:
            return False
        self._wake()
        if asked:
            self._engines.attend()
        return True

    def pause(self: _Steers, job_id: str) -> None:
        """Start nothing of it until it is resumed; what that swallows is recorded."""
        schedule_edits.pause(self._store, self._find(job_id).schedule.uid)
        self._wake()  # others may have waited for it

    def resume(self: _Steers, job_id: str) -> None:
        """Go on from now."""
        schedule_edits.resume(self._store, self._find(job_id).schedule.uid, lookahead=self._runtime.timing.lookahead)
        self._wake()

    def delete(self: _Steers, job_id: str) -> None:
        """Start nothing of it any more; the history stays in the store."""
        schedule_edits.delete(self._store, self._find(job_id).schedule.uid)
        self._wake()

    def run_now(
        self: _Steers,
        job_id: str,
        payload: Any = None,  # noqa: ANN401 - JSON
        wait: bool = True,  # noqa: FBT001, FBT002 - as in the field
        overlap: str | Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the function returns
        """Run it once more, now, and return its result, or raise what it raised; its next fire stays where it is.

        A program that fails raises `subprocess.CalledProcessError`, a timeout `TimeoutError`, and everything else that
        does not complete `RunFailed`: its message has the answer to a request, and its `result` all that was kept.
        With `wait=False`, return the id of the occurrence at once. It obeys the overlap policy, unless the call sets
        another one; when that forbids it, OverlapConflict is raised. Works without `start`.
        """
        asked = read_request(self._find(job_id).schedule, payload, overlap)
        return run_now(self._runtime, self._engines.running, self._engines.new, asked, wait=wait)
