"""Preflight: whether the services that a bundle needs answer, asked before it starts."""

from __future__ import annotations

import http.client
import socket
from typing import TYPE_CHECKING

from noonmark.core.bundles.manifest import ServiceKind
from noonmark.core.instants import SECOND
from noonmark.core.urls import parse_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noonmark.core.bundles.manifest import RequiredService

SERVER_ERROR = 500


def service_problem(services: Sequence[RequiredService]) -> str | None:
    """Why a run should not start yet: the first service that does not answer; None if all do."""
    for service in services:
        try:
            if service.kind is ServiceKind.TCP:
                socket.create_connection(service.place, service.timeout / SECOND).close()
            elif (status := _status(service)) >= SERVER_ERROR:
                return f"the service {parse_url(service.address).origin} answered with status {status}"
        except (OSError, http.client.HTTPException) as error:
            is_tcp = service.kind is ServiceKind.TCP
            address = service.address if is_tcp else parse_url(service.address).origin
            return f"the service {address} does not answer: {str(error) or type(error).__name__}"
    return None


def _status(service: RequiredService) -> int:
    url = parse_url(service.address)
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.host, url.port, timeout=service.timeout / SECOND)
    try:
        connection.request("GET", url.target or "/", headers={"Host": url.authority, "User-Agent": "noonmark"})
        return connection.getresponse().status
    finally:
        connection.close()
