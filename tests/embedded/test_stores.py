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
    scheduler = Scheduler("sqlite:///jobs~.db")
    scheduler.list_jobs()
    scheduler.close()
    assert (tmp_path / "jobs~.db").exists()


@pytest.mark.parametrize("store", ["jobs.db", Path("jobs"), "folder/../jobs.sqlite3"])
def test_a_path_is_that_of_a_sqlite_file(tmp_path, monkeypatch, store):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    scheduler = Scheduler(store)
    scheduler.schedule(nothing, trigger=NEVER)
    scheduler.close()
    assert (tmp_path / store).is_file()


def test_other_text_may_be_a_typo_and_says_how_a_path_is_written():
    with pytest.raises(InvalidSchedule, match="store: 'memory' is a path, not the URL of a store; write sqlite:///mem"):
        Scheduler("memory")
    with pytest.raises(InvalidSchedule, match="store: 5 names no store"):
        Scheduler(5)


def test_a_folder_that_is_missing_is_named(tmp_path):
    missing = tmp_path / "no" / "such"
    with pytest.raises(StoreUnavailable, match=f"there is no folder {missing}$"):
        Scheduler(f"sqlite:///{missing / 'jobs.db'}").start()
    assert not missing.exists()


def test_a_relative_folder_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        StoreUnavailable, match=r"the database .*data/jobs\.db cannot be opened: there is no folder .*/data$"
    ):
        Scheduler("sqlite:///data/jobs.db").start()


def test_a_folder_is_not_a_database(tmp_path):
    with pytest.raises(StoreUnavailable, match="Is a directory"):
        Scheduler(f"sqlite:///{tmp_path}").start()


def test_a_module_that_declares_jobs_can_be_imported_without_its_database(tmp_path):
    """The file is created when the scheduler is used, and everything is declared then, in order."""
    scheduler = Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}")

    @scheduler.every(hours=1, name="first", function_name="first")
    def first():
        return "one"

    @scheduler.daily("09:00", name="second", function_name="second", depends_on=[first.job_id])
    def second():
        return "two"

    expected = first.job_id, second.job_id
    assert list(tmp_path.iterdir()) == []
    assert [(job.id, job.name) for job in scheduler.list_jobs()] == list(
        zip(expected, ("first", "second"), strict=True)
    )
    assert (first.job_id, second.job_id) == expected
    assert scheduler.run_now(first.job_id) == "one"
    scheduler.close()


def test_in_memory_a_function_without_a_name_has_its_id_before_it_is_declared():
    scheduler = Scheduler()
    first, second = scheduler.every(60)(lambda: 1), scheduler.every(60)(lambda: 2)
    assert [job.id for job in scheduler.list_jobs()] == [first.job_id, second.job_id]
    assert scheduler.run_now(second.job_id) == 2


def test_a_database_that_is_down_fails_the_start_and_the_next_one_declares_everything(tmp_path):
    scheduler = Scheduler(f"sqlite:///{tmp_path / 'later' / 'jobs.db'}")
    work = scheduler.every(hours=1, function_name="work")(lambda: None)
    with pytest.raises(StoreUnavailable):
        scheduler.start()
    with pytest.raises(StoreUnavailable):
        scheduler.get_job(work.job_id)
    (tmp_path / "later").mkdir()
    with scheduler:
        assert scheduler.get_job(work.job_id).name == "work"
    scheduler.close()


def test_what_is_wrong_in_a_decorator_is_refused_where_it_stands(tmp_path):
    scheduler = Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}")
    for options in ({"retries": -1}, {"overlap": "sometimes"}, {"args": [1]}, {"labels": {"": "a"}}):
        with pytest.raises(InvalidSchedule):
            scheduler.every(60, function_name="work", **options)(lambda: None)
    assert (list(tmp_path.iterdir()), scheduler.list_jobs()) == ([], [])
    scheduler.close()


def test_an_id_that_a_renamed_schedule_has_is_not_confused_with_it(tmp_path):
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    before = Scheduler(url)
    old = before.schedule(nothing, name="poll", trigger=NEVER)
    before.update(old, name="old poll")
    before.close()
    scheduler = Scheduler(url)
    work = scheduler.every(hours=1, name="poll", function_name="work")(lambda: None)
    expected = work.job_id
    assert scheduler.get_job(expected).name == "poll"
    assert scheduler.get_job(old).name == "old poll"
    assert work.job_id not in (expected, old)
    scheduler.pause(expected)
    assert {job.name: str(job.status) for job in scheduler.list_jobs()} == {"old poll": "pending", "poll": "paused"}
    scheduler.close()
