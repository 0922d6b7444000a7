"""Names of exception classes, as retry policies hold them.

A worker process loads this module, so its imports stay light.
"""

from __future__ import annotations

MAIN_ALIASES = {"__mp_main__": "__main__"}
"""A worker process loads the main program under another name."""


def exception_names(kind: type[BaseException]) -> tuple[str, ...]:
    """The qualified names of an exception class and of its bases, the class first; built-in ones have no module."""
    return tuple(_name(base) for base in kind.__mro__ if base is not object)


def _name(kind: type) -> str:
    module = MAIN_ALIASES.get(kind.__module__, kind.__module__)
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
