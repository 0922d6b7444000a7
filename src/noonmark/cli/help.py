"""The text of `--help`: options in one column, meanings in another, and for each value what it is."""

from __future__ import annotations

import shutil
import textwrap

VALUES = {
    "ADDRESS": "host",
    "BYTES": "max-upload-bytes max-unsent-bytes upload-quota-bytes",
    "DAYS": "keep-days",
    "DURATION": "in every jitter timeout window catchup-window ping expected per",
    "EXCEPTION": "retry-on retry-not-on",
    "EXPRESSION": "cron",
    "FILE": "config file output path value-file",
    "FOLDER": "upload-dir allow-cwd",
    "FORMAT": "log-format format",
    "HOST": "allowed-hosts allow-hosts",
    "ID": "id key event-id",
    "INSTANT": "at start-at end-at from to after",
    "KEY": "api-key signing-key secret-key",
    "KIND": "kind",
    "LEVEL": "log-level",
    "METHOD": "method",
    "MINUTES": "min-interval-minutes",
    "NAME": "name function filename managed-by",
    "NAME=VALUE": "label set",
    '"NAME: VALUE"': "header secret-header",
    "NUMBER": "max-connections max-connections-per-address max-threads max-per-user",
    "PERIOD": "period",
    "PHASE": "phase status",
    "POLICY": "overlap misfire missed-policy",
    "PORT": "port",
    "PROGRAM": "command allow-commands",
    "REASON": "reason",
    "SCHEDULE": "schedule depends-on",
    "SECONDS": "lease grace request-timeout send-timeout",
    "TYPE": "event emit",
    "URL": "server store public-url http ping-start ping-success ping-failure",
    "USD": "max-budget-usd max-cost",
    "VARIABLE": "allow-env",
    "WHEN": "since until",
    "ZONE": "timezone",
    "auto|strict|off": "target-guard",
    "inode|digest": "pin-commands",
}
"""What the values of options are, and the options that have such a value."""
_OF_OPTION = {f"--{option}": value for value, options in VALUES.items() for option in options.split()}
LABELS = 28
"""The width of the first column; what is longer has a line of its own."""
_INDENT = 2
_NARROWEST, _WIDEST = 60, 100


def width() -> int:
    """How wide the text is: as the terminal, within limits."""
    return max(_NARROWEST, min(_WIDEST, shutil.get_terminal_size((80, 24)).columns))


def value_of(names: tuple[str, ...], otherwise: str) -> str:
    """What the value of an option is."""
    if any(name.endswith("-json") for name in names):
        return "JSON"
    return next((_OF_OPTION[name] for name in reversed(names) if name in _OF_OPTION), otherwise)


def entry(label: str, text: str) -> list[str]:
    """The lines of one option, argument or command."""
    column = _INDENT + LABELS
    lines = textwrap.wrap(text, width() - column, break_long_words=False, break_on_hyphens=False) or [""]
    label = " " * _INDENT + label
    if len(label) > column - 2:
        return [label, *(" " * column + line for line in lines)]
    return [(label.ljust(column) + lines[0]).rstrip(), *(" " * column + line for line in lines[1:])]


def paragraphs(text: str) -> list[str]:
    """The lines of a text, with an empty one between its paragraphs."""
    wrapped = [textwrap.wrap(" ".join(each.split()), width(), break_on_hyphens=False) for each in text.split("\n\n")]
    return [line for paragraph in wrapped for line in (*paragraph, "")][:-1]
