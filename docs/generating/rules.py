"""Pages that repeat tables of the code: errors, reasons, life cycles, settings."""

from __future__ import annotations

import noonmark
from docs.generating.words import NOTE, names
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
from noonmark.server.config import SETTINGS


def errors_page() -> str:
    """Every error with its code and what it means."""
    for name in noonmark.__all__:  # some errors are defined where they are raised
        getattr(noonmark, name)
    # A surface may have kinds of its own, which nobody outside it meets.
    kinds = [one for one in (errors.NoonmarkError, *_below(errors.NoonmarkError)) if one.__name__ in noonmark.__all__]
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
        "Every decision and every ended occurrence carries one of these codes, with the numbers behind it.\n\n"
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
        "back. All others are final, each with a [reason](reasons.md):\n\n"
        "| phase | reasons |\n| --- | --- |\n" + "\n".join(rows) + "\n\n"
        "A **schedule** is completed when it has no further fire and nothing is live; an edit of its trigger, or more\n"
        "`max_runs`, reopens it. A deleted one is kept with its history. A proposed one waits for an approval, and is\n"
        "deleted if it is denied or expires.\n\n"
        f"```mermaid\n{diagram(SCHEDULE_TRANSITIONS)}```\n"
    )


def settings_page() -> str:
    """Every setting of a server, with its flag, its variables and its default."""
    rows = [
        f"| `{one.name}` | `{one.flag}` | {names(one.variables)} | {_default(one.default)} | {one.meaning} |"
        for one in SETTINGS.values()
    ]
    return (
        f"{NOTE}# Settings of a server\n\n"
        "A flag wins over a variable, the first of several variables over the next, and these over the file:\n"
        "`noonmark.toml`, or the one that `--config` or `NOONMARK_CONFIG` names. A variable that is empty counts as\n"
        "not set. In the file, each setting is a key of the same name, and `functions` a table. Several functions are\n"
        "several `--function NAME=module:function`, or have commas between them in a variable; several hosts and\n"
        "commands likewise. `noonmark config` shows what is in force, see [the guide](../guides/service.md).\n\n"
        "| setting | flag | variables | default | meaning |\n| --- | --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"
    )


def _default(value: object) -> str:
    """As it would be written in a file; nothing, where there is none."""
    if value in (None, (), {}):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


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
