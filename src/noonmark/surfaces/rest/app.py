"""The application that a web server runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from noonmark.driver.drive import drive
from noonmark.operations.registry import perform
from noonmark.operations.service import LOCAL
from noonmark.telemetry.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from noonmark.operations.service import Service
    from noonmark.surfaces.rest.settings import HttpSettings
    from noonmark.telemetry.health import Health
    from noonmark.telemetry.metrics import Metrics


def make_app(
    service: Service,
    settings: HttpSettings,  # noqa: ARG001 - no route looks at it yet
    metrics: Metrics | None = None,
    health: Health | None = None,
) -> FastAPI:
    """The application of a service."""
    app = FastAPI(title="Noonmark")

    async def about() -> JSONResponse:
        return JSONResponse(health.summary() if health else {"status": "healthy", "service": "noonmark"})

    async def live() -> JSONResponse:
        return JSONResponse(health.live() if health else {"status": "alive"})

    async def ready() -> JSONResponse:
        is_ready, said = await run_in_threadpool(health.ready) if health else (True, {})
        return JSONResponse(said, status_code=200 if is_ready else 503)

    async def numbers() -> Response:
        return Response(metrics.render() if metrics else b"", media_type=CONTENT_TYPE)

    async def worker(verb: str) -> JSONResponse:
        return JSONResponse(await run_in_threadpool(drive, perform(service, LOCAL, f"worker/{verb}", {})))

    app.add_api_route("/health", about)
    app.add_api_route("/health/live", live)
    app.add_api_route("/health/ready", ready)
    app.add_api_route("/metrics", numbers)
    app.add_api_route("/worker/{verb}", worker, methods=["GET", "POST"])
    return app
