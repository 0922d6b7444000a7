"""Uploads: list, delete; and the intake of a file, which the server feeds piece by piece.

A file is stored first and then announced by an event whose id is computed from the file. If the server dies in between,
the next one announces it at its start; if the store is down, the tenant's next upload or list does.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import Conflict, NotFound
from noonmark.core.event import Event
from noonmark.core.json_values import text_of
from noonmark.core.uploads import EVENT_TYPE, SOURCE, file_name, id_of_key, media_type, upload_id, virtual_path
from noonmark.operations.models.arguments import OneUpload
from noonmark.operations.models.fields import ArgumentReader, write_cursor
from noonmark.operations.service import cause_of_event, record_audit_entry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import BinaryIO

    from noonmark.core.event import Chain
    from noonmark.core.uploads import Upload
    from noonmark.operations.models.arguments import PageQuery
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.uploads import IncomingUpload, Uploads

logger = logging.getLogger("noonmark.operations")
MAX_KEY = 200
CREATE = "upload/create"
"""What the audit log calls an upload. It is not in the table of operations, because a file is not JSON."""


def list_uploads(service: Service, caller: Caller, arguments: PageQuery) -> dict[str, Any]:
    """List the uploads, newest first."""
    announce_pending(service, caller.owner.tenant)
    page, end = uploads_of(service).page(caller.owner.tenant, arguments.limit, after=arguments.cursor)
    return {
        "uploads": [upload.to_document() for upload in page],
        "next_cursor": None if end is None else write_cursor(*end),
    }


def delete_upload(service: Service, caller: Caller, arguments: OneUpload) -> dict[str, Any]:
    """Delete an upload; runs that its event has started go on."""
    checked = _checked_id(arguments.upload_id)
    deleted = uploads_of(service).remove(caller.owner.tenant, checked)
    if deleted is None:
        raise _unknown(checked)
    record_audit_entry(service, caller, f"upload {checked}")
    return deleted.to_document()


def uploads_of(service: Service) -> Uploads:
    """The storage of uploads; Conflict if there is none."""
    if service.uploads is None:
        raise Conflict("uploads are off; `noonmark serve --upload-dir FOLDER` stores them in that folder")
    return service.uploads


class Intake:
    """The intake of one file; each of its properties is checked as soon as it is known."""

    def __init__(self, service: Service, caller: Caller, key: str | None, *, expected: int = 0) -> None:
        """With a key, the same file again is the same upload."""
        self._service, self._tenant = service, caller.owner.tenant
        self._caller = replace(caller, operation=CREATE)
        uploads = uploads_of(service)
        if key is None:
            new_id = f"upl_{service.fresh_id()}"
        else:
            reader = ArgumentReader({"idempotency_key": key})
            reader.read("idempotency_key", text_of(1, MAX_KEY))
            reader.done()
            new_id = id_of_key(self._tenant, key)
        self._incoming: IncomingUpload = uploads.receive(self._tenant, new_id, expected=expected)
        self.write, self.drop = self._incoming.write, self._incoming.drop

    def finish(self, fields: Mapping[str, Any], content_type: str | None) -> dict[str, Any]:
        """Store the file under the given `filename` and `path`, announce it, and return its document."""
        filename, path = read_names(fields)
        announce_pending(self._service, self._tenant)
        now = self._service.store.clock()
        kind = media_type(content_type)
        named = {"filename": filename, "path": path, "content_type": kind}
        event = Event(event_type=EVENT_TYPE, emitted=now, source=SOURCE, payload=named)
        behind = cause_of_event(self._service, self._caller, event)
        upload = self._incoming.keep(filename=filename, path=path, content_type=kind, now=now)
        announce(self._service, self._tenant, upload, behind)
        if upload.created == now:  # else it was stored and recorded before
            record_audit_entry(self._service, self._caller, f"upload {upload.upload_id}")
        return upload.to_document()


def read_names(fields: Mapping[str, Any]) -> tuple[str, str]:
    """Read the name and the path of a file; InvalidRequest lists what is wrong."""
    reader = ArgumentReader(fields)
    if fields.get("filename") == "":
        reader.raw("filename")
        filename = ""
    else:
        filename = reader.read("filename", file_name, "")
    if not filename and not reader.problems:
        reader.problem("filename", "is required: the name of the file")
    path = reader.read("path", lambda value: virtual_path(value, filename), None)
    reader.done()
    return filename, path or virtual_path(None, filename)


def announce(service: Service, tenant: str, upload: Upload, behind: Chain | None = None) -> None:
    """Emit the event of a file; a second time changes nothing."""
    uploads = uploads_of(service)
    event = replace(upload.to_event(uploads.stored_path(tenant, upload)), behind=behind)
    service.store.emit(tenant, [event])
    uploads.announced(tenant, upload.upload_id)
    service.wake(None)


def announce_pending(service: Service, tenant: str) -> None:
    """Announce the files that were stored while the store was down."""
    for upload in uploads_of(service).unannounced(tenant):
        logger.warning("announcing upload %s, which was stored while the store was down", upload.upload_id)
        announce(service, tenant, upload)


def recover(service: Service) -> None:
    """Remove incomplete files of a server that was killed, and announce those that it did not announce."""
    if service.uploads is not None:
        for tenant, upload in service.uploads.sweep():
            logger.warning("announcing upload %s, which was stored before a server stopped", upload.upload_id)
            announce(service, tenant, upload)


def open_content(service: Service, caller: Caller, upload_id: object) -> tuple[Upload, BinaryIO]:
    """Get an upload, and its file open for reading."""
    checked = _checked_id(OneUpload.read({"upload_id": upload_id}).upload_id)
    uploads = uploads_of(service)
    upload = uploads.find(caller.owner.tenant, checked)
    if upload is None:
        raise _unknown(checked)
    return upload, uploads.open(caller.owner.tenant, upload)


def _checked_id(given: str) -> str:
    """The id of an upload; NotFound for an id that none can have."""
    try:
        return upload_id(given)
    except ValueError:
        raise _unknown(given) from None


def _unknown(given: str) -> NotFound:
    return NotFound(f"there is no upload {given!r}", field="upload_id")
