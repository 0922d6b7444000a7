"""A rolling upgrade: nodes of this version and of a later one share a database under load."""

import shutil
import signal

from noonmark.core.triggers import IntervalTrigger
from noonmark.stores.sql.schema.version import VERSION
from tests.processes import work
from tests.processes.checker import check
from tests.processes.fleet import ROOT, every
from tests.soak import SCALE

LATER = "9999"
MIGRATION = """
    SET search_path TO noonmark;
    ALTER TABLE occurrences ADD COLUMN written_by text;
    ALTER TABLE schedule_states ADD COLUMN written_by text;
    UPDATE alembic_version SET version_num = '9999';
"""
UPDATES = ("UPDATE occurrences SET ", "UPDATE schedule_states SET ")
WRITTEN = "SELECT count(written_by), count(*) FROM {}"


def later_version(folder):
    """A copy of Noonmark that knows a later schema, and writes a column that this one has never heard of."""
    package = folder / "later" / "noonmark"
    shutil.copytree(ROOT / "src" / "noonmark", package)
    sql = package / "stores" / "sql"
    replace(sql / "schema" / "version.py", f'VERSION = "{VERSION}"', f'VERSION = "{LATER}"')
    for update in UPDATES:
        replace(sql / "fast_path.py", update, f"{update}written_by = 'later', ")
    return package.parent


def replace(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def migrate(database, attempts=5):
    """As `upgrade` does it: nodes lock the same tables in another order, and PostgreSQL may end either of the two."""
    try:
        database.sql(f"BEGIN; {MIGRATION} COMMIT")
    except AssertionError as error:
        if attempts == 1 or "deadlock" not in str(error):
            raise
        migrate(database, attempts - 1)


def test_a_rolling_upgrade_loses_nothing_and_doubles_nothing(postgres_fleet, database, figure, tmp_path):
    fleet, later = postgres_fleet, later_version(tmp_path)
    nodes = [fleet.node(15.0) for _ in range(2)]
    ids = [
        fleet.scheduler.schedule(
            work.record,
            trigger=every(0.25, count=20 * SCALE, offset=n * 11_003),
            overlap="allow" if n % 2 else "queue",
            misfire={"type": "catch_up_all", "limit": 1_000},
        )
        for n in range(5)
    ]
    steady = fleet.scheduler.schedule(work.record, trigger=IntervalTrigger(0.2), overlap="allow")
    fleet.until(lambda: all(fleet.journal.of("settled", pid=node.pid) for node in nodes))
    migrate(database)
    for old in nodes:
        new = fleet.node(15.0, source=later)
        fleet.until(lambda new=new: len(fleet.journal.of("settled", pid=new.pid)) > 6 * SCALE)
        old.send_signal(signal.SIGTERM)
        assert old.wait(60) == 0, fleet.complaints()
    fleet.scheduler.delete(steady)
    fleet.completed(ids)
    verdict = check(fleet, ids)
    failures = fleet.journal.of("store_failed")
    shares = [len(fleet.journal.of("end", pid=node.pid)) for node in fleet.processes]
    written = {table: fleet.sql(WRITTEN.format(table))[0] for table in ("occurrences", "schedule_states")}
    figure(f"rolling upgrade: {verdict}, runs by node {shares}, written by the later one {written}, errors {failures}")
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": verdict.fires}
    assert verdict.repeated == 0
    assert verdict.accepted == 1
    assert not failures
    assert all(shares)
    assert len(begun := fleet.journal.begins(steady)) == len({line["occurrence"] for line in begun})
    assert all(0 < later <= every_one for later, every_one in written.values())
