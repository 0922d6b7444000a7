"""Damaged rows: each ends with a reason, and all others run."""

from noonmark.core.instants import SECOND
from tests.processes import work
from tests.processes.checker import check
from tests.processes.fleet import CLOCK, every

EACH = {"misfire": {"type": "catch_up_all", "limit": 1_000}, "overlap": "queue"}
"""Every fire runs, however busy the machine is."""
NONSENSE = '{"type": "nonsense'
SCHEDULE = "UPDATE schedules SET {column} = ?1 WHERE schedule_id = ?2"
OCCURRENCE = """
    UPDATE occurrences SET {column} = ?1
    WHERE ended IS NULL AND schedule = (SELECT key FROM schedules WHERE schedule_id = ?2)
"""
DAMAGES = {
    "trigger_document": SCHEDULE,
    "terms_document": SCHEDULE,
    "labels": SCHEDULE,
    "payload": OCCURRENCE,
    "reason": OCCURRENCE,
    "origin": OCCURRENCE,
}
FAULT = "SELECT fault FROM schedule_states JOIN schedules ON key = schedule WHERE schedule_id = ?"
FATES = """
    SELECT phase, reason FROM occurrences JOIN schedules ON schedules.key = schedule
    WHERE schedule_id = ? AND first_due <= ?
"""


def test_damaged_rows_are_taken_out_and_all_others_run(fleet, figure):
    before = doomed(fleet, after=2)
    sound = [fleet.scheduler.schedule(work.record, trigger=every(0.5, count=10), **EACH) for _ in range(10)]
    first = fleet.node(2.0)
    fleet.until(lambda: all(fleet.journal.begins(one) for one in sound))
    meanwhile = doomed(fleet, after=4)
    fleet.node(2.0)
    fleet.kill(first)  # it may know them from before the damage
    fleet.completed(sound)
    verdict = check(fleet, sound)
    ids = [*before.items(), *meanwhile.items()]
    fleet.until(lambda: all(is_taken_out(fleet, *one) for one in ids))
    figure(f"damaged rows: {len(ids)} taken out with a reason; beside them {verdict}")
    assert verdict.is_sound
    assert verdict.outcomes == {"completed": verdict.fires}


def doomed(fleet, *, after):
    """A schedule for each kind of damage, which is done."""
    ids = {
        what: fleet.scheduler.schedule(work.record, trigger=every(0.5, count=100, after=after), **EACH)
        for what in DAMAGES
    }
    for what, one in ids.items():
        damage(fleet, what, one)
    return ids


def damage(fleet, what, schedule_id):
    fleet.sql(DAMAGES[what].format(column=what), NONSENSE, schedule_id)


def is_taken_out(fleet, what, schedule_id):
    """Whether a schedule that cannot be read is out of the way, and whether a row that cannot be read has ended so."""
    [(fault,)] = fleet.sql(FAULT, schedule_id)
    fates = fleet.sql(FATES, schedule_id, CLOCK.micros() - 2 * SECOND)
    if DAMAGES[what] is SCHEDULE:
        return (
            fault is not None
            and fates
            and set(fates) <= {("delivery_failed", "unreadable"), ("completed", "succeeded")}
        )
    if ("delivery_failed", "unreadable") not in fates:
        damage(fleet, what, schedule_id)  # on a busy machine, the node may have read the row before its damage
        return False
    return fault is None and fleet.journal.begins(schedule_id)
