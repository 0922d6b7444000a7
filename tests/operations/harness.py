"""Operations on a store with a fake clock, and a driver that runs on demand."""

from datetime import UTC, datetime
from itertools import count

from noonmark import Scheduler
from noonmark.core.instants import SECOND
from noonmark.core.schedule import Owner
from noonmark.operations.service import Caller, Service
from noonmark.operations.table import perform
from noonmark.testing import FakeClock, ManualDriver

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LOCAL = Caller(owner=Owner(tenant="default", user="local"), name="local", source="rest", request_id="req-1")
FOREIGN = Caller(owner=Owner(tenant="elsewhere", user="mallory"), name="mallory", source="rest")
EVERY_MINUTE = {"type": "interval", "every_seconds": 60}
REPORT = {"target_kind": "function", "function": "report"}


class Harness:
    """Operations by name: `harness("schedule/get", schedule_id=..)`."""

    def __init__(self, store="memory://"):
        self.clock = FakeClock(START)
        self.scheduler = Scheduler(store, clock=self.clock)
        self.driver = ManualDriver(self.scheduler)
        self.calls = []
        self.answers = []
        self.scheduler.register_function("report", self._report)
        numbers = count(1)
        self.service = Service(
            store=self.scheduler._store,
            lookahead=2 * SECOND,
            fresh_id=lambda: f"fresh{next(numbers):04}",
            node="here",
        )

    def _report(self, context):
        self.calls.append(context)
        answer = self.answers.pop(0) if self.answers else "done"
        if isinstance(answer, Exception):
            raise answer
        return answer

    def __call__(self, name, /, caller=LOCAL, **arguments):
        return perform(self.service, caller, name, arguments)

    def create(self, **document):
        return self("schedule/create", **{"trigger": EVERY_MINUTE, "target": REPORT, **document})

    def pass_by(self, seconds):
        self.clock.advance(seconds)
        self.driver.run_due()
