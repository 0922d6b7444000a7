"""Keys of servers: given by an option, a file or the environment, or stored by `noonmark login`.

The file of stored keys has one key per server and mode 0600; a file that others can read is refused.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from noonmark.cli.inputs import read_bytes
from noonmark.core.errors import InvalidRequest, NoonmarkError, NotAllowed

if TYPE_CHECKING:
    from noonmark.cli.options import Connection

KEY_VARIABLE = "NOONMARK_KEY"
MAX_KEY = 16_384
_PORTS = {"http": 80, "https": 443}


def find_key(connection: Connection, server: str) -> str | None:
    """The key for a server: of the options, else of the environment, else the stored one; None if there is none."""
    if connection.key is not None and connection.key_file is not None:
        raise InvalidRequest("conflicts with --key: give one of them", field="--key-file")
    if connection.key is not None:
        return _check_key(connection.key, "--key")
    if connection.key_file is not None:
        return read_key(connection.key_file)
    if given := os.environ.get(KEY_VARIABLE, "").strip():
        return _check_key(given, KEY_VARIABLE)
    return _load().get(origin(server))


def read_key(file: str | None) -> str:
    """Read a key from a file, or from standard input; on a terminal it is not shown."""
    if file is None and sys.stdin.isatty():
        return _check_key(getpass("Key: "), "standard input")
    field = "standard input" if file is None else "--key-file"
    return _check_key(read_bytes(file, MAX_KEY + 1, field=field).decode("utf-8", errors="replace"), field)


def _check_key(text: str, field: str) -> str:
    """A key without the blanks around it; the error does not repeat it."""
    key = text.strip()
    if not key or len(key) > MAX_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidRequest("must be a key: one word of printable ASCII characters", field=field)
    return key


def origin(server: str) -> str:
    """The server that a URL names, in one form."""
    try:
        parts = urlsplit(server)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return server
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{port}"


def store_key(server: str, key: str) -> Path:
    """Store the key of a server; returns the file."""
    _save(_load() | {origin(server): key})
    return _file()


def remove_key(server: str) -> bool:
    """Remove the stored key of a server; False if there is none."""
    keys = _load()
    if keys.pop(origin(server), None) is None:
        return False
    _save(keys)
    return True


def _file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if base.startswith("/") else Path("~/.config").expanduser()
    return folder / "noonmark" / "keys.json"


def _load() -> dict[str, str]:
    try:
        file = _file()
        with file.open("rb") as stream:
            is_shared = os.name == "posix" and stat.S_IMODE(os.fstat(stream.fileno()).st_mode) & 0o077
            text = stream.read()
    except (FileNotFoundError, NotADirectoryError, RuntimeError):  # the last one: there is no home folder
        return {}
    except OSError as error:
        raise NoonmarkError(f"the file of stored keys cannot be read: {error}") from None
    if is_shared:
        raise NotAllowed(f"other users can read {file}, which has keys; run chmod 600 on it, and rotate the keys")
    try:
        stored = json.loads(text)
        return {str(server): str(key) for server, key in stored.items()}
    except (ValueError, AttributeError):
        message = f"the file of stored keys, {file}, has unexpected content; remove it and log in again"
        raise NoonmarkError(message) from None


def _save(keys: dict[str, str]) -> None:
    """Replace the file as a whole; it is never readable by others, not even for a moment."""
    try:
        file = _file()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=".keys-")  # with mode 0600
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(keys, stream, indent=1)
        Path(name).replace(file)
    except (OSError, RuntimeError) as error:
        raise NoonmarkError(f"the key cannot be stored: {error}") from None
