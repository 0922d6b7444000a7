"""The raw limit: Starlette with the settings of `noonmark serve`; it reads a body and always sends the same answer."""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from bench.neighbours import port_of
from bench.service.jobs import LOOPBACK, body
from noonmark.server.host import KEEP_ALIVE
from noonmark.server.transport.listener import BACKLOG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

ANSWER = body(0)


async def create(request: Request) -> Response:
    """Read a body and answer as if a schedule had been created."""
    json.loads(await request.body())
    return Response(ANSWER, 201, {"Cache-Control": "no-store"}, media_type="application/json")


@contextmanager
def serving() -> Iterator[int]:
    """The port of such a server, in a process of its own, for as long as the block lasts."""
    with port_of("bench.service.bare") as port:
        yield port


def main() -> None:
    """Serve, and say at which port."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind((LOOPBACK, 0))
    listener.listen(BACKLOG)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(
        Starlette(routes=[Route("/schedules", create, methods=["POST"])]),
        log_config=None,
        proxy_headers=False,
        server_header=False,
        ws="none",
        timeout_keep_alive=KEEP_ALIVE,
    )
    uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main()
