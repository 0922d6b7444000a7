"""The rules of an archive, checked over its listing before anything of it is unpacked.

An entry that could lead out of the folder it is unpacked into, become something else than a file, or fill a disk is
refused by its name.
"""

from __future__ import annotations

import re
import stat
from itertools import islice
from typing import TYPE_CHECKING
from unicodedata import normalize

from noonmark.core.errors import InvalidBundle, Problem
from noonmark.core.frozen import frozen
from noonmark.core.json_values import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1_048_576
MAX_NAME_BYTES = 255
STORED, DEFLATED = 0, 8
"""The methods of compression that are read."""
MAX_PROBLEMS = 20
"""How many problems of one archive are listed."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DRIVE = re.compile(r"[A-Za-z]:")


@frozen(kw_only=True)
class ArchiveLimits:
    """What an archive may unpack to."""

    max_files: int = 10_000
    max_bytes: int = 268_435_456
    """Of all files together, unpacked."""
    max_ratio: int = 200
    """How many times larger a file, or all of them together, may be unpacked. Small files are not judged by it."""
    judged_from: int = 1_048_576
    """The unpacked size from which the ratio counts."""


@frozen(kw_only=True)
class Entry:
    """One line of the listing of an archive."""

    name: str
    size: int
    packed: int
    mode: int = 0
    """The mode of the file on a Unix system; 0 if the archive does not say."""
    method: int = DEFLATED
    is_encrypted: bool = False

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder: then its name ends with a slash."""
        return self.name.endswith("/")


def check_entries(entries: Sequence[Entry], *, packed: int, limits: ArchiveLimits | None = None) -> None:
    """InvalidBundle lists what is wrong with the entries of an archive of a size, each with its name."""
    limits = limits or ArchiveLimits()
    if len(entries) > limits.max_files:
        raise InvalidBundle(f"the archive has {len(entries):,} entries; at most {limits.max_files:,} are allowed")
    first_problems = islice(_entry_problems(entries, limits), MAX_PROBLEMS)
    problems = [Problem(shown(name), message, InvalidBundle.code) for name, message in first_problems]
    if not problems and (message := _total_problem(entries, packed, limits)) is not None:
        problems.append(Problem("", message, InvalidBundle.code))
    if problems:
        raise invalid_bundle(problems)


def _entry_problems(entries: Sequence[Entry], limits: ArchiveLimits) -> Iterator[tuple[str, str]]:
    """What is wrong with entries, each with its name."""
    entries_by_name: dict[str, Entry] = {}
    for entry in entries:
        folded = normalize("NFC", entry.name.rstrip("/")).casefold()
        message = _name_problem(entry.name) or _content_problem(entry, limits)
        if message is None and folded in entries_by_name:
            message = f"is there twice: {shown(entries_by_name[folded].name)} is the same file on some systems"
        if message is not None:
            yield entry.name, message
        entries_by_name.setdefault(folded, entry)
    for folded, entry in entries_by_name.items():
        above = folded.rpartition("/")[0]
        while above:
            if above in entries_by_name and not entries_by_name[above].is_folder:
                yield entry.name, f"lies in {shown(entries_by_name[above].name)}, a file"
            above = above.rpartition("/")[0]


def _name_problem(name: str) -> str | None:
    parts = name.removesuffix("/").split("/")
    rules = (
        (_CONTROL.search(name), "has a control character in its name"),
        (
            name.startswith("/") or _DRIVE.match(name),
            "is an absolute path: files must be below the folder of the bundle",
        ),
        ("\\" in name, "has a backslash in its name: folders are separated by /"),
        (".." in parts, "leads out of the bundle"),
        ("" in parts or "." in parts, "is not a plain path: it has an empty part or a dot"),
        (
            len(name.encode(errors="surrogatepass")) > MAX_NAME_BYTES,
            f"has a name of more than {MAX_NAME_BYTES} bytes",
        ),
    )
    return next((message for is_broken, message in rules if is_broken), None)


def _content_problem(entry: Entry, limits: ArchiveLimits) -> str | None:
    kind = stat.S_IFMT(entry.mode)
    is_large = entry.size >= limits.judged_from
    is_manifest = entry.name.rpartition("/")[2] == MANIFEST
    rules = (
        (kind == stat.S_IFLNK, "is a link: files must be files"),
        (kind not in (0, stat.S_IFREG, stat.S_IFDIR), "is a device, a pipe or a socket"),
        (entry.is_encrypted, "is encrypted"),
        (
            entry.method not in (STORED, DEFLATED),
            "is compressed in a way that is not read: use deflate, as zip does",
        ),
        (
            entry.size > limits.max_bytes,
            f"has {entry.size:,} bytes unpacked; at most {limits.max_bytes:,} are allowed for all files",
        ),
        (
            is_large and entry.size > limits.max_ratio * entry.packed,
            f"is more than {limits.max_ratio} times larger unpacked",
        ),
        (
            is_manifest and entry.size > MAX_MANIFEST_BYTES,
            f"has {entry.size:,} bytes; at most {MAX_MANIFEST_BYTES:,} are allowed",
        ),
    )
    return next((message for is_broken, message in rules if is_broken), None)


def _total_problem(entries: Sequence[Entry], packed: int, limits: ArchiveLimits) -> str | None:
    total = sum(entry.size for entry in entries)
    if total > limits.max_bytes:
        largest = max(entries, key=lambda entry: entry.size)
        return (
            f"the files have {total:,} bytes unpacked; at most {limits.max_bytes:,} are allowed; the largest is"
            f" {shown(largest.name)}"
        )
    # Entries may share bytes of the archive: each looks harmless then.
    if total >= limits.judged_from and total > limits.max_ratio * packed:
        times = total // max(1, packed)
        return f"the files are {times:,} times larger unpacked; at most {limits.max_ratio} times are allowed"
    return None


def root_folder(names: Sequence[str]) -> str:
    """The folder of the manifest in an archive: the top, as an empty text, or the only folder at the top."""
    if MANIFEST in names:
        return ""
    tops = {name.partition("/")[0] for name in names}
    if len(tops) == 1 and f"{(top := next(iter(tops)))}/{MANIFEST}" in names:
        return f"{top}/"
    raise InvalidBundle(f"the bundle has no {MANIFEST} at its top", field=MANIFEST)


def invalid_bundle(problems: Sequence[Problem]) -> InvalidBundle:
    """The error for everything that is wrong with a bundle."""
    first, more = problems[0], len(problems) - 1
    message = f"{first.message} (and {more} more)" if more else first.message
    return InvalidBundle(message, field=first.field, problems=problems)
