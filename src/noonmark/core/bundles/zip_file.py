"""The zip file of a bundle: its listing, its manifest and its files, from any stream that can seek.

The end of the file says how long the listing is. It is judged before the listing is read: a listing alone can have
millions of entries.
"""

from __future__ import annotations

import io
import json
import struct
from typing import TYPE_CHECKING, Any, BinaryIO
from zipfile import BadZipFile, ZipFile, ZipInfo

from noonmark.core.bundles.archive import MANIFEST, ArchiveLimits, Entry, check_entries, root_folder
from noonmark.core.errors import InvalidBundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

READ_BYTES = 1_048_576
ENTRY_BYTES = 1_024
"""How long an entry of the listing may be, on average."""
ENCRYPTED = 0x1
_END = struct.Struct("<4s4H2LH")
_END_SIGNATURE, _WIDE_SIGNATURE = b"PK\x05\x06", b"PK\x06\x07"
_WIDE_SIZE = 20
BROKEN = (BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, struct.error, OSError)
"""What reading a damaged zip file raises. `zlib.error` is none of them and has a base of its own."""


class ChunkReader(io.RawIOBase):
    """A file of a known size that is stored in chunks. The last chunk that was read is kept."""

    def __init__(self, read: Callable[[int], bytes | None], size: int, chunk: int) -> None:
        """`read` gives a chunk by its number; None, if it is gone, ends the file."""
        super().__init__()
        self._read, self._size, self._chunk = read, size, chunk
        self._position = 0
        self._last: tuple[int, bytes] | None = None

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def tell(self) -> int:
        """Where it is."""
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read up to the end of a chunk."""
        if self._position >= self._size:
            return 0
        number, start = divmod(self._position, self._chunk)
        if self._last is None or self._last[0] != number:
            data = self._read(number)
            if data is None:
                raise OSError("a part of the bundle is gone")
            self._last = (number, data)
        piece = self._last[1][start : start + len(buffer)]
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)


class BundleZip:
    """An open zip file whose listing was found harmless."""

    def __init__(self, stream: BinaryIO | io.BufferedIOBase, size: int, limits: ArchiveLimits | None = None) -> None:
        """Read and judge the listing; InvalidBundle says what is wrong."""
        self._limits = limits or ArchiveLimits()
        _check_end(stream, size, self._limits)
        try:
            self._zip = ZipFile(stream)
        except BROKEN as error:
            raise InvalidBundle(f"the zip file cannot be read: {error}") from None
        self._infos = self._zip.infolist()
        # The name as it stands there: the other one ends at the first NUL.
        check_entries([_entry(info) for info in self._infos], packed=size, limits=self._limits)
        self.root = root_folder([info.filename for info in self._infos])

    @property
    def files(self) -> int:
        """How many files it has."""
        return sum(not info.is_dir() for info in self._infos)

    def document(self, name: str = MANIFEST) -> Any:
        """The JSON in a file of the bundle, by default in its manifest; InvalidBundle if that cannot be read."""
        info = next((one for one in self._infos if one.filename == self.root + name), None)
        if info is None:
            raise InvalidBundle(f"the bundle has no file {name}", field=name)
        text = b"".join(self._content(info))
        try:
            return json.loads(text.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise InvalidBundle(f"is not JSON: {error}", field=name) from None

    def check(self) -> None:
        """Read every file to its end; InvalidBundle if one is damaged."""
        for info in self._infos:
            for _ in self._content(info):
                pass

    def contents(self) -> Iterator[tuple[str, bool, Iterator[bytes] | None]]:
        """The files of the bundle: the path below its folder, whether it is a program, and the content.

        Folders have no content.
        """
        for info in self._infos:
            name = info.filename.removeprefix(self.root).rstrip("/")
            if name:
                is_program = bool((info.external_attr >> 16) & 0o100)
                yield name, is_program, None if info.is_dir() else self._content(info)

    def _content(self, info: ZipInfo) -> Iterator[bytes]:
        """The content of a file. It never has more bytes than the listing says."""
        import zlib  # noqa: PLC0415 - only its error is needed

        try:
            with self._zip.open(info) as stream:
                while data := stream.read(READ_BYTES):
                    yield data
        except (*BROKEN, zlib.error) as error:
            raise InvalidBundle(f"is damaged: {error}", field=info.filename) from None


def _entry(info: ZipInfo) -> Entry:
    return Entry(
        name=info.orig_filename,
        size=info.file_size,
        packed=info.compress_size,
        mode=info.external_attr >> 16,
        method=info.compress_type,
        is_encrypted=bool(info.flag_bits & ENCRYPTED),
    )


def _check_end(stream: BinaryIO | io.BufferedIOBase, size: int, limits: ArchiveLimits) -> None:
    """Judge the record at the end of a zip file."""
    length = min(size, _END.size + _WIDE_SIZE)
    stream.seek(size - length)
    tail = stream.read(length)
    end = _END.unpack(tail[-_END.size :]) if len(tail) >= _END.size else None
    if end is None or end[0] != _END_SIGNATURE:
        raise InvalidBundle("this is not a zip file, or it ends with a comment")
    count, listing = end[4], end[5]
    # A wide listing has its own counts. Nothing that is small enough needs one.
    if count > limits.max_files or tail.startswith(_WIDE_SIGNATURE):
        raise InvalidBundle(f"the archive has too many entries; at most {limits.max_files:,} are allowed")
    if listing > max(1, count) * ENTRY_BYTES:
        raise InvalidBundle(f"the listing of the archive has {listing:,} bytes, too many for {count:,} entries")
