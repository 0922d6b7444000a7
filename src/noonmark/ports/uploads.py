"""Where uploads are kept. Every verb may wait for a disk, so whoever calls one does so in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noonmark.core.instants import Micros
    from noonmark.core.uploads import Upload

Place: TypeAlias = tuple[int, str]
"""Where an upload stands in the list of a tenant's: when it came, and its id."""


class Receiving(Protocol):
    """One file that is coming in. Whoever takes it drops it in the end, whether or not it is kept.

    What is neither kept nor dropped is gone when a server next starts.
    """

    def write(self, data: bytes) -> None:
        """Add to it; PayloadTooLarge or QuotaExceeded as soon as it is more than may be kept."""

    def keep(self, *, filename: str, path: str, content_type: str, now: Micros) -> Upload:
        """Keep all that has come, for good, and with all it is to be known by.

        The same file under the same id again is the one that is kept already; another one is KeyReused.
        """

    def drop(self) -> None:
        """Be done with it; unless it is kept, nothing of it is left behind. A second time changes nothing."""


class Uploads(Protocol):
    """Uploads of tenants, each by its id. What the disk refuses is StoreUnavailable."""

    @property
    def max_bytes(self) -> int:
        """The largest file that is taken."""

    def receive(self, tenant: str, upload_id: str, *, expected: int = 0) -> Receiving:
        """Begin to take a file, of which so many bytes are expected; Conflict while another comes under that id."""

    def page(self, tenant: str, limit: int, *, after: Place | None = None) -> tuple[list[Upload], Place | None]:
        """So many of those that a tenant has, from after a place on, and where they end if there are more.

        The newest come first, then they go by their ids. Those that cannot be read are left out.
        """

    def find(self, tenant: str, upload_id: str) -> Upload | None:
        """One of them."""

    def open(self, tenant: str, upload: Upload) -> BinaryIO:
        """What is in it."""

    def stored_path(self, tenant: str, upload: Upload) -> str:
        """Where programs of this machine find it."""

    def remove(self, tenant: str, upload_id: str) -> Upload | None:
        """Forget one, and tell which; None when there is none."""

    def announced(self, tenant: str, upload_id: str) -> None:
        """Remember that an event has told of it."""

    def untold(self, tenant: str) -> list[Upload]:
        """What was kept and not told of, and of which nobody is about to tell."""

    def sweep(self) -> Iterator[tuple[str, Upload]]:
        """Clear away what servers that were killed left behind; gives what they kept and did not tell of."""
