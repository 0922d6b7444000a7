"""The SQLite file: copied at random instants, and bounded in size; what was acknowledged is in the copy."""

import shutil
from pathlib import Path

from noonmark import Scheduler
from tests.processes import work
from tests.processes.fleet import Chance, every
from tests.soak import SCALE


def test_a_copy_of_any_instant_has_everything_that_was_acknowledged(fleet, figure):
    copies = 4 * SCALE
    node = fleet.node(15.0)
    for n in range(10):
        fleet.scheduler.schedule(work.record, trigger=every(0.05, count=400 * SCALE, offset=n * 5_003), overlap="allow")
    caller = fleet.start("caller", ready="created", does="create", count=100_000)
    chance, taken = Chance("copies"), []
    for n in range(copies):
        chance.pause(0.2, 0.6)
        for process in (caller, node):
            fleet.freeze(process)
        taken.append(copy(fleet, n))
        for process in (caller, node):
            fleet.thaw(process)
    judged = [judge(fleet, path, ids) for path, ids in taken]
    acknowledged = sum(len(ids) for _, ids in taken)
    missing, rows = (sum(column) for column in zip(*judged, strict=True))
    figure(
        f"copies: {copies}, {acknowledged} acknowledged creates, missing {missing}, "
        f"{rows} occurrences, all whole, all work"
    )
    assert acknowledged
    assert missing == 0


def copy(fleet, n):
    """What the disk has at this instant, with the ids that were acknowledged by then."""
    folder = fleet.folder / f"copy-{n}"
    folder.mkdir()
    for part in filter(Path.is_file, fleet.folder.glob("schedules.db*")):
        shutil.copy(part, folder)
    return folder / "schedules.db", [line["id"] for line in fleet.journal.of("created")]


def judge(fleet, path, ids):
    """How many ids are missing in a copy, and how many occurrences it has; it must be whole, and work."""
    fleet.path = path
    assert fleet.sql("PRAGMA integrity_check") == [("ok",)]
    assert fleet.sql("PRAGMA foreign_key_check") == []
    assert fleet.sql("SELECT key FROM schedules WHERE key NOT IN (SELECT schedule FROM schedule_states)") == []
    # What a state counts is what there is: both are written in one transaction, or neither.
    assert (
        fleet.sql(
            "SELECT uid FROM schedule_states AS s WHERE live != (SELECT count(*) FROM occurrences AS o WHERE"
            " o.schedule = s.schedule AND ended IS NULL) OR history != (SELECT count(*) FROM occurrences AS o WHERE"
            " o.schedule = s.schedule AND ended IS NOT NULL)"
        )
        == []
    )
    # A completed occurrence has one completed run.
    assert (
        fleet.sql(
            "SELECT id FROM occurrences WHERE (phase = 'completed') != (SELECT count(*) FROM runs WHERE"
            " occurrence = key AND outcome = 'completed')"
        )
        == []
    )
    found = {one for (one,) in fleet.sql("SELECT schedule_id FROM schedules")}
    [(rows,)] = fleet.sql("SELECT count(*) FROM occurrences")
    scheduler = Scheduler(f"sqlite:///{path}")
    assert scheduler.run_now(scheduler.schedule(work.nothing)) == "done"
    scheduler._runtime.store.close()
    return len(set(ids) - found), rows


def test_a_file_that_cannot_grow_refuses_and_works_again_when_it_can(fleet, figure):
    fleet.may_complain = True  # its node tells that it has to try again
    caller = fleet.start("caller", ready=None, does="fill", room=100_000)
    assert caller.wait(120) == 0, fleet.complaints()
    created = [line["id"] for line in fleet.journal.of("created")]
    refused = fleet.journal.of("refused")
    missing = [one for one in created if fleet.kept(one) is None]
    [(kept,)] = fleet.sql("SELECT count(*) FROM schedules")
    [steady], [lifted] = fleet.journal.of("steady"), fleet.journal.of("lifted")
    begins = fleet.journal.begins(steady["id"])
    repeated = len(begins) - len({line["occurrence"] for line in begins})
    after = sum(line["at"] > lifted["at"] for line in begins)
    figure(
        f"full: {len(created)} created, {len(refused)} refused, missing {missing}, "
        f"kept without being acknowledged {kept - len(created) - 2}, {after} runs of another schedule after the limit "
        f"was lifted, repeated runs {repeated}"
    )
    assert fleet.sql("PRAGMA integrity_check") == [("ok",)]
    assert not missing
    assert kept == len(created) + 2, "those that were created, the steady one, and the last"
    assert fleet.journal.of("ran", result="done")
    assert after > 0
    assert repeated == 0
