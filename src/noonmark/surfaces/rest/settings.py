"""How a server is reached, and how much it reads."""

from __future__ import annotations

from dataclasses import dataclass

MAX_BODY = 1_048_576
"""Bytes of one body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """What the HTTP surface is told; loopback addresses are always among the hosts by which it may be called."""

    host: str = "127.0.0.1"
    port: int = 8001
    allowed_hosts: tuple[str, ...] = ()
    """Other names by which callers reach it, without a port."""
    public_url: str | None = None
    """Where callers find it when something stands before it, such as https://noonmark.example.org."""
    max_body: int = MAX_BODY
    body_seconds: float = 20.0
    """A body that has not come by then is given up."""
