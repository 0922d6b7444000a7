"""How a server is reached, and how much it reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """What the HTTP surface is told."""

    host: str = "127.0.0.1"
    port: int = 8001
    allowed_hosts: tuple[str, ...] = ()
    public_url: str | None = None
    max_body: int = 1 << 20
