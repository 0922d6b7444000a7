"""Watching a server: whether it lives, whether it is ready, and what it has counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from noonmark.core.errors import NotFound
from noonmark.server.requests import ApiResponse

if TYPE_CHECKING:
    from noonmark.server.requests import ApiRequest, Handler

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Health(Protocol):
    """What a process knows of itself. Only `ready` asks the store."""

    def summary(self) -> dict[str, Any]:
        """That it is well, and what it is."""

    def live(self) -> dict[str, Any]:
        """That it answers at all."""

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether it can do its work, and what it lacks."""


class Metrics(Protocol):
    """What a process has counted."""

    def render(self) -> bytes:
        """Everything, in the text format of Prometheus."""


def quick_handlers(health: Health | None) -> dict[tuple[str, str], Handler]:
    """The handlers of the routes that never wait. Who asks a server without health is told that it answers."""

    def summary(request: ApiRequest) -> ApiResponse:
        request.query({})
        return ApiResponse(document=_WELL if health is None else health.summary())

    def live(request: ApiRequest) -> ApiResponse:
        request.query({})
        return ApiResponse(document=_WELL if health is None else health.live())

    return {("GET", "/health"): summary, ("GET", "/health/live"): live}


def handlers(health: Health | None, metrics: Metrics | None) -> dict[tuple[str, str], Handler]:
    """The handlers of the routes that look at more than this process has at hand."""

    def ready(request: ApiRequest) -> ApiResponse:
        request.query({})
        is_ready, document = (True, _WELL) if health is None else health.ready()
        return ApiResponse(document=document, status=200 if is_ready else 503)

    def counted(request: ApiRequest) -> ApiResponse:
        request.query({})
        if metrics is None:
            raise NotFound("nothing is counted here")
        return ApiResponse(raw=(metrics.render(), METRICS_TYPE))

    return {("GET", "/health/ready"): ready, ("GET", "/metrics"): counted}


_WELL = {"status": "healthy", "service": "noonmark"}
