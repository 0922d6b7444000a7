"""Clock repair in SQL changes each row as the rule does."""

from dataclasses import replace
from itertools import product

from noonmark.core.ids import TRIGGER, manual
from noonmark.core.instants import SECOND
from noonmark.core.lifecycle import Phase
from noonmark.core.planner import first_plan
from noonmark.core.policies.retry import LONGEST_RETRY
from noonmark.core.reasons import Reason
from noonmark.stores.rules.clock_repair import repair_row, repair_state
from noonmark.stores.sql.clock_repair import repair
from noonmark.stores.sql.records import ROW_COLUMNS, STATE_COLUMNS, row_values, state_values
from noonmark.stores.sqlite import SqliteStore
from noonmark.testing import factories
from noonmark.testing.conformance import HandClock
from noonmark.testing.conformance.bench import LEASE, LOOKAHEAD
from noonmark.testing.factories import NOW

AFTER = NOW + SECOND
TIMES = (NOW, AFTER, AFTER + 1, AFTER + LONGEST_RETRY + 1)
STATES = f"SELECT {', '.join(STATE_COLUMNS)} FROM schedule_states ORDER BY schedule"  # noqa: S608 - our own names
ROWS = f"SELECT {', '.join(ROW_COLUMNS)} FROM occurrences ORDER BY key"  # noqa: S608 - likewise


def rows_of(uow, state, schedule):
    """Rows in every phase with times around the limit."""
    made = product((Phase.PENDING, Phase.CLAIMED, Phase.DISPATCHING, Phase.COMPLETED), (TRIGGER, manual), (0, 1))
    for number, ((phase, origin, attempt), due, time) in enumerate(product(made, TIMES, TIMES)):
        asked = origin if origin == TRIGGER else origin(f"key-{number}")
        occurrence = factories.occurrence(schedule, asked, nominal=NOW + number)
        row = uow.new_row(replace(occurrence, phase=phase, due=due, attempt=attempt), state)
        row.ready = row.lease_end = None
        if phase is Phase.PENDING:
            row.ready = time
        elif phase is Phase.COMPLETED:
            row.ended, row.reason = time, Reason.SUCCEEDED
        else:
            row.lease_end, row.node = time, "node"
        yield row


def test_the_statements_and_the_rule_set_back_the_same_times(tmp_path):
    store = SqliteStore(tmp_path / "store.db", HandClock())
    store.open()
    schedules = [factories.schedule(f"uid-{number}") for number in range(len(TIMES) ** 2)]
    store.create([first_plan(one, lookahead=LOOKAHEAD) for one in schedules])

    def prepare(uow):
        states = uow.states_in(STATES)
        for state, (plan_at, watermark) in zip(states, product(TIMES, TIMES), strict=True):
            state.plan_at, state.watermark = plan_at, watermark
            uow.changed_state(state)
        for row in rows_of(uow, states[0], schedules[0]):
            uow.add_row(row)

    def mend_by_rule(uow):
        states, rows = uow.states_in(STATES), uow.rows_in(ROWS)
        count = sum(repair_state(state, now=NOW, after=AFTER) for state in states)
        count += sum(repair_row(row, now=NOW, after=AFTER, lease=LEASE) for row in rows)
        return count, [[state_values(one) for one in states], [row_values(one) for one in rows]]

    def mend_by_statements(uow):
        count = repair(uow.session, now=NOW, after=AFTER, lease=LEASE)
        return count, [uow.session.query(query) for query in (STATES, ROWS)]

    store._write_unlocked(prepare)
    by_rule = store._read(mend_by_rule)  # and nothing of it is written
    assert by_rule[0] > 0
    assert store._write_unlocked(mend_by_statements) == by_rule
    store.close()
