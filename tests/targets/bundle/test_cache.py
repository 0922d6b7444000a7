"""Unpacked bundles on a node."""

import os
import stat
from pathlib import Path

import pytest

from noonmark.core.errors import InvalidBundle
from noonmark.targets.bundle.cache import UNPACKING, BundleCache
from tests.targets.bundle.harness import BundleHarness, bundle_runner


@pytest.fixture
def harness(tmp_path):
    with bundle_runner(tmp_path) as runner:
        yield runner


def copied(harness: BundleHarness, bundle, to: Path, cache=None, read=None):
    read = read or (lambda number: harness.store.bundle_chunk("acme", bundle.content_id, number))
    (cache or harness.cache).copy(bundle, read, to)
    return {path.relative_to(to).as_posix(): path.read_text() for path in to.rglob("*") if path.is_file()}


def test_a_bundle_is_unpacked_once_and_is_read_only(harness, tmp_path):
    bundle = harness.push(files={"lib/a.txt": "a", "lib/deep/b.txt": "b"})
    files = copied(harness, bundle, tmp_path / "one")
    assert {"manifest.json", "job.py", "lib/a.txt", "lib/deep/b.txt"} == set(files)
    unpacked = tmp_path / "cache" / bundle.digest
    for path in unpacked.rglob("*"):
        assert not path.stat().st_mode & stat.S_IWUSR, path
    (tmp_path / "one" / "lib" / "a.txt").write_text("changed")
    (tmp_path / "one" / "lib" / "new.txt").write_text("new")

    def unread(number):
        raise AssertionError(number)

    assert copied(harness, bundle, tmp_path / "two", read=unread) == files


def test_the_bundles_not_used_for_longest_are_removed(harness, tmp_path):
    cache = BundleCache(tmp_path / "small", 2_500)
    bundles = [harness.push(files={"data": f"{number}" * 1_000}) for number in range(4)]
    for number, bundle in enumerate(bundles):
        copied(harness, bundle, tmp_path / f"copy-{number}", cache)
        os.utime(tmp_path / "small" / bundle.digest, (number, number))
    there = {path.name for path in (tmp_path / "small").iterdir() if path.is_dir()}
    assert there == {bundle.digest for bundle in bundles[2:]}
    left = tmp_path / "small" / f"{UNPACKING}left"
    left.mkdir()
    os.utime(left, (0, 0))
    copied(harness, harness.push(files={"data": "x"}), tmp_path / "last", cache)
    assert not left.exists()


def test_nothing_is_kept_of_an_archive_that_cannot_be_unpacked(harness, tmp_path):
    bundle = harness.push()
    with pytest.raises(InvalidBundle, match="deleted meanwhile"):
        copied(harness, bundle, tmp_path / "one", read=lambda _: None)
    with pytest.raises(InvalidBundle, match="digest"):
        copied(harness, bundle, tmp_path / "one", read=lambda _: b"x")
    assert [path for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []
    assert copied(harness, bundle, tmp_path / "two")


def test_a_folder_of_somebody_else_is_not_used(harness, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    with pytest.raises(OSError, match="does not belong to this user"):
        copied(harness, harness.push(), tmp_path / "one")
