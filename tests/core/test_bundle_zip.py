"""The zip file of a bundle is judged before anything of it is unpacked."""

from __future__ import annotations

import io
import struct
import zipfile

import pytest

from noonmark.core.bundles.archive import ArchiveLimits
from noonmark.core.bundles.zip_file import BundleZip, ChunkReader
from noonmark.core.errors import InvalidBundle

MANIFEST = '{"name": "eval"}'


def packed(files: dict[str, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def opened(data: bytes, chunk: int = 7, limits: ArchiveLimits | None = None) -> BundleZip:
    reader = ChunkReader(lambda number: data[number * chunk : (number + 1) * chunk], len(data), chunk)
    return BundleZip(io.BufferedReader(reader), len(data), limits)


def test_a_bundle_is_read_from_its_chunks() -> None:
    archive = opened(packed({"eval/manifest.json": MANIFEST, "eval/lib/": b"", "eval/job.py": "x" * 100_000}))
    assert (archive.root, archive.files, archive.document()) == ("eval/", 2, {"name": "eval"})
    archive.check()
    contents = {name: None if data is None else b"".join(data) for name, _, data in archive.contents()}
    assert contents == {"manifest.json": MANIFEST.encode(), "lib": None, "job.py": b"x" * 100_000}


def test_the_folder_around_a_bundle_is_no_part_of_it() -> None:
    archive = opened(packed({"eval/": b"", "eval/manifest.json": MANIFEST}))
    assert [name for name, _, _ in archive.contents()] == ["manifest.json"]


def test_programs_are_told_from_other_files() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("manifest.json", MANIFEST)
        info = zipfile.ZipInfo("run.sh")
        info.external_attr = 0o100755 << 16
        archive.writestr(info, "#!/bin/sh")
    assert {name: is_program for name, is_program, _ in opened(stream.getvalue()).contents()} == {
        "manifest.json": False,
        "run.sh": True,
    }


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a zip file"),
        (b"hello, this is no archive at all", "not a zip file"),
        (packed({"manifest.json": MANIFEST})[:-1], "not a zip file"),
        (packed({"a": "b"}), "no manifest.json"),
        (struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 999, 5, 0), "cannot be read"),
        (struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65_535, 65_535, 9, 0, 0), "too many entries"),
        (struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 2_000_000, 0, 0), "too many for 1 entries"),
        (
            b"PK\x06\x07" + b"\0" * 16 + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 9, 0, 0),
            "too many entries",
        ),
    ],
)
def test_what_is_no_bundle_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(InvalidBundle, match=words):
        opened(data)


def test_a_damaged_file_is_named() -> None:
    data = bytearray(packed({"manifest.json": MANIFEST, "job.py": "x" * 1_000}, zipfile.ZIP_STORED))
    data[data.index(b"xxx") + 5] = ord("y")
    archive = opened(bytes(data))
    assert archive.document() == {"name": "eval"}
    with pytest.raises(InvalidBundle, match="CRC") as caught:
        archive.check()
    assert caught.value.field == "job.py"


def test_a_manifest_must_be_json() -> None:
    with pytest.raises(InvalidBundle, match="is not JSON") as caught:
        opened(packed({"manifest.json": "{"})).document()
    assert caught.value.field == "manifest.json"
    with pytest.raises(InvalidBundle, match=r"no file flow\.json"):
        opened(packed({"manifest.json": MANIFEST})).document("flow.json")


def test_a_part_that_is_gone_ends_the_reading() -> None:
    data = packed({"manifest.json": MANIFEST})
    reader = ChunkReader(lambda number: None if number == 1 else data[number * 7 : number * 7 + 7], len(data), 7)
    assert (reader.readable(), reader.seekable(), reader.tell()) == (True, True, 0)
    with pytest.raises(OSError, match="gone"):
        reader.read()
    reader.seek(0, io.SEEK_END)
    assert (reader.tell(), reader.read(5)) == (len(data), b"")
    reader.seek(-2, io.SEEK_CUR)
    assert reader.read(9) == data[-2:]
    reader.seek(0)
    assert (reader.read(2), reader.read(2)) == (data[:2], data[2:4])


def test_the_real_limits_are_those_of_the_listing() -> None:
    with pytest.raises(InvalidBundle, match="at most 10"):
        opened(packed({"manifest.json": MANIFEST}), limits=ArchiveLimits(max_bytes=10))
