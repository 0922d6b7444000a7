"""Health and metrics routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from noonmark.core.api_key import Scope
from noonmark.core.errors import NotFound, StoreUnavailable
from noonmark.operations.table import check_all_tenants, check_scope
from noonmark.server.requests import ApiResponse

if TYPE_CHECKING:
    from noonmark.server.requests import ApiRequest, Handler

PATHS = ("/health", "/health/live", "/health/ready", "/metrics")
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_IN_THE_LOG = "the log of this server says why"
_HEALTHY = {"status": "healthy", "service": "noonmark"}


class Health(Protocol):
    """The health of this process. Only `ready` calls the store."""

    def summary(self) -> dict[str, Any]:
        """Status, service and version."""

    def live(self) -> dict[str, Any]:
        """That the process responds."""

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether it can do its work, and the result of each check."""


class Metrics(Protocol):
    """The metrics of this process."""

    def render(self) -> bytes:
        """All metrics in the text format of Prometheus."""


def nonblocking_handlers(health: Health | None) -> dict[tuple[str, str], Handler]:
    """The routes that never wait, so they need no thread. Without `health`, a server reports that it is healthy."""

    def summary(request: ApiRequest) -> ApiResponse:
        request.query({})
        return ApiResponse(document=_HEALTHY if health is None else health.summary())

    def live(request: ApiRequest) -> ApiResponse:
        request.query({})
        return ApiResponse(document=_HEALTHY if health is None else health.live())

    return {("GET", "/health"): summary, ("GET", "/health/live"): live}


def handlers(health: Health | None) -> dict[tuple[str, str], Handler]:
    """The routes that may wait for the store."""

    def ready(request: ApiRequest) -> ApiResponse:
        request.query({})
        is_ready, document = (True, _HEALTHY) if health is None else health.ready()
        if document.get("problems") and _needs_keys(request):
            document = document | {"problems": dict.fromkeys(document["problems"], _IN_THE_LOG)}
        return ApiResponse(document=document, status=200 if is_ready else 503)

    return {("GET", "/health/ready"): ready}


def _needs_keys(request: ApiRequest) -> bool:
    """Whether others may ask than the user of this machine: then errors, which name the database, are not for all."""
    cache = request.service.key_cache
    try:
        return cache is None or cache.has_keys()
    except StoreUnavailable:
        return True


def metrics_handlers(metrics: Metrics | None) -> dict[tuple[str, str], Handler]:
    """The metrics of this process, which concern all tenants."""

    def render_metrics(request: ApiRequest) -> ApiResponse:
        check_scope("metrics", Scope.READ, request.caller)
        check_all_tenants("metrics", request.caller)
        request.query({})
        if metrics is None:
            raise NotFound("metrics are not available on this server")
        return ApiResponse(raw=(metrics.render(), METRICS_TYPE))

    return {("GET", "/metrics"): render_metrics}
