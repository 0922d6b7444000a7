"""The text of `--help`: options in one column, meanings in another, and for each value what it is."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from cyclopts.help.formatters.plain import PlainFormatter

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry
    from rich.console import Console

VALUES = {
    "ADDRESS": "host",
    "BYTES": "max-upload-bytes max-unsent-bytes upload-quota-bytes",
    "DAYS": "keep-days",
    "DURATION": "in every jitter timeout window catchup-window ping",
    "EXPRESSION": "cron",
    "FILE": "config file output path value-file",
    "FOLDER": "upload-dir allow-cwd",
    "FORMAT": "log-format format",
    "HOST": "allowed-hosts allow-hosts",
    "ID": "id key event-id",
    "INSTANT": "at start-at end-at from to after",
    "KEY": "signing-key secret-key",
    "KIND": "kind",
    "LEVEL": "log-level",
    "METHOD": "method",
    "MINUTES": "min-interval-minutes",
    "NAME": "name function filename managed-by",
    "NAME=VALUE": "label set",
    '"NAME: VALUE"': "header secret-header",
    "NUMBER": "max-connections max-connections-per-address max-threads max-per-user",
    "PHASE": "phase status",
    "POLICY": "overlap misfire missed-policy",
    "PORT": "port",
    "PROGRAM": "command allow-commands",
    "REASON": "reason",
    "SCHEDULE": "schedule depends-on",
    "SECONDS": "lease grace request-timeout send-timeout",
    "TYPE": "event emit",
    "URL": "server store public-url http",
    "USD": "max-budget-usd",
    "VARIABLE": "allow-env",
    "WHEN": "since until",
    "ZONE": "timezone",
    "auto|strict|off": "target-guard",
    "inode|digest": "pin-commands",
}
"""What the values of options are, and the options that have such a value."""
_OF_OPTION = {f"--{option}": value for value, options in VALUES.items() for option in options.split()}
_OF_TYPE = {"STR": "TEXT", "INT": "NUMBER", "FLOAT": "NUMBER"}
_TYPED = re.compile(rf" ({'|'.join(_OF_TYPE)})(\.\.\.)?$")
LABELS = 28
"""The width of the first column; what is longer has a line of its own."""
NARROW = 40


class HelpFormatter(PlainFormatter):
    """Plain text in two columns."""

    def _format_parameter_entry(self, options: tuple[str, ...], desc: str, console: Console, entry: HelpEntry) -> None:
        parts = [desc] if desc else []
        if entry.choices:
            parts.append(f"One of {', '.join(entry.choices)}.")
        if entry.default is not None:
            parts.append(f"Default: {entry.default}.")
        if entry.required and not entry.positional_label:
            parts.append("Required.")
        self._print_row(console, _with_value(", ".join(options), entry.names), " ".join(parts))

    def _format_command_entry(
        self, names: tuple[str, ...], shorts: tuple[str, ...], desc: str, console: Console
    ) -> None:
        self._print_row(console, ", ".join((*names, *shorts)), desc)

    def _print_row(self, console: Console, label: str, text: str) -> None:
        width, indent = max(NARROW, console.width - self.indent_width - LABELS), " " * LABELS
        lines = textwrap.wrap(" ".join(text.split()), width, break_long_words=False, break_on_hyphens=False) or [""]
        if len(label) > LABELS - 2:
            lines = [label, *(indent + line for line in lines)]
        else:
            lines = [label.ljust(LABELS) + lines[0], *(indent + line for line in lines[1:])]
        for line in lines:
            console.print(f"{self.indent}{line}".rstrip(), highlight=False, markup=False, soft_wrap=True)


def _with_value(label: str, names: tuple[str, ...]) -> str:
    """The names of an option with what its value is, instead of its Python type."""
    found = _TYPED.search(label)
    if found is None:
        return label
    known = [_OF_OPTION[name] for name in names if name in _OF_OPTION]
    value = "JSON" if any(name.endswith("-json") for name in names) else (*known, _OF_TYPE[found[1]])[0]
    return f"{label[: found.start()]} {value}{found[2] or ''}"
