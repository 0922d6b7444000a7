"""Operations on uploads: list, delete; and what a surface needs that takes files in, for a file is no JSON.

A file is kept first and told of then, by an event whose id follows from what is kept. If the server dies in between,
the next one to start tells of it; if the store is away, whoever of the tenant next sends a file, or asks for a list.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noonmark.core.errors import Conflict, NotFound
from noonmark.core.event import Event
from noonmark.core.json_values import identifier, text_of
from noonmark.core.uploads import EVENT_TYPE, SOURCE, file_name, id_of_key, media_type, upload_id, virtual_path
from noonmark.operations.arguments import Arguments, write_cursor
from noonmark.operations.causes import behind_event

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import BinaryIO

    from noonmark.core.audit import AuditEntry
    from noonmark.core.chain import Chain
    from noonmark.core.instants import Micros
    from noonmark.core.uploads import Upload
    from noonmark.operations.service import Caller, Service
    from noonmark.ports.uploads import Receiving, Uploads

logger = logging.getLogger("noonmark.operations")
USUAL_PAGE = 100
MAX_KEY = 200
CREATE = "upload/create"
"""What the audit log calls the sending of a file, which is no operation of the registry: its arguments are no JSON."""


def list_uploads(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A page of the files that were uploaded and are kept, the newest first."""
    asked = Arguments(arguments)
    limit, cursor = asked.limit(USUAL_PAGE), asked.cursor(int, str)
    asked.done()
    tell_untold(service, caller.owner.tenant)
    page, end = kept_by(service).page(caller.owner.tenant, limit, after=cursor)
    return {
        "uploads": [one.to_document() for one in page],
        "next_cursor": None if end is None else write_cursor(*end),
    }


def delete_upload(service: Service, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Forget a file that was uploaded, which makes room for others; what its event has set off goes on."""
    one_id = _asked_for(arguments)
    gone = kept_by(service).remove(caller.owner.tenant, one_id)
    if gone is None:
        raise _unknown(one_id)
    note = _note(caller, one_id, service.store.clock())
    service.store.note(caller.owner.tenant, [note])
    return gone.to_document()


def kept_by(service: Service) -> Uploads:
    """Where uploads are kept; Conflict where none are."""
    if service.uploads is None:
        raise Conflict("uploads are off here; `noonmark serve --upload-dir FOLDER` takes them, and keeps them there")
    return service.uploads


class Intake:
    """One file that a caller sends: what is known of it is checked as soon as it is known."""

    def __init__(self, service: Service, caller: Caller, key: str | None, *, expected: int = 0) -> None:
        """Under a key, the same file again is the same upload."""
        self._service, self._tenant = service, caller.owner.tenant
        self._caller = replace(caller, operation=CREATE)
        uploads = kept_by(service)
        if key is None:
            made = f"upl_{service.fresh_id()}"
        else:
            asked = Arguments({"idempotency_key": key})
            asked.read("idempotency_key", text_of(1, MAX_KEY))
            asked.done()
            made = id_of_key(self._tenant, key)
        self._receiving: Receiving = uploads.receive(self._tenant, made, expected=expected)
        self.write, self.drop = self._receiving.write, self._receiving.drop

    def finish(self, said: Mapping[str, Any], content_type: str | None) -> dict[str, Any]:
        """Keep the file under the `filename` and the `path` that were said, tell of it, and give its document."""
        filename, path = names(said)
        tell_untold(self._service, self._tenant)
        now = self._service.store.clock()
        kind = media_type(content_type)
        named = {"filename": filename, "path": path, "content_type": kind}
        told = Event(event_type=EVENT_TYPE, emitted=now, source=SOURCE, payload=named)
        behind = behind_event(self._service, self._caller, told)
        upload = self._receiving.keep(filename=filename, path=path, content_type=kind, now=now)
        announce(self._service, self._tenant, upload, behind)
        if upload.created == now:  # else it was kept before, and is on record
            self._service.store.note(self._tenant, [_note(self._caller, upload.upload_id, now)])
        return upload.to_document()


def names(said: Mapping[str, Any]) -> tuple[str, str]:
    """The name of a file and where it is said to belong; InvalidRequest tells what is wrong with them."""
    asked = Arguments(said)
    if said.get("filename") == "":
        asked.raw("filename")
        filename = ""
    else:
        filename = asked.read("filename", file_name, "")
    if not filename and not asked.problems:
        asked.problem("filename", "is required: what the file is called")
    path = asked.read("path", lambda value: virtual_path(value, filename), None)
    asked.done()
    return filename, path or virtual_path(None, filename)


def announce(service: Service, tenant: str, upload: Upload, behind: Chain | None = None) -> None:
    """Tell of a file by an event; a second time changes nothing."""
    uploads = kept_by(service)
    event = replace(upload.to_event(uploads.stored_path(tenant, upload)), behind=behind)
    service.store.emit(tenant, [event])
    uploads.announced(tenant, upload.upload_id)
    service.wake(None)


def tell_untold(service: Service, tenant: str) -> None:
    """Tell of what was kept while the store could not be told."""
    for upload in kept_by(service).untold(tenant):
        logger.warning("telling of upload %s, which was kept while the store was away", upload.upload_id)
        announce(service, tenant, upload)


def recover(service: Service) -> None:
    """Clear away what a server that was killed has left half done, and tell of what it kept and did not tell of."""
    if service.uploads is not None:
        for tenant, upload in service.uploads.sweep():
            logger.warning("telling of upload %s, which was kept before a server was stopped", upload.upload_id)
            announce(service, tenant, upload)


def content(service: Service, caller: Caller, one_id: object) -> tuple[Upload, BinaryIO]:
    """A file that was uploaded, and what is in it."""
    asked_for = _asked_for({"upload_id": one_id})
    uploads = kept_by(service)
    found = uploads.find(caller.owner.tenant, asked_for)
    if found is None:
        raise _unknown(asked_for)
    return found, uploads.open(caller.owner.tenant, found)


def _asked_for(arguments: Mapping[str, Any]) -> str:
    """The id of an upload; NotFound for an id that none can have."""
    asked = Arguments(arguments)
    one_id = asked.read("upload_id", identifier)
    asked.done()
    try:
        return upload_id(one_id)
    except ValueError:
        raise _unknown(one_id) from None


def _note(caller: Caller, one_id: str, now: Micros) -> AuditEntry:
    return caller.signed(f"upload {one_id}")(None, None, now=now)


def _unknown(one_id: str) -> NotFound:
    return NotFound(f"there is no upload {one_id!r}", field="upload_id")
