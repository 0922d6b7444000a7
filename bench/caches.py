"""What Noonmark remembers between calls, and how a measurement clears it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noonmark.core.triggers import cron_expression, wallclock, zones
from noonmark.core.triggers import cron_expression as expressions

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


def _caches(*modules: ModuleType) -> dict[str, Callable[[], None]]:
    """The cached functions of some modules by name, each with what empties its cache."""
    return {
        name: function.cache_clear
        for module in modules
        for name, function in vars(module).items()
        if hasattr(function, "cache_clear") and function.__module__ == module.__name__
    }


PARSED = _caches(expressions, cron_expression, wallclock)
LOADED = _caches(zones)


def forget_expressions() -> None:
    """Clear the cache of parsed expressions."""
    for clear in PARSED.values():
        clear()


def forget_zones() -> None:
    """Clear the cache of clock changes."""
    for clear in LOADED.values():
        clear()
