"""Where uploads are stored. Every verb may wait for a disk, so async code calls it in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noonmark.core.instants import Micros
    from noonmark.core.quotas import Quota
    from noonmark.core.uploads import Upload

Place: TypeAlias = tuple[int, str]
"""The position of an upload in a tenant's list: its time and its id."""


class IncomingUpload(Protocol):
    """An upload in progress. Always call `drop` in the end, whether or not it was stored.

    An upload that is neither stored nor dropped is deleted at the next start of a server.
    """

    def write(self, data: bytes) -> None:
        """Append; PayloadTooLarge or QuotaExceeded as soon as it exceeds a limit."""

    def keep(self, *, filename: str, path: str, content_type: str, now: Micros) -> Upload:
        """Store what has come, with its metadata.

        The same file under the same id again is the stored one; another file is KeyReused.
        """

    def drop(self) -> None:
        """Close it; unless it is stored, delete what has come. A second call does nothing."""


class Uploads(Protocol):
    """Uploads of tenants, by id. Disk errors are raised as StoreUnavailable."""

    @property
    def max_bytes(self) -> int:
        """The maximum size of a file."""

    def usage(self, tenant: str) -> list[tuple[Quota, int]]:
        """The limits of a tenant's uploads, and how much of each is used."""

    def receive(self, tenant: str, upload_id: str, *, expected: int = 0) -> IncomingUpload:
        """Begin an upload with an expected size; Conflict while another upload with that id is in progress."""

    def page(self, tenant: str, limit: int, *, after: Place | None = None) -> tuple[list[Upload], Place | None]:
        """A page of a tenant's uploads after a cursor, and the next cursor if there are more.

        Newest first, then by id. Unreadable ones are left out.
        """

    def find(self, tenant: str, upload_id: str) -> Upload | None:
        """One upload."""

    def open(self, tenant: str, upload: Upload) -> BinaryIO:
        """Its content."""

    def stored_path(self, tenant: str, upload: Upload) -> str:
        """Its path on this machine."""

    def remove(self, tenant: str, upload_id: str) -> Upload | None:
        """Delete an upload and return it; None if there is none."""

    def announced(self, tenant: str, upload_id: str) -> None:
        """Record that its event was emitted."""

    def unannounced(self, tenant: str) -> list[Upload]:
        """Stored uploads without an event, unless one is about to be emitted."""

    def sweep(self) -> Iterator[tuple[str, Upload]]:
        """Delete leftovers of killed servers; returns stored uploads without an event."""
