"""The HTTP runner: sends each request when it is due."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.targets.http import HttpTarget
from noonmark.targets.loop_runner import LoopRunner
from noonmark.targets.outcomes import undeliverable
from noonmark.targets.serialization import error_summary

if TYPE_CHECKING:
    from collections.abc import Collection

    from noonmark.core.settlement import Accepted, Delivered
    from noonmark.ports.target import Assignment
    from noonmark.targets.http.delivery import HttpDelivery
    from noonmark.targets.http.settings import HttpTargetSettings
    from noonmark.targets.secrets import SecretResolver

MAX_REQUESTS = 256
"""How many requests are in flight at a time. One owner alone may have half of them."""


class HttpRunner(LoopRunner):
    """Sends requests, and reports the outcomes."""

    thread_name = "noonmark-http"

    def __init__(
        self,
        settings: HttpTargetSettings | None = None,
        limit: int = MAX_REQUESTS,
        secrets: SecretResolver | None = None,
    ) -> None:
        """Without settings it serves no requests until a program has declared one, and then uses the strict defaults.

        The thread starts with the first request.
        """
        super().__init__(limit)
        self._secrets, self._settings = secrets, settings
        self._is_offered = settings is not None and settings.is_offered
        self._delivery: HttpDelivery | None = None

    def routes(self) -> tuple[str, ...]:
        """Return the one route of all requests."""
        return (HttpTarget.route,) if self._is_offered else ()

    def adopt(self, routes: Collection[str]) -> bool:
        """Serve requests once a schedule has one."""
        if self._is_offered or HttpTarget.route not in routes:
            return False
        self._is_offered = True
        return True

    def _make_delivery(self) -> HttpDelivery:
        """Create it with the first request: a program that sends none does not load the HTTP libraries."""
        from noonmark.targets.http.delivery import HttpDelivery  # noqa: PLC0415 - loads the libraries
        from noonmark.targets.http.settings import HttpTargetSettings  # noqa: PLC0415 - likewise

        return HttpDelivery(self._settings or HttpTargetSettings(), self._secrets, self._now)

    async def _deliver(self, assignment: Assignment) -> Delivered | Accepted:
        try:
            self._delivery = self._delivery or self._make_delivery()
        except Exception as error:  # noqa: BLE001 - for example, a certificate file is missing
            return self._not_sent(error, f": {error_summary(error)}")
        try:
            return await self._delivery.deliver(assignment)
        except Exception as error:  # noqa: BLE001 - any response may have caused it
            return self._not_sent(error)  # its message may repeat what was sent

    async def _release(self) -> None:
        if self._delivery is not None:
            await self._delivery.close()

    def _not_sent(self, error: Exception, detail: str = "") -> Delivered:
        what = f"the request failed: {type(error).__name__}"
        return replace(undeliverable(what + detail, now=self._now(), log_text=what), is_final=True)
