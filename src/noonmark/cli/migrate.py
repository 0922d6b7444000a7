"""`noonmark migrate`: create the schema of a store, or bring it up to date."""

from __future__ import annotations

import os
import sys
from typing import Annotated

from cyclopts import Parameter

from noonmark.clocks import SystemClock
from noonmark.server.config import load
from noonmark.stores.sql.version import VERSION
from noonmark.telemetry.masking import masked
from noonmark.wiring import MEMORY, make_store


def migrate(
    *,
    store: Annotated[str | None, Parameter(help="The store; that of the settings unless given.")] = None,
    config: Annotated[str | None, Parameter(help="A TOML file with settings; noonmark.toml, if it is there.")] = None,
) -> int:
    """Create the schema of a store, or bring it up to date; servers may run meanwhile."""
    loaded = load({"store": store}, os.environ, config)
    url = loaded.settings.store
    if url == MEMORY:
        raise loaded.refuse("store", "a store in memory has no schema; name a file or a database")
    opened = make_store(url, SystemClock())
    try:
        opened.open()
    finally:
        opened.close()
    sys.stdout.write(f"The schema of {masked(url)} has version {VERSION}.\n")
    return 0
