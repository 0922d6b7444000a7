"""What a scheduler tells: its jobs, their times and what became of them. Nothing here plans or changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from noonmark.core.triggers.trigger import trigger_argument
from noonmark.embedded import looking
from noonmark.embedded.desk import OWNER
from noonmark.embedded.jobs import read_status
from noonmark.embedded.references import check_name
from noonmark.embedded.settings import limit_argument

if TYPE_CHECKING:
    from datetime import datetime

    from noonmark.core.event import Event
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.run import Run
    from noonmark.core.triggers import EventTrigger, Trigger
    from noonmark.embedded.jobs import Job, JobStatus
    from noonmark.ports.records import NodeRecord, StoredSchedule
    from noonmark.ports.store import Store


class _Looks(Protocol):
    """What it needs of a scheduler."""

    _store: Store

    def _check_open(self) -> None: ...

    def _find(self, job_id: str, *, deleted: bool = False) -> StoredSchedule: ...


class Reading:
    """They change nothing, and plan nothing."""

    def get_job(self: _Looks, job_id: str) -> Job | None:
        """A job with its status and its last result; None when there never was one of that id."""
        self._check_open()
        check_name("job_id", job_id)
        kept = self._store.find(OWNER.tenant, job_id, deleted=True)
        return None if kept is None else looking.job(self._store, kept)

    def list_jobs(self: _Looks, status: JobStatus | str | None = None) -> list[Job]:
        """All jobs, oldest first, or those with a status; cancelled and deleted ones only when they are asked for."""
        self._check_open()
        return looking.jobs(self._store, OWNER.tenant, read_status(status))

    def preview(self: _Looks, job: str | Trigger, count: int = 5, after: datetime | None = None) -> list[datetime]:
        """The next times of a job or a trigger, after an instant or from now on, what is due first; it plans none."""
        self._check_open()
        return looking.preview(self._store, self._find(job) if isinstance(job, str) else job, count, after)

    def explain(self: _Looks, job_id: str, at: datetime | str | None = None) -> dict[str, Any]:
        """What a job did, does or will do at an instant, and why; without one, how its last occurrence fared.

        Gives `summary`, a sentence for people, and `steps`, each rule with its `decision` and the `facts` behind it;
        and the `occurrence_id` and the `phase` of what it speaks of, None where no record is kept of one.
        """
        return looking.explain(self._store, self._find(job_id, deleted=True), at)

    def match_events(self: _Looks, wanted: str | EventTrigger, limit: int = 100) -> dict[str, Any]:
        """Which of the last events of its types would set a job off, or match a trigger, and why not the others.

        Gives `checked`, `matched` and the `events`, the newest first, each with `matches` and `why`; sets nothing off.
        """
        from noonmark.operations.events import matched  # noqa: PLC0415 - few programs ask
        from noonmark.operations.models.arguments import MatchRequest  # noqa: PLC0415 - as below

        self._check_open()
        if isinstance(wanted, str):
            asked: dict[str, Any] = {"schedule_id": self._find(wanted).schedule.schedule_id}
        else:
            asked = {"trigger": trigger_argument(wanted).to_document()}
        return matched(self._store, OWNER.tenant, MatchRequest.read({**asked, "limit": limit}))

    def events(self: _Looks, event_type: str | None = None, limit: int = 100) -> list[Event]:
        """The events that were emitted and are kept, whether or not they set anything off, newest first.

        Those of one type, if it is named; at most so many.
        """
        self._check_open()
        return looking.events(self._store, OWNER.tenant, event_type, limit)

    def triggers(self: _Looks, event_type: str | None = None) -> list[Job]:
        """The jobs that events set off, oldest first; those that listen for one type, if it is named."""
        self._check_open()
        return looking.triggers(self._store, OWNER.tenant, event_type)

    def occurrences(self: _Looks, job_id: str, limit: int | None = None) -> list[Occurrence]:
        """Its occurrences, past and planned, newest first; all of them, unless there is a limit."""
        return self._store.occurrences(self._find(job_id, deleted=True).schedule.uid, limit_argument(limit))

    def runs(self: _Looks, job_id: str, limit: int | None = None) -> list[Run]:
        """Its runs, newest first, one that goes on too; all of them, unless there is a limit."""
        return self._store.runs(self._find(job_id, deleted=True).schedule.uid, limit_argument(limit))

    def nodes(self: _Looks) -> list[NodeRecord]:
        """The nodes that share its store and were heard of within the last day, also those that stopped, by name."""
        self._check_open()
        return self._store.nodes()
