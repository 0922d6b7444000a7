"""Pings over HTTP: any client that has the URL of a schedule may call it, with any method that clients send.

The body is text, not JSON: it is what the job has printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.pings import parse_ping
from noonmark.operations import pings
from noonmark.operations.table import check_clock
from noonmark.server.requests import ApiResponse, TextHandler

if TYPE_CHECKING:
    from noonmark.server.requests import ApiRequest

END, ACTION = "/ping/{token}", "/ping/{token}/{action}"
METHODS = ("GET", "POST")


def handlers() -> dict[tuple[str, str], TextHandler]:
    """The routes of pings."""
    handler = TextHandler(receive)
    return {(method, path): handler for method in METHODS for path in (END, ACTION)}


def receive(request: ApiRequest) -> ApiResponse:
    """Let a ping count for the occurrence that expects it. Parameters are ignored: some clients add their own."""
    ping = parse_ping(request.path.get("action", ""), request.body)
    check_clock(request.service)
    return ApiResponse(document=pings.receive(request.service, request.path["token"], ping))
