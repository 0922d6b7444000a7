"""Connection errors, in words of our own.

What a library says of an error repeats what it was given: a header that it could not write, a line that it could not
read. So nothing of that is kept. The kind of the error is enough to say what happened.
"""

from __future__ import annotations

import errno
import ssl
from typing import TYPE_CHECKING

import httpcore2

from noonmark.targets.guard import HungUp, TooLong, Unknown, Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN = (HungUp, TooLong, Unknown, Unusable)
"""Errors whose words are ours."""
_KINDS: dict[type[Exception], str] = {
    httpcore2.ConnectError: "it could not be reached",
    httpcore2.ReadError: "the connection was lost while the answer was read",
    httpcore2.WriteError: "the connection was lost while the request was sent",
    httpcore2.LocalProtocolError: "the request cannot be written as HTTP",
    httpcore2.RemoteProtocolError: "it hung up, or what it said is not HTTP",
}
_SYSTEM = {
    errno.ECONNREFUSED: "nobody listens there (connection refused)",
    errno.ECONNRESET: "the connection was reset",
    errno.EHOSTUNREACH: "there is no way to this host",
    errno.ENETUNREACH: "there is no way to its network",
    errno.ETIMEDOUT: "it does not answer",
    errno.EMFILE: "this node has too many open files",
}
_CERTIFICATE = {
    10: "it has expired",
    18: "it is signed by itself",
    19: "it is signed by an authority that is not trusted",
    20: "its issuer is not known",
    62: "it is for another host",
    64: "it is for another address",
}
"""What is wrong with a certificate, by the number that OpenSSL gives it."""


def describe_error(error: Exception) -> str:
    """What went wrong, on one line, without a word of anybody else."""
    if isinstance(error, OWN):
        return str(error)
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is refused: {_CERTIFICATE.get(cause.verify_code, f'error {cause.verify_code}')}"
        if isinstance(cause, ssl.SSLError):
            return "no encrypted connection could be agreed on"
        if isinstance(cause, OSError) and cause.errno in _SYSTEM:
            return _SYSTEM[cause.errno]
    return next((words for kind, words in _KINDS.items() if isinstance(error, kind)), type(error).__name__)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and those that led to it."""
    seen: list[BaseException] = [error]
    for one in seen:
        yield one
        inside = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        seen.extend(cause for cause in (one.__cause__, one.__context__, *inside) if cause and cause not in seen)
