"""Uploads: files that callers send, each announced by an event. Their names, and the fields of that event.

A name is that of a file on disk, so it is refused unless it means one file in one folder on every system, however
somebody on the way reads it. A path is only text for filters: it is never looked up anywhere.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from unicodedata import normalize
from urllib.parse import unquote

from noonmark.core.event import Event
from noonmark.core.frozen import frozen
from noonmark.core.instants import parse_instant, to_text
from noonmark.core.json_values import shown, text_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noonmark.core.instants import Micros

EVENT_TYPE = "file_uploaded"
SOURCE = "upload"
BUCKET = "local"
MAX_NAME_BYTES = 255
MAX_PATH = 1_000
UNKNOWN_TYPE = "application/octet-stream"
_ID = re.compile(r"upl_[0-9a-z]{1,64}")
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)
_FORBIDDEN = re.compile(r'[/\\:*?"<>|]')
_PLAIN = re.compile(r"[a-z0-9_-]{1,100}")


@frozen(kw_only=True)
class Upload:
    """A stored file."""

    upload_id: str
    filename: str
    path: str
    """Where its sender says it belongs: text for filters, and no place on disk."""
    content_type: str
    size: int
    sha256: str
    created: Micros

    @property
    def event_id(self) -> str:
        """The id of its event; it is computed from the stored upload, so that the event is emitted once.

        The id of the upload is not enough: one that was deleted may come again under its key, and is another then.
        """
        digest = sha256(f"{self.upload_id}:{self.sha256}:{self.created}".encode()).hexdigest()
        return f"evt_{self.upload_id}_{digest[:16]}"

    def is_same(self, other: Upload) -> bool:
        """Whether this is the same file, sent again."""
        contents = [(one.filename, one.path, one.size, one.sha256) for one in (self, other)]
        return contents[0] == contents[1]

    def to_document(self) -> dict[str, Any]:
        """As callers read it."""
        return {
            "upload_id": self.upload_id,
            "filename": self.filename,
            "path": self.path,
            "content_type": self.content_type,
            "size": self.size,
            "sha256": self.sha256,
            "bucket": BUCKET,
            "created_at_utc": to_text(self.created),
            "event_id": self.event_id,
        }

    def to_event(self, stored_path: str) -> Event:
        """The event that announces it; programs on the same machine find it at `stored_path`."""
        document = self.to_document()
        payload = {name: value for name, value in document.items() if name not in ("created_at_utc", "event_id")}
        return Event(
            event_type=EVENT_TYPE,
            emitted=self.created,
            event_id=self.event_id,
            source=SOURCE,
            payload={**payload, "stored_path": stored_path},
        )


def read_upload(document: Mapping[str, Any]) -> Upload:
    """An upload as it was written down; KeyError, TypeError or ValueError of anything else."""
    return Upload(
        upload_id=upload_id(document["upload_id"]),
        filename=file_name(document["filename"]),
        path=str(document["path"]),
        content_type=str(document["content_type"]),
        size=int(document["size"]),
        sha256=str(document["sha256"]),
        created=parse_instant(document["created_at_utc"]),
    )


def upload_id(value: object) -> str:
    """The id of an upload; ValueError for anything else."""
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    raise ValueError(f"must be the id of an upload, such as upl_1a2b, not {shown(value)}")


def id_of_key(tenant: str, key: str) -> str:
    """The id of an upload with an idempotency key: the same each time it is sent."""
    return f"upl_{sha256(f'{len(tenant)}:{tenant}:{key}'.encode(errors='surrogatepass')).hexdigest()[:40]}"


def folder_name(tenant: str) -> str:
    """The name of a tenant's folder: no two tenants share one, also where upper and lower case are the same."""
    if _PLAIN.fullmatch(tenant):
        return tenant
    return f"~{sha256(tenant.encode(errors='surrogatepass')).hexdigest()[:40]}"


def file_name(value: object) -> str:
    """The name of a file, in the normal form of Unicode; ValueError says what is wrong with it."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {shown(value)}")
    # Unpacking escapes or folding look-alikes must not lead to another file.
    name = normalize("NFC", value)
    readings = (name, unquote(name), normalize("NFKC", name), normalize("NFKC", unquote(name)))
    wrong = next((found for one in readings if (found := _name_problem(one)) is not None), None)
    if wrong is not None:
        raise ValueError(f"{wrong}: {shown(value)}")
    return name


def _name_problem(name: str) -> str | None:
    if not name:
        return "must be the name of a file, without its folder"
    if (problem := text_problem(name)) is not None:
        return problem
    if not name.isprintable():
        return "contains a character that cannot be seen"
    if _FORBIDDEN.search(name):
        return 'must be the name of a file, without its folder, and without / \\ : * ? " < > |'
    if name.startswith(".") or name != name.strip() or name.endswith("."):
        return "must not begin with a dot or a blank, or end in one"
    if _RESERVED.fullmatch(name):
        return "is the name of a device on some systems"
    if len(name.encode()) > MAX_NAME_BYTES:
        return f"must have 1 to {MAX_NAME_BYTES} bytes, not {len(name.encode())}"
    return None


def virtual_path(value: object, filename: str) -> str:
    """The virtual path of a file, from `/`; a folder, which ends with a slash, gets the name of the file."""
    if value is None:
        return f"/{filename}"
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {shown(value)}")
    if not 1 <= len(value) <= MAX_PATH:
        raise ValueError(f"must have 1 to {MAX_PATH:,} characters, not {len(value):,}")
    if (problem := text_problem(value)) is not None:
        raise ValueError(problem)
    parts = [part for part in normalize("NFC", value).split("/") if part]
    if "\\" in value or any(part in (".", "..") for part in parts):
        raise ValueError(f"must be a path such as /datasets/eval.jsonl, without . or .. or \\, not {shown(value)}")
    if value.endswith("/"):
        parts.append(filename)
    return "/" + "/".join(parts)


def media_type(value: str | None) -> str:
    """What a sender says the file is, without parameters; what says nothing, or nonsense, is unknown."""
    named = (value or "").partition(";")[0].strip().lower()
    # curl's default for a body without a type.
    if named == "application/x-www-form-urlencoded" or not _MEDIA_TYPE.fullmatch(named):
        return UNKNOWN_TYPE
    return named
