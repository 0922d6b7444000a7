"""The graph of a workflow as Mermaid text, and in layers for a terminal."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from noonmark.core.instants import micros_to_seconds
from noonmark.core.urls import parse_url

if TYPE_CHECKING:
    from noonmark.core.workflows.definition import Definition, Step, Wait

_PLAIN = re.compile(r"[^A-Za-z0-9 _.:/-]")
_SHAPES = {"wait": ("([", "])"), "approval": ("{{", "}}")}
"""Brackets around a label, by the kind of step."""
_BOX = ("[", "]")


def layers(definition: Definition) -> list[list[Step]]:
    """The steps that can start at once, then those that can start after them, and so on."""
    return [list(layer) for layer in definition.layers]


def mermaid(definition: Definition) -> str:
    """A flowchart. A dotted arrow leads to a step with a condition.

    Steps are numbered: some words, such as `end`, cannot be ids of Mermaid.
    """
    number = {step.id: place for place, step in enumerate(definition.steps)}
    lines = ["flowchart TD"]
    if definition.name is not None:
        # Text in JSON is text in YAML.
        lines = ["---", f"title: {json.dumps(definition.name)}", "---", *lines]
    for step in definition.steps:
        begin, end = _SHAPES.get(step.kind, _BOX)
        lines.append(f'    s{number[step.id]}{begin}"{step.id}<br/>{escape(caption(step))}"{end}')
    for step in definition.steps:
        arrow = "-->" if step.when is None else "-.->"
        lines += [f"    s{number[upstream]} {arrow} s{number[step.id]}" for upstream in step.depends_on]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Text as a label of Mermaid: whatever may mean something there is written by its number."""
    return _PLAIN.sub(lambda found: f"#{ord(found[0])};", text)


def caption(step: Step) -> str:
    """What a step does, in a few words; of a URL only where it leads, since its path may be a password."""
    target = step.target
    if target is None:
        return "approval" if step.wait is None else _wait_caption(step.wait)
    match step.kind:
        case "function":
            what = target["function"]
        case "http":
            what = f"{target['method']} {parse_url(target['url']).origin}"
        case "command":
            what = target["argv"][0]
        case "event":
            what = target["event_type"]
        case "workflow":
            what = target["workflow_id"]
        case "bundle":
            what = target.get("bundle_id") or target["digest"][:12]
        case _:
            what = ""
    each = " for each" if step.for_each is not None else ""
    return f"{step.kind} {what}".strip() + each


def _wait_caption(wait: Wait) -> str:
    if wait.seconds is not None:
        return f"wait {micros_to_seconds(wait.seconds)} s"
    return f"wait for {', '.join(wait.event_types)}" if wait.until is None else f"wait until {wait.until}"
