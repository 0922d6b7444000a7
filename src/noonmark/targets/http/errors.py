"""Connection errors, and their descriptions.

The messages of a library repeat what it was given: a header that it could not write, a line that it could not parse.
So none of them is stored. The type of the error is enough to say what happened.
"""

from __future__ import annotations

import errno
import ssl
from typing import TYPE_CHECKING

import httpcore2
from httpcore2 import ConnectError, NetworkError, ReadError

if TYPE_CHECKING:
    from collections.abc import Iterator


class EgressDenied(Exception):
    """The rules of this node do not allow a request to go there."""


class UnknownHost(ConnectError):
    """The host has no known address."""


class ResponseTooLong(ReadError):
    """The response exceeds the limit of bytes that are read."""


class StaleConnection(NetworkError):
    """Nothing was sent: the other side has closed a reused connection, or sent data unasked."""


class ConnectionDropped(ReadError):
    """A reused connection ended before any of the response came, perhaps before the request was received."""


OWN = (ConnectionDropped, ResponseTooLong, UnknownHost, StaleConnection)
"""Errors whose messages are ours."""
_BY_TYPE: dict[type[Exception], str] = {
    httpcore2.ConnectError: "it could not be reached",
    httpcore2.ReadError: "the connection was lost while the response was read",
    httpcore2.WriteError: "the connection was lost while the request was sent",
    httpcore2.LocalProtocolError: "the request cannot be written as HTTP",
    httpcore2.RemoteProtocolError: "it closed the connection, or what it sent is not HTTP",
}
_BY_ERRNO = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "the connection was reset",
    errno.EHOSTUNREACH: "no route to host",
    errno.ENETUNREACH: "network unreachable",
    errno.ETIMEDOUT: "the connection timed out",
    errno.EMFILE: "this node has too many open files",
}
_BY_VERIFY_CODE = {
    10: "it has expired",
    18: "it is self-signed",
    19: "it is signed by an untrusted authority",
    20: "its issuer is unknown",
    62: "it is for another host",
    64: "it is for another address",
}
"""What is wrong with a certificate, by the error number of OpenSSL."""


def describe_error(error: Exception) -> str:
    """Describe an error on one line, without text from the library or the other side."""
    if isinstance(error, OWN):
        return str(error)
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            problem = _BY_VERIFY_CODE.get(cause.verify_code, f"error {cause.verify_code}")
            return f"its certificate was rejected: {problem}"
        if isinstance(cause, ssl.SSLError):
            return "the TLS handshake failed"
        if isinstance(cause, OSError) and cause.errno in _BY_ERRNO:
            return _BY_ERRNO[cause.errno]
    return next((text for kind, text in _BY_TYPE.items() if isinstance(error, kind)), type(error).__name__)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, and those that led to it."""
    causes: list[BaseException] = [error]
    for current in causes:
        yield current
        inner = current.exceptions if isinstance(current, BaseExceptionGroup) else ()
        causes.extend(
            cause for cause in (current.__cause__, current.__context__, *inner) if cause and cause not in causes
        )
