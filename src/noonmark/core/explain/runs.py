"""Runs in words: who tried when, how it ended, and what was said about that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from noonmark.core.describe.words import duration_words, instant_words
from noonmark.core.instants import to_text
from noonmark.core.run import Outcome

if TYPE_CHECKING:
    from noonmark.core.explain.explanation import Facts
    from noonmark.core.instants import Micros
    from noonmark.core.run import Run

MAX_ANSWER = 200
"""How much of a response or of a program's output is quoted."""
MAX_LINES = 3
"""How many of the last lines of a program's output are quoted."""
ENDED = {
    Outcome.COMPLETED: "completed",
    Outcome.FAILED: "failed",
    Outcome.TIMED_OUT: "timed out",
    Outcome.CANCELLED: "was cancelled",
    Outcome.DELIVERY_FAILED: "could not be delivered",
    Outcome.LEASE_LOST: "was given up",
}


def run_facts(run: Run, *, target_kind: str) -> Facts:
    """What is told of a run to a program, and to people as `told`."""
    said = _said(run, target_kind)
    facts = {
        "run_id": run.id,
        "attempt": run.attempt,
        "node": run.node,
        "started_at": to_text(run.started),
        "ended_at": None if run.ended is None else to_text(run.ended),
        "outcome": None if run.outcome is None else str(run.outcome),
        "error": run.summary,
        **said,
        "told": _words(run, said),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _words(run: Run, said: Facts) -> str:
    """A run on one line."""
    who = f" on node {run.node}" if run.node else ""
    lead = f"Attempt {run.attempt}{who} began at {instant_words(run.started)}"
    if run.ended is None or run.outcome is None:
        return f"{lead}, and goes on"
    parts = [f"{lead}, and {ENDED[run.outcome]} after {duration_words(_length(run.started, run.ended))}"]
    if run.summary is not None:
        parts.append(run.summary)
    if "status" in said and str(said["status"]) not in (run.summary or ""):
        parts.append(f"HTTP status {said['status']}")
    if said.get("answer"):
        parts.append(f"it answered `{said['answer']}`")
    if said.get("last_output"):
        parts.append(f"it wrote at last `{said['last_output']}`")
    return ": ".join([parts[0], "; ".join(parts[1:])]) if parts[1:] else parts[0]


def _length(started: Micros, ended: Micros) -> Micros:
    """How long it took, in milliseconds where it was longer than one."""
    length = max(0, ended - started)
    return length if length < 1_000 else length // 1_000 * 1_000


def _said(run: Run, target_kind: str) -> Facts:
    """The status of a call and the beginning of its answer, or the exit code of a program and how its output ended."""
    result = run.result
    if not isinstance(result, dict):
        return {}
    if target_kind == "http":
        return {"status": result.get("status"), "answer": _beginning(result.get("body"))}
    if target_kind != "command":
        return {}
    has_failed = run.outcome is not None and run.outcome is not Outcome.COMPLETED
    return {"exit_code": result.get("exit_code"), "last_output": _end(result.get("output")) if has_failed else None}


def _beginning(body: Any) -> str | None:  # noqa: ANN401 - JSON
    if body is None:
        return None
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    line = " ".join(text[: 4 * MAX_ANSWER].split())
    return (line if len(line) <= MAX_ANSWER else f"{line[: MAX_ANSWER - 1]}…") or None


def _end(output: Any) -> str | None:  # noqa: ANN401 - JSON
    """The last lines of an output as one line, with unprintable characters escaped."""
    if not isinstance(output, str):
        return None
    lines = output.rstrip()[-4 * MAX_ANSWER :].splitlines()[-MAX_LINES:]
    text = "".join(each if each.isprintable() else repr(each)[1:-1] for each in "\n".join(lines))
    return (text if len(text) <= MAX_ANSWER else f"…{text[1 - MAX_ANSWER :]}") or None
