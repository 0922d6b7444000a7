"""Uploads on disk: stored whole or not at all, never through a link, and within the quota of a tenant."""

import errno
import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from noonmark.core.errors import Conflict, KeyReused, PayloadTooLarge, QuotaExceeded, StoreUnavailable
from noonmark.stores.files import UploadFolder, uploads

ALL = {"filename": "a.txt", "path": "/a.txt", "content_type": "text/plain", "now": 1_000}


@pytest.fixture
def place(tmp_path):
    return tmp_path / "uploads"


@pytest.fixture
def home(place):
    return UploadFolder(place, max_bytes=1_000, quota=2_000)


def add(home, upload_id="upl_1", data=b"hello", tenant="acme", **said):
    coming = home.receive(tenant, upload_id)
    try:
        coming.write(data)
        return coming.keep(**{**ALL, **said})
    finally:
        coming.drop()


def files(place):
    return sorted(str(one.relative_to(place)) for one in place.rglob("*") if not one.is_dir())


def all_of(home, tenant="acme"):
    found, end = home.page(tenant, 1_000)
    assert end is None
    return found


NOTHING = ["acme/.incoming/.count", "acme/.incoming/.lock"]
KEPT = [*NOTHING, "acme/.incoming/upl_1", "acme/upl_1/.upload.json", "acme/upl_1/a.txt"]


def test_what_is_kept_is_there_under_its_name_for_its_owner_alone(home, place):
    kept = add(home)
    assert (kept.size, kept.sha256[:8]) == (5, "2cf24dba")
    assert files(place) == KEPT
    home.announced("acme", "upl_1")
    assert files(place) == [*NOTHING, *KEPT[3:]]
    assert {stat.S_IMODE(one.stat().st_mode) for one in [place, *place.rglob("*")] if one.is_dir()} == {0o700}
    assert {stat.S_IMODE(one.stat().st_mode) for one in place.rglob("*") if one.is_file()} == {0o600}
    assert home.find("acme", "upl_1") == kept
    assert (home.find("other", "upl_1"), all_of(home, "other")) == (None, [])
    with home.open("acme", kept) as file:
        assert file.read() == b"hello"
    assert home.stored_path("acme", kept) == str(place / "acme/upl_1/a.txt")


def test_lists_have_the_newest_first_and_pass_over_what_cannot_be_read(home, place):
    kept = [add(home, f"upl_{number}", now=number) for number in range(3)]
    (place / "acme/upl_1/.upload.json").write_text("{")
    (place / "acme/stray").write_text("not ours")
    assert all_of(home) == [kept[2], kept[0]]
    assert home.find("acme", "upl_1") is None
    assert home.remove("acme", "upl_2") == kept[2]
    assert home.remove("acme", "upl_2") is None
    assert all_of(home) == [kept[0]]


def opened(monkeypatch, name):
    """Counts how often a file of that name is opened."""
    collected, really = [], os.open

    def counting(path, *args, **options):
        collected.extend([path] if path == name else [])
        return really(path, *args, **options)

    monkeypatch.setattr(os, "open", counting)
    return collected


def test_a_page_costs_what_is_on_it(home, monkeypatch):
    kept = [add(home, f"upl_{number}", b"x", now=1_000_000 * (number % 3)) for number in range(9)]
    in_order = sorted(kept, key=lambda one: (one.created, one.upload_id), reverse=True)
    notes = opened(monkeypatch, ".upload.json")
    pages, end = [], None
    while not pages or end is not None:
        page, end = home.page("acme", 4, after=end)
        pages.append(page)
    assert pages == [in_order[:4], in_order[4:8], in_order[8:]]
    assert len(notes) <= len(kept) + len(pages)


class TestWhatIsCounted:
    @pytest.fixture
    def counted(self, home, place):
        for number in range(3):
            add(home, f"upl_{number}", b"x" * 300)
        return place / "acme/.incoming/.count"

    def told(self, counted):
        return [int(one) for one in counted.read_text().split()[:2]]

    def test_is_written_down_and_not_looked_for_again(self, home, counted, monkeypatch):
        looked_at = [opened(monkeypatch, f"upl_{number}") for number in range(3)]
        add(home, "upl_3", b"x" * 100)
        assert looked_at == [[], [], []]
        assert self.told(counted) == [4, 1_000]
        home.remove("acme", "upl_0")
        assert self.told(counted) == [3, 700]
        with pytest.raises(QuotaExceeded):
            home.receive("acme", "upl_4", expected=1_301)

    @pytest.mark.parametrize("damage", [b"", b"0 0", b"\xff", b"9 9 9\n", b"-1 -1 -1\n", None])
    def test_is_counted_again_if_that_cannot_be_believed(self, home, counted, damage):
        if damage is None:
            counted.unlink()
        else:
            counted.write_bytes(damage)
        add(home, "upl_3", b"x" * 100)
        assert self.told(counted) == [4, 1_000]

    def test_is_counted_again_if_somebody_else_took_something_away(self, home, place, counted):
        shutil.rmtree(place / "acme/upl_1")
        os.utime(place / "acme", ns=(1, 1))  # some disks tell times apart only if they are milliseconds apart
        add(home, "upl_3", b"x" * 100)
        assert self.told(counted) == [3, 700]

    def test_is_counted_again_if_a_change_broke_off(self, home, counted, monkeypatch):
        def broken(*_, **__):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", broken)
            with pytest.raises(StoreUnavailable):
                home.remove("acme", "upl_1")
        assert not counted.exists()
        home.remove("acme", "upl_1")
        assert self.told(counted) == [2, 600]

    def test_is_counted_again_when_a_server_starts(self, home, place, counted):
        (place / "acme/upl_1/a.txt").write_bytes(b"x" * 1_000)
        assert len(list(home.sweep())) == 3
        with pytest.raises(QuotaExceeded):
            add(home, "upl_3", b"x" * 401)
        assert self.told(counted) == [3, 1_600]


def test_what_is_dropped_leaves_nothing(home, place):
    coming = home.receive("acme", "upl_1")
    coming.write(b"x" * 900)
    coming.drop()
    coming.drop()
    assert files(place) == NOTHING
    assert len(list((place / "acme/.incoming").iterdir())) == len(NOTHING)
    add(home, data=b"x" * 1_000)
    add(home, "upl_2", data=b"x" * 1_000)


def test_one_byte_too_many_is_refused_as_it_comes(home, place):
    coming = home.receive("acme", "upl_1")
    coming.write(b"x" * 1_000)
    with pytest.raises(PayloadTooLarge, match="1,000 bytes"):
        coming.write(b"x")
    coming.drop()
    assert files(place) == NOTHING


def test_the_quota_counts_what_is_kept_and_what_is_coming(home):
    add(home, data=b"x" * 1_000)
    with pytest.raises(QuotaExceeded):
        home.receive("acme", "upl_2", expected=1_001)
    second, third = home.receive("acme", "upl_2"), home.receive("acme", "upl_3")
    second.write(b"x" * 600)
    with pytest.raises(QuotaExceeded, match="2,000 bytes") as refused:
        third.write(b"x" * 401)
    assert refused.value.field == "file"
    assert refused.value.limit == {"name": "upload_bytes", "scope": "tenant", "value": 2_000, "used": 1_600}
    third.write(b"x" * 400)
    second.keep(**ALL)
    third.keep(**ALL)
    with pytest.raises(QuotaExceeded):
        add(home, "upl_4", data=b"x")
    add(home, "upl_4", data=b"x" * 1_000, tenant="other")
    home.remove("acme", "upl_1")
    add(home, "upl_5", data=b"x" * 1_000)


def test_the_usage_of_a_tenant_is_what_is_kept(home):
    assert [(quota.limit, used) for quota, used in home.usage("acme")] == [(10_000, 0), (2_000, 0)]
    add(home, data=b"x" * 700)
    add(home, "upl_2", data=b"x" * 1_000, tenant="other")
    assert [used for _, used in home.usage("acme")] == [1, 700]


@pytest.mark.parametrize("shared", [False, True], ids=["one server", "ten servers"])
def test_the_quota_holds_however_many_come_at_once(place, shared):
    homes = [UploadFolder(place, max_bytes=1_000, quota=2_000) for _ in range(10)]

    def attempt(number):
        try:
            return add(homes[number % 10 if shared else 0], f"upl_{number}", b"x" * 300)
        except QuotaExceeded:
            return None

    with ThreadPoolExecutor(10) as pool:
        kept = [one for one in pool.map(attempt, range(40)) if one is not None]
    assert sum(one.size for one in kept) <= 2_000
    assert len(all_of(UploadFolder(place, max_bytes=1, quota=1))) == len(kept)
    # However they raced, whoever comes now gets what is left.
    for number in range(6 - len(kept)):
        add(homes[0], f"upl_more{number}", b"x" * 300)
    with pytest.raises(QuotaExceeded):
        add(homes[0], "upl_last", b"x" * 300)


def test_one_tenant_leaves_places_for_others(place, monkeypatch):
    monkeypatch.setattr(uploads, "MAX_AT_ONCE", 4)
    home = UploadFolder(place, max_bytes=1_000, quota=2_000)
    coming = [home.receive("acme", f"upl_{number}") for number in range(2)]
    with pytest.raises(QuotaExceeded, match="too many files are being received"):
        home.receive("acme", "upl_2")
    coming.append(home.receive("other", "upl_2"))
    coming[0].drop()
    coming[1].keep(**ALL)  # its place is free from now on
    coming += [home.receive("acme", "upl_3")]
    for one in coming:
        one.drop()
    assert all(add(home, f"upl_{number}", tenant="third") for number in range(4, 8))


def test_their_number_is_limited(place, monkeypatch):
    monkeypatch.setattr(uploads, "MAX_UPLOADS", 2)
    home = UploadFolder(place, max_bytes=1_000, quota=2_000)
    add(home)
    add(home, "upl_2")
    with pytest.raises(QuotaExceeded, match="delete some"):
        home.receive("acme", "upl_3")


def test_the_same_file_under_the_same_id_is_kept_once(home, place):
    first = add(home)
    assert add(home, now=9_999) == first
    assert files(place) == KEPT
    for other in ({"data": b"other"}, {"filename": "b.txt"}, {"path": "/b"}):
        with pytest.raises(KeyReused):
            add(home, **other)
    assert files(place) == KEPT
    coming = home.receive("acme", "upl_2")
    with pytest.raises(Conflict, match="still coming in"):
        home.receive("acme", "upl_2")
    coming.drop()


@pytest.mark.parametrize("where", ["acme", "acme/.incoming", "acme/.incoming/upl_1.part", "acme/.incoming/.lock"])
def test_nothing_is_written_through_a_link(home, place, tmp_path, where):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = place / where
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere / "file" if where.endswith("lock") else elsewhere)
    with pytest.raises((StoreUnavailable, Conflict)):
        add(home)
    assert list(elsewhere.iterdir()) == []


def test_nothing_is_read_or_removed_through_a_link(home, place, tmp_path):
    kept = add(home)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (place / "acme/upl_1/a.txt").unlink()
    (place / "acme/upl_1/a.txt").symlink_to(secret)
    with pytest.raises(StoreUnavailable):
        home.open("acme", kept)
    home.remove("acme", "upl_1")
    assert secret.read_text() == "secret"
    (place / "acme/upl_2").symlink_to(tmp_path)
    assert home.find("acme", "upl_2") is None
    assert home.remove("acme", "upl_2") is None
    (place / "acme/.incoming/upl_3.part").symlink_to(tmp_path)
    assert list(home.sweep()) == []
    assert (secret.exists(), (place / "acme/.incoming/upl_3.part").is_symlink()) == (True, False)


def test_a_folder_in_place_of_a_file_is_removed_with_what_is_in_it(home, place):
    add(home)
    (place / "acme/upl_1/a.txt").unlink()
    (place / "acme/upl_1/a.txt/deep/down").mkdir(parents=True)
    (place / "acme/upl_1/a.txt/deep/file").touch()
    assert home.remove("acme", "upl_1") is not None
    assert not (place / "acme/upl_1").exists()
    assert list(home.sweep()) == []


def test_a_full_disk_is_told_and_leaves_nothing(home, place, monkeypatch):
    coming = home.receive("acme", "upl_1")
    coming.write(b"hello")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(StoreUnavailable, match="the disk is full") as refused:
            coming.write(b"more")
        assert str(place) not in str(refused.value)
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            coming.keep(**ALL)
    coming.drop()
    assert files(place) == NOTHING
    add(home)


def test_what_a_killed_server_left_is_swept_and_what_it_kept_is_reported(home, place):
    kept = add(home)
    add(home, "upl_2")
    home.announced("acme", "upl_2")
    live = home.receive("acme", "upl_3")
    live.write(b"still coming")
    for name in ("upl_4.part", "upl_5.gone"):
        (place / "acme/.incoming" / name).mkdir()
        (place / "acme/.incoming" / name / "content").write_text("half of it")
    (place / "acme/.incoming/upl_6").touch()
    other = UploadFolder(place, max_bytes=1_000, quota=2_000)
    assert list(other.sweep()) == [("acme", kept)]
    assert sorted(one.name for one in (place / "acme/.incoming").glob("[!.]*")) == ["upl_1", "upl_3.part"]
    other.announced("acme", "upl_1")
    assert live.keep(**ALL).size == 12
    live.drop()
    assert [one.upload_id for one in all_of(home)] == ["upl_3", "upl_2", "upl_1"]
    assert list(UploadFolder(place / "nowhere", max_bytes=1, quota=1).sweep()) == []


def test_a_folder_that_is_none_is_reported(home, place):
    place.write_text("a file")
    for use in (partial(home.page, limit=1), home.receive, lambda *_: list(home.sweep())):
        with pytest.raises(StoreUnavailable) as refused:
            use(*("acme", "upl_1")[: 2 if use == home.receive else 1])
        assert str(place) not in str(refused.value)
