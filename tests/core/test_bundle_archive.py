"""The listing of an archive is judged before anything of it is unpacked."""

from __future__ import annotations

import stat
from dataclasses import replace

import pytest

from noonmark.core.bundles.archive import MAX_PROBLEMS, ArchiveLimits, Entry, check_entries, root_folder
from noonmark.core.errors import InvalidBundle

PLAIN = Entry(name="job.py", size=100, packed=60, mode=0o100644)
PACKED = 1_000


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (replace(PLAIN, name="../evil"), "leads out"),
        (replace(PLAIN, name="a/../../evil"), "leads out"),
        (replace(PLAIN, name="/etc/passwd"), "absolute"),
        (replace(PLAIN, name="C:/evil"), "absolute"),
        (replace(PLAIN, name="a\\b"), "backslash"),
        (replace(PLAIN, name="a\0b"), "control character"),
        (replace(PLAIN, name="a//b"), "plain path"),
        (replace(PLAIN, name="./a"), "plain path"),
        (replace(PLAIN, name=""), "plain path"),
        (replace(PLAIN, name="x" * 256), "255 bytes"),
        (replace(PLAIN, mode=stat.S_IFLNK | 0o777), "link"),
        (replace(PLAIN, mode=stat.S_IFCHR), "device"),
        (replace(PLAIN, mode=stat.S_IFIFO), "pipe"),
        (replace(PLAIN, is_encrypted=True), "encrypted"),
        (replace(PLAIN, method=12), "compressed in a way"),
        (replace(PLAIN, size=2**40), "bytes unpacked"),
        (replace(PLAIN, size=2**21, packed=100), "times larger"),
        (replace(PLAIN, name="manifest.json", size=2**20 + 1, packed=2**20), "at most 1,048,576"),
    ],
)
def test_a_hostile_entry_is_named(entry: Entry, words: str) -> None:
    with pytest.raises(InvalidBundle, match=words) as caught:
        check_entries([PLAIN if entry.name != PLAIN.name else replace(PLAIN, name="other"), entry], packed=2**20)
    [problem] = caught.value.problems
    assert problem.field.startswith('"')
    assert problem.code == "invalid_bundle"


@pytest.mark.parametrize("second", ["job.py", "JOB.PY", "Job.py/"])
def test_two_entries_must_not_be_the_same_file_anywhere(second: str) -> None:
    with pytest.raises(InvalidBundle, match="twice"):
        check_entries([PLAIN, replace(PLAIN, name=second)], packed=PACKED)


def test_a_file_is_no_folder() -> None:
    with pytest.raises(InvalidBundle, match="a file") as caught:
        check_entries([replace(PLAIN, name="A/b/c"), replace(PLAIN, name="a/B")], packed=PACKED)
    assert caught.value.field == '"A/b/c"'


def test_folders_and_modes_that_are_not_told_are_fine() -> None:
    check_entries([replace(PLAIN, name="lib/", mode=0o40755), replace(PLAIN, name="lib/a", mode=0)], packed=PACKED)


def test_all_files_together_have_limits() -> None:
    limits = ArchiveLimits(max_files=3, max_bytes=3_000_000, judged_from=1_000_000)
    half = replace(PLAIN, size=2_000_000, packed=1_000_000)
    with pytest.raises(InvalidBundle, match=r'4,000,000 bytes unpacked.*largest is "a"'):
        check_entries([replace(half, name="a"), replace(half, name="b")], packed=2_000_000, limits=limits)
    with pytest.raises(InvalidBundle, match="4 entries"):
        check_entries([replace(PLAIN, name=str(number)) for number in range(4)], packed=PACKED, limits=limits)
    # Entries may overlap in the archive: each has a good ratio, and all of them together have not.
    with pytest.raises(InvalidBundle, match="2,000 times larger"):
        check_entries([replace(half, name="a")], packed=1_000, limits=limits)


def test_a_long_list_of_problems_is_cut() -> None:
    entries = [replace(PLAIN, name=f"../{number}") for number in range(1_000)]
    with pytest.raises(InvalidBundle, match="and 19 more") as caught:
        check_entries(entries, packed=PACKED)
    assert len(caught.value.problems) == MAX_PROBLEMS
    entries = [PLAIN, *(replace(PLAIN, name=f"job.py/{number}") for number in range(1_000))]
    with pytest.raises(InvalidBundle) as caught:
        check_entries(entries, packed=PACKED)
    assert len(caught.value.problems) == MAX_PROBLEMS


def test_the_manifest_is_at_the_top_or_in_the_only_folder() -> None:
    assert root_folder(["manifest.json", "lib/manifest.json"]) == ""
    assert root_folder(["eval/", "eval/manifest.json", "eval/job.py"]) == "eval/"
    for names in (["eval/manifest.json", "other.py"], ["job.py"], []):
        with pytest.raises(InvalidBundle, match=r"no manifest\.json"):
            root_folder(names)
