"""The pinger: calls the URLs that schedules name for their starts and ends, from one thread with its own event loop.

Pings never delay the work. Each call is repeated a few times; then a warning is logged. A node that is killed
meanwhile does not call: the receiver notices the missing call.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from http import HTTPStatus
from typing import TYPE_CHECKING

from noonmark.core.instants import to_text
from noonmark.core.schedule import TRUSTED
from noonmark.core.urls import parse_url
from noonmark.targets.serialization import error_summary

if TYPE_CHECKING:
    from noonmark.core.occurrence import Occurrence
    from noonmark.core.schedule import Schedule
    from noonmark.core.targets.ping import Moment
    from noonmark.targets.http.pool import ConnectionPool
    from noonmark.targets.http.settings import HttpTargetSettings

logger = logging.getLogger("noonmark.jobs")

MAX_CALLS = 1_000
"""How many calls wait or are in flight; further ones are logged, and not made."""
MAX_REQUESTS = 16
CALL_SECONDS = 10.0
PAUSES = (1.0, 5.0)
"""Seconds before each repetition of a call that failed."""
REPEATED = frozenset({408, 425, 429})


class HttpPinger:
    """Calls URLs. The thread starts with the first call."""

    def __init__(self, settings: HttpTargetSettings | None = None, pauses: tuple[float, ...] = PAUSES) -> None:
        """Without settings, only the URLs of a program itself are called freely; others by the strict defaults."""
        self._settings, self._pauses = settings, pauses
        self._lock = threading.Lock()
        self._calls = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pools: dict[bool, ConnectionPool] = {}

    def ping(self, schedule: Schedule, occurrence: Occurrence, moment: Moment) -> None:
        """Call the URL that the schedule names for that moment, if any."""
        urls = schedule.declaration.ping_urls
        url = None if urls is None else urls.url_for(moment)
        if url is None:
            return
        with self._lock:
            if self._calls >= MAX_CALLS:
                logger.warning("%s of schedule %s was not pinged: too many calls wait", moment, schedule.schedule_id)
                return
            self._calls += 1
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="noonmark-pings", daemon=True).start()
                self._places = asyncio.Semaphore(MAX_REQUESTS)
        asyncio.run_coroutine_threadsafe(self._call(url, schedule, occurrence, moment), self._loop)

    @property
    def pending(self) -> int:
        """How many calls have not ended."""
        return self._calls

    async def _call(self, url: str, schedule: Schedule, occurrence: Occurrence, moment: Moment) -> None:
        try:
            async with self._places:
                problem = await self._try(url, schedule, occurrence, moment)
            for pause in self._pauses if problem else ():
                await asyncio.sleep(pause)  # noqa: TID251 - this loop has nothing else to wait for
                async with self._places:
                    problem = await self._try(url, schedule, occurrence, moment)
                if problem is None:
                    break
            if problem is not None:
                logger.warning("%s of schedule %s was not pinged: %s", moment, schedule.schedule_id, problem)
        finally:
            with self._lock:
                self._calls -= 1

    async def _try(self, url: str, schedule: Schedule, occurrence: Occurrence, moment: Moment) -> str | None:
        """Call once; returns what went wrong, without the URL, which may be a password."""
        from noonmark.targets.http.network import request_owner  # noqa: PLC0415 - loads the libraries
        from noonmark.targets.http.request import USER_AGENT, Request  # noqa: PLC0415 - likewise

        headers = {"User-Agent": USER_AGENT, "Content-Type": "application/json", "Idempotency-Key": occurrence.id}
        request = Request(method="POST", url=parse_url(url), headers=headers, body=_body(schedule, occurrence, moment))
        request_owner.set(schedule.owner)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                pool = self._pool(is_trusted=schedule.source == TRUSTED)
                response = await pool.send(request, may_repeat=True)
        except TimeoutError:
            return f"no answer within {CALL_SECONDS:g} s"
        except Exception as error:  # noqa: BLE001 - whatever it is, the work must not notice it
            return error_summary(error)
        is_repeated = response.status in REPEATED or response.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        if response.status >= HTTPStatus.BAD_REQUEST and not is_repeated:
            logger.warning("the ping for %s of schedule %s got %d", moment, schedule.schedule_id, response.status)
        return f"the server answered {response.status}" if is_repeated else None

    def _pool(self, *, is_trusted: bool) -> ConnectionPool:
        """The connections of trusted schedules are separate, so that no other schedule can use them."""
        if is_trusted not in self._pools:
            import httpcore2  # noqa: PLC0415 - a program that pings nothing does not load it

            from noonmark.targets.http.network import Resolver, system_lookup  # noqa: PLC0415 - likewise
            from noonmark.targets.http.pool import ConnectionPool  # noqa: PLC0415 - likewise
            from noonmark.targets.http.settings import HttpTargetSettings  # noqa: PLC0415 - likewise
            from noonmark.targets.log_filter import silence_this_thread  # noqa: PLC0415 - likewise

            silence_this_thread()
            settings = self._settings or HttpTargetSettings()
            resolver = Resolver(settings.resolve or system_lookup)
            egress = None if is_trusted else settings.egress
            self._pools[is_trusted] = ConnectionPool(egress, httpcore2.default_ssl_context(), resolver)
        return self._pools[is_trusted]


def _body(schedule: Schedule, occurrence: Occurrence, moment: Moment) -> bytes:
    document = {
        "schedule_id": schedule.schedule_id,
        "schedule_name": schedule.declaration.name or schedule.schedule_id,
        "occurrence_id": occurrence.id,
        "moment": str(moment),
        "due_at": to_text(occurrence.first_due),
        "attempt": occurrence.attempt,
    }
    return json.dumps(document).encode()
