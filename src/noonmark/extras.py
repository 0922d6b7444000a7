"""The extras of the package, and an error that names the command that installs a missing one."""

from __future__ import annotations

from importlib.util import find_spec

from noonmark.core.errors import MissingExtra

EXTRAS = {
    "server": ("cryptography", "jwt", "prometheus_client", "python_multipart", "starlette", "structlog", "uvicorn"),
    "postgres": ("psycopg",),
    "otel": ("opentelemetry",),
    "agents": ("anthropic", "genai_prices", "jsonschema_rs", "openai", "pydantic_ai"),
    "mcp": ("mcp",),
    "redis": ("redis",),
    "temporal": ("temporalio",),
}
"""The packages that the code of each extra imports."""


def is_installed(extra: str) -> bool:
    """Whether the packages of an extra are installed."""
    return all(find_spec(name) is not None for name in EXTRAS[extra])


def require(extra: str, what: str) -> None:
    """Raise MissingExtra unless the packages of an extra are installed; `what` needs them."""
    missing = [name for name in EXTRAS[extra] if find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"{what} needs packages that are not installed ({', '.join(missing)}); run: pip install 'noonmark[{extra}]'"
        )
