"""Bundles over HTTP: an archive is streamed into the store in chunks, and never held in memory as a whole.

A client sends it as the body itself, or in a form, as `curl -F file=@bundle.zip` does.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from anyio import CancelScope, CapacityLimiter, to_thread
from starlette.responses import Response

from noonmark.core.api_key import Scope
from noonmark.core.errors import NoonmarkError
from noonmark.operations import bundles
from noonmark.operations.changes import change_by
from noonmark.server.problems import problem_response
from noonmark.server.requests import ParameterType, check_encoding, declared_length
from noonmark.server.strict_json import write_json
from noonmark.server.uploads import CHUNK, FORM_OVERHEAD, Form, StreamedBody, StreamHandler, form_boundary

if TYPE_CHECKING:
    from starlette.requests import Request

    from noonmark.operations.bundles import Intake
    from noonmark.server.requests import ApiRequest, HttpSettings

ALL = "/bundles"
PARAMETERS = {"bundle_id": ParameterType.TEXT, "filename": ParameterType.TEXT, "declare": ParameterType.BOOLEAN}
STORE_THREADS = 4
"""Threads that write archives to the store."""


def handlers() -> dict[tuple[str, str], StreamHandler]:
    """The route that takes a bundle."""
    pushes = _Pushes(CapacityLimiter(STORE_THREADS))
    return {("POST", ALL): StreamHandler(pushes.push, bundles.PUSH, Scope.WRITE)}


class _Pushes:
    def __init__(self, limiter: CapacityLimiter) -> None:
        self._run = partial(to_thread.run_sync, limiter=limiter)

    async def push(self, request: Request, api_request: ApiRequest, settings: HttpSettings) -> Response:
        """Store the archive in the body of a request, and do what its manifest says."""
        body = StreamedBody(request, settings)
        try:
            document = await self._store(body, request, api_request)
            api_request.service.changed(change_by(api_request.caller, "bundle/push", {}, document))
        except NoonmarkError as error:
            await body.drain()
            response = problem_response(error, request)
            response.headers["Connection"] = "close"
            return response
        headers = {"Cache-Control": "no-store", "Location": f"{ALL}/{document['bundle_id']}"}
        return Response(write_json(document), 201, headers, media_type="application/json")

    async def _store(self, body: StreamedBody, request: Request, api_request: ApiRequest) -> dict[str, Any]:
        max_bytes = bundles.check_allowed(api_request.service).max_bytes
        check_encoding(request)
        boundary = form_boundary(request.headers.get("content-type"))
        query = api_request.query(PARAMETERS)
        form = None if boundary is None else Form(boundary)
        if declared_length(request) > max_bytes + (0 if form is None else FORM_OVERHEAD):
            raise bundles.too_large(max_bytes)
        intake = await self._run(
            partial(bundles.Intake, api_request.service, api_request.caller, query.get("bundle_id"))
        )
        try:
            await self._write(body, form, intake)
            filename = query.get("filename") if form is None else form.fields["filename"]
            declares = query.get("declare", True)
            return await self._run(partial(intake.finish, filename, declares=declares))
        finally:
            with CancelScope(shield=True):
                await self._run(intake.drop)

    async def _write(self, body: StreamedBody, form: Form | None, intake: Intake) -> None:
        """Write a body to the store as it arrives."""
        buffer = bytearray()
        async for data in body:
            for piece in [data] if form is None else form.feed(data):
                buffer += piece
            if body.size > intake.max_bytes + FORM_OVERHEAD:
                raise bundles.too_large(intake.max_bytes)
            if len(buffer) >= CHUNK:
                await self._run(intake.write, bytes(buffer))
                buffer.clear()
        if form is not None:
            form.close()
        await self._run(intake.write, bytes(buffer))
