"""`noonmark config`: the settings that a server would go by, and where each comes from."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import Parameter

from noonmark.cli.flags import Flags
from noonmark.cli.output import print_json, printable

_NO_FLAGS = Flags()


def config(
    *,
    flags: Annotated[Flags, Parameter(name="*")] = _NO_FLAGS,
    as_json: Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON.", show_default=False)] = False,
) -> int:
    """Show the effective settings and their sources; what is secret is masked."""
    loaded = flags.load()
    if as_json:
        print_json({"settings": loaded.shown(), "file": loaded.file})
        return 0
    from rich.table import Table  # noqa: PLC0415 - JSON needs no rich, which is slow to load
    from rich.text import Text  # noqa: PLC0415 - likewise

    from noonmark.cli.show import page  # noqa: PLC0415 - likewise

    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 3, 0, 0))
    for title in ("Setting", "Value", "Source"):
        table.add_column(title, overflow="fold")
    for name, one in loaded.shown().items():
        table.add_row(Text(name, style="bold"), Text(_value(one["value"])), Text(printable(one["source"]), style="dim"))
    with page() as out:
        out.print(table)
    return 0


def _value(value: object) -> str:
    """As it would be written in a file; what is not set is a dash."""
    if value in (None, [], {}):
        return "-"
    return printable(value if isinstance(value, str) else json.dumps(value))
