"""`noonmark serve`: a server with its worker, until it is asked to stop."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from noonmark.cli.flags import Flags
from noonmark.cli.output import complain
from noonmark.core.errors import NoonmarkError
from noonmark.server.transport.listener import listen

if TYPE_CHECKING:
    import socket

    from noonmark.server.config import Loaded

_NO_FLAGS = Flags()


def serve(*, flags: Annotated[Flags, Parameter(name="*")] = _NO_FLAGS) -> int:
    """Answer requests, and run what is due."""
    loaded = flags.load()
    listener = listen(loaded)  # first of all: a second server by mistake must not become a second node
    if loaded.settings.reload:
        return _reload(loaded, listener)
    from noonmark.server.host import host  # noqa: PLC0415 - a wrong setting is told before all this is loaded

    return host(loaded, listener)


def _reload(loaded: Loaded, listener: socket.socket) -> int:
    """Let another process serve, and start it anew whenever a file has changed."""
    from uvicorn import Config  # noqa: PLC0415 - only then
    from uvicorn.supervisors import ChangeReload  # noqa: PLC0415 - likewise

    from noonmark.telemetry import logs  # noqa: PLC0415 - likewise

    logs.configure(level=loaded.settings.log_level, form=loaded.settings.log_format)
    config = Config("noonmark", log_config=None, reload=True)
    ChangeReload(config, partial(host_reloaded, loaded), [listener]).run()
    return 0


def host_reloaded(loaded: Loaded, sockets: list[socket.socket]) -> None:
    """Run a server in a process that is restarted when a file changes; an error is printed, and the process exits."""
    from noonmark.server.host import host  # noqa: PLC0415 - likewise

    try:
        host(loaded, sockets[0])
    except NoonmarkError as error:
        complain([error])
        sys.exit(1)
