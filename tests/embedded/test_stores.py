"""The URL of a store: what it means, and the error for an invalid one."""

from pathlib import Path

import pytest

from noonmark import InvalidSchedule, Scheduler, StoreUnavailable
from tests.embedded.waiting import NEVER


def nothing():
    pass


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    scheduler = Scheduler("sqlite:///~/jobs.db")
    job_id = scheduler.schedule(nothing, trigger=NEVER)
    scheduler.close()
    assert sorted(one.name for one in tmp_path.iterdir() if one.suffix == ".db") == ["jobs.db"]
    again = Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}")
    assert again.get_job(job_id) is not None
    again.close()


def test_without_a_home_folder_it_is_refused(monkeypatch):
    def no_home(path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", no_home)
    with pytest.raises(InvalidSchedule, match="write an absolute path") as refused:
        Scheduler("sqlite:///~/jobs.db")
    assert refused.value.field == "store"


def test_a_tilde_elsewhere_is_part_of_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Scheduler("sqlite:///jobs~.db").close()
    assert (tmp_path / "jobs~.db").exists()


def test_a_folder_that_is_missing_is_named(tmp_path):
    missing = tmp_path / "no" / "such"
    with pytest.raises(StoreUnavailable, match=f"there is no folder {missing}$"):
        Scheduler(f"sqlite:///{missing / 'jobs.db'}")
    assert not missing.exists()


def test_a_relative_folder_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        StoreUnavailable, match=r"the database .*data/jobs\.db cannot be opened: there is no folder .*/data$"
    ):
        Scheduler("sqlite:///data/jobs.db")


def test_a_folder_is_no_database(tmp_path):
    with pytest.raises(StoreUnavailable, match="Is a directory"):
        Scheduler(f"sqlite:///{tmp_path}")
