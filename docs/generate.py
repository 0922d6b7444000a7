"""Writes the reference pages that repeat what the code says: errors, reasons and life cycles. Run by `make docs`."""

from __future__ import annotations

from pathlib import Path

import noonmark
from noonmark.core import errors
from noonmark.core.lifecycle import (
    ENDINGS,
    FINAL,
    SCHEDULE_TRANSITIONS,
    TRANSITIONS,
    Phase,
    diagram,
)
from noonmark.core.reasons import Reason

REFERENCE = Path(__file__).parent / "reference"
NOTE = "<!-- Written by docs/generate.py; change the code and run `make docs`. -->\n\n"


def errors_page() -> str:
    """Every error with its code and what it means."""
    for name in noonmark.__all__:  # some errors are defined where they are raised
        getattr(noonmark, name)
    kinds = [errors.NoonmarkError, *_below(errors.NoonmarkError)]
    rows = [f"| `{kind.__name__}` | `{kind.code}` | {_parents(kind)} | {_first_line(kind)} |" for kind in kinds[1:]]
    return (
        f"{NOTE}# Errors\n\n"
        "Every error is a `NoonmarkError` with a stable `code`, a `message` for people, and the `field` it speaks\n"
        "of, if there is one. `InvalidSchedule` and its kinds also list `problems`: all that is wrong.\n\n"
        "| class | code | also a | means |\n| --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"
    )


def reasons_page() -> str:
    """Every reason code, and the final phases it may stand with."""
    rows = [f"| `{reason}` | {reason.sentence} | {_phases_with(reason)} |" for reason in Reason]
    return (
        f"{NOTE}# Reasons\n\n"
        "Every decision and every ended occurrence carries one of these codes, beside the numbers behind it.\n\n"
        "| code | meaning | ends an occurrence as |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"
    )


def lifecycle_page() -> str:
    """Both life cycles, drawn from their tables."""
    rows = [
        f"| `{phase}` | {', '.join(f'`{reason}`' for reason in _in_order(phase))} |"
        for phase in Phase
        if phase in FINAL
    ]
    return (
        f"{NOTE}# Life cycles\n\n"
        "An **occurrence** is one planned delivery of a schedule.\n\n"
        f"```mermaid\n{diagram(TRANSITIONS)}```\n\n"
        "`superseded` is the only final phase that planning may reopen: an edit moved it, and another may move it\n"
        "back. All others are for good, each with a [reason](reasons.md):\n\n"
        "| phase | reasons |\n| --- | --- |\n" + "\n".join(rows) + "\n\n"
        "A **schedule** is completed when it has no further fire and nothing is live; an edit of its trigger, or more\n"
        "`max_runs`, reopens it. A deleted one is kept with its history.\n\n"
        f"```mermaid\n{diagram(SCHEDULE_TRANSITIONS)}```\n"
    )


PAGES = {"errors.md": errors_page, "reasons.md": reasons_page, "lifecycles.md": lifecycle_page}


def _below(kind: type[errors.NoonmarkError]) -> list[type[errors.NoonmarkError]]:
    return [one for child in kind.__subclasses__() for one in (child, *_below(child))]


def _parents(kind: type[errors.NoonmarkError]) -> str:
    return ", ".join(f"`{parent.__name__}`" for parent in kind.__bases__)


def _first_line(kind: type[errors.NoonmarkError]) -> str:
    return (kind.__doc__ or "").splitlines()[0]


def _phases_with(reason: Reason) -> str:
    return ", ".join(f"`{phase}`" for phase in Phase if reason in ENDINGS.get(phase, ()))


def _in_order(phase: Phase) -> list[Reason]:
    return [reason for reason in Reason if reason in ENDINGS[phase]]


if __name__ == "__main__":
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), "utf-8")
        print(f"wrote docs/reference/{name}")
