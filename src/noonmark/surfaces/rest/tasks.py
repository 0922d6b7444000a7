"""The task routes under /api/v1: their fields, statuses, pages, codes and counters over the same operations."""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import InvalidRequest, NoonmarkError, NotFound, QuotaExceeded, RevisionConflict
from noonmark.core.instants import micros_to_seconds, parse_instant
from noonmark.surfaces.dialects import tasks
from noonmark.surfaces.dialects.renaming import renamed
from noonmark.surfaces.rest.asked import Answer
from noonmark.surfaces.rest.reading import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noonmark.operations.service import Limits
    from noonmark.surfaces.rest.asked import Asked, Handler

BASE = "/api/v1/schedules"
ONE = f"{BASE}/{{schedule_id}}"
PAGES = {"page": Kind.INTEGER, "page_size": Kind.INTEGER}
LIST = {**PAGES, "status": Kind.TEXT, "user_id": Kind.TEXT}
MAX_PAGE_SIZE, USUAL_PAGE_SIZE, USUAL_RUNS = 100, 50, 20
MAX_TRIES = 10
COUNTED = 1_000


def handlers() -> dict[tuple[str, str], Handler]:
    """The handlers of these routes, by method and path."""
    table: dict[tuple[str, str], Handler] = {
        # One after another, so that of those who create at once here as many are let through as may be.
        ("POST", BASE): partial(_create, Lock()),
        ("GET", BASE): _list,
        ("GET", ONE): _get,
        ("PUT", ONE): _update,
        ("DELETE", ONE): _delete,
        ("POST", f"{ONE}/pause"): _pause,
        ("POST", f"{ONE}/resume"): _resume,
        ("GET", f"{ONE}/runs"): _runs,
    }
    return {place: partial(_in_their_words, handler) for place, handler in table.items()}


def _in_their_words(handler: Callable[[Asked], Answer], asked: Asked) -> Answer:
    try:
        return handler(asked)
    except NoonmarkError as error:
        raise renamed(error, tasks.NAMES) from None


def _create(lock: Lock, asked: Asked) -> Answer:
    asked.query({})
    document = asked.document()
    arguments = tasks.to_arguments(document)
    check_limits(asked.service.limits, document)
    if (key := asked.headers.get("idempotency-key")) is not None:
        arguments["idempotency_key"] = key
    with lock:
        began = asked.service.store.clock()
        made = asked.perform("schedule/create", arguments)
        if parse_instant(made["created_at_utc"]) >= began:  # and not a while ago, by the same request
            _hold_to_quota(asked, made)
    return Answer(
        document={
            "schedule_id": made["schedule_id"],
            "message": "Schedule created successfully",
            "next_run_at": made["next_run_at"],
        },
        status=201,
        headers={"Location": f"{BASE}/{made['schedule_id']}"},
    )


def check_limits(limits: Limits, document: Mapping[str, Any]) -> None:
    """Refuse what fires too often, or may cost too much."""
    expression, budget = document.get("cron_expression"), document.get("max_budget_per_run_usd")
    if limits.min_interval and isinstance(expression, str):
        gap = tasks.smallest_gap(expression)
        if gap is not None and gap < limits.min_interval:
            raise InvalidRequest(
                f"fires {gap / 60_000_000:g} minutes apart at times; at least"
                f" {micros_to_seconds(limits.min_interval) / 60:g} minutes are allowed",
                field="cron_expression",
            )
    most = limits.max_budget_usd
    if most is not None and isinstance(budget, int | float) and budget > most:
        raise InvalidRequest(f"must be at most {most:g}", field="max_budget_per_run_usd")


def _hold_to_quota(asked: Asked, made: Mapping[str, Any]) -> None:
    """Take back what was created beyond the limit: so nobody passes it, on however many servers."""
    most = asked.service.limits.max_per_user
    if most is None:
        return
    wanted = {"owner": made["owner"]["user"], "route": "task", "phase": ["active", "paused"]}
    if asked.perform("schedule/count", wanted)["count"] > most:
        asked.perform("schedule/delete", {"schedule_id": made["schedule_id"], "reason": "beyond the limit"})
        raise QuotaExceeded(f"there are {most:,} schedules already, which is the limit; delete one that is done with")


def _list(asked: Asked) -> Answer:
    query = asked.query(LIST)
    page, size = _page(query, USUAL_PAGE_SIZE)
    wanted: dict[str, Any] = {"route": "task"}
    if "user_id" in query:
        wanted["owner"] = query["user_id"]
    if (status := query.get("status", "ALL")) != "ALL":
        phases = {theirs: ours for ours, theirs in tasks.STATUSES.items() if ours != "deleted"}
        if status not in phases:
            raise InvalidRequest(f"must be one of {', '.join(phases)}, ALL", field="status")
        wanted["phase"] = phases[status]
    total = asked.perform("schedule/count", wanted)["count"]
    found: list[dict[str, Any]] = []
    if (offset := (page - 1) * size) < total:
        listed = {**wanted, "newest_first": True, "limit": size, "offset": offset}
        answer = asked.perform("schedule/list", listed)
        found = answer["schedules"]
        # A page may end by its size; here it has a number, and so all of its entries.
        while len(found) < size and (cursor := answer["next_cursor"]) is not None:
            answer = asked.perform(
                "schedule/list", {**listed, "offset": 0, "limit": size - len(found), "cursor": cursor}
            )
            found += answer["schedules"]
    return Answer(
        document={
            "schedules": [tasks.told(one) for one in found],
            "total_count": total,
            "page": page,
            "page_size": size,
        }
    )


def _page(query: Mapping[str, Any], usual: int) -> tuple[int, int]:
    """Which page, of what size; a number that makes no sense is the usual one."""
    page, size = query.get("page", 1), query.get("page_size", usual)
    return max(1, page), size if 1 <= size <= MAX_PAGE_SIZE else usual


def _find(asked: Asked) -> dict[str, Any]:
    schedule = asked.perform("schedule/get", asked.path)
    if not tasks.is_task(schedule):
        raise NotFound(f"there is no schedule {schedule['schedule_id']!r}", field="schedule_id")
    return schedule


def _get(asked: Asked) -> Answer:
    asked.query({})
    return Answer(document=tasks.told(_find(asked)))


def _update(asked: Asked) -> Answer:
    """Change what is said; whoever else changes the trigger or the task meanwhile is not overwritten."""
    asked.query({})
    document = asked.document()
    for _ in range(MAX_TRIES):
        stored = _find(asked)
        changes = tasks.to_changes(document, stored)
        check_limits(asked.service.limits, document)
        try:
            changed = asked.perform(
                "schedule/update", {**changes, **asked.path, "expected_revision": stored["revision"]}
            )
        except RevisionConflict:
            continue
        return _done("updated", next_run_at=changed["next_run_at"])
    raise RevisionConflict("the schedule was changed by others all the while; try again")


def _steer(operation: str, asked: Asked) -> dict[str, Any]:
    asked.query({})
    document = asked.document(required=False)
    if unknown := [one for one in document if one != "reason"]:
        raise InvalidRequest("unknown field; allowed is reason", field=unknown[0])
    _find(asked)
    return asked.perform(operation, {**document, **asked.path})


def _pause(asked: Asked) -> Answer:
    _steer("schedule/pause", asked)
    return _done("paused")


def _resume(asked: Asked) -> Answer:
    return _done("resumed", next_run_at=_steer("schedule/resume", asked)["next_run_at"])


def _delete(asked: Asked) -> Answer:
    _steer("schedule/delete", asked)
    return _done("deleted")


def _done(what: str, **more: str | None) -> Answer:
    return Answer(document={"success": True, "message": f"Schedule {what} successfully", **more})


def _runs(asked: Asked) -> Answer:
    page, size = _page(asked.query(PAGES), USUAL_RUNS)
    query = _find(asked)["target"]["query"]
    first = (page - 1) * size
    shown: list[dict[str, Any]] = []
    total, cursor = 0, None
    while True:
        # History has a bound of its own, so this ends.
        found = asked.perform("schedule/runs", {**asked.path, "limit": COUNTED, "cursor": cursor})
        shown += found["runs"][max(0, first - total) : max(0, first + size - total)]
        total, cursor = total + len(found["runs"]), found["next_cursor"]
        if cursor is None:
            break
    runs = [tasks.told_run(one, query) for one in shown]
    return Answer(document={"runs": runs, "total_count": total, "page": page, "page_size": size})
