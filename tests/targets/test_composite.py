"""The composite target."""

from dataclasses import replace

import pytest

from noonmark.core.ids import TRIGGER
from noonmark.core.schedule import TRUSTED
from noonmark.core.targets import FunctionTarget
from noonmark.core.targets.permissions import TargetPermissions
from noonmark.ports.target import Assignment
from noonmark.targets.composite import CompositeTarget
from noonmark.testing import factories


class Kind:
    """Records its calls."""

    def __init__(self, *routes):
        self.served, self.log, self.given = list(routes), [], []

    def routes(self):
        return tuple(self.served)

    def adopt(self, routes):
        self.served += routes
        return bool(routes)

    def open(self, report, now):
        self.log.append(("open", report, now))

    def deliver(self, assignments):
        self.given.append(list(assignments))

    def withdraw(self):
        return [one for batch in self.given for one in batch]

    def close(self):
        self.log.append("close")


@pytest.fixture
def kinds():
    return {"function": Kind("function:a"), "http": Kind("http")}


def assignment(route):
    schedule = factories.schedule("uid-1")
    return Assignment(replace(factories.occurrence(schedule, TRIGGER, nominal=0), route=route), schedule, begins=0)


def test_routes_are_those_of_all_targets(kinds):
    both = CompositeTarget(kinds)
    assert both.routes() == ("function:a", "http")
    assert both.adopt(["function:b:c"])
    assert not both.adopt(["command"])
    assert both.routes() == ("function:a", "function:b:c", "http")


def test_each_target_gets_its_assignments_in_one_call(kinds):
    both = CompositeTarget(kinds)
    batch = [assignment(route) for route in ("function:a", "http", "function:b", "http")]
    both.deliver(batch)
    both.deliver(batch[1::2])
    assert kinds["function"].given == [[batch[0], batch[2]]]
    assert kinds["http"].given == [[batch[1], batch[3]], [batch[1], batch[3]]]
    assert both.withdraw() == [batch[0], batch[2], batch[1], batch[3], batch[1], batch[3]]


def test_all_targets_are_opened_and_closed(kinds):
    both = CompositeTarget(kinds)
    both.open("report", "now")
    both.close()
    assert [(one.log[0][2], one.log[1]) for one in kinds.values()] == [("now", "close")] * 2


def test_a_step_reports_to_its_workflow_and_is_not_withdrawn(kinds):
    both, reports = CompositeTarget(kinds), []
    both.open(lambda one, outcome: reports.append(("node", one, outcome)), lambda: 7)
    own, step = assignment("function:a"), assignment("function:a")
    step.report_to = lambda one, outcome: reports.append(("workflow", one, outcome))
    both.deliver([own, step])
    report = kinds["function"].log[0][1]
    report(own, "done")
    report(step, "done")
    assert reports == [("node", own, "done"), ("workflow", step, "done")]
    assert both.withdraw() == [own]


def test_what_a_tenant_may_not_use_is_not_delivered(kinds):
    reported = []
    target = CompositeTarget(kinds, TargetPermissions(functions={"acme": frozenset({"a"})}))
    target.open(lambda one, outcome: reported.append((one, outcome)), lambda: 7)
    created = factories.schedule("uid-1")

    def work(function, source="rest", tenant="acme"):
        declared = replace(created.declaration, target=FunctionTarget(function=function))
        schedule = replace(created, declaration=declared, source=source, owner=replace(created.owner, tenant=tenant))
        row = replace(factories.occurrence(schedule, TRIGGER, nominal=0), route=f"function:{function}")
        return Assignment(row, schedule, begins=9)

    allowed, trusted, refused, foreign = work("a"), work("b", TRUSTED), work("b"), work("a", tenant="other")
    target.deliver([allowed, trusted, refused, foreign])
    target.deliver([refused])
    assert kinds["function"].given == [[allowed, trusted]]
    assert [one for one, _ in reported] == [refused, foreign, refused]
    outcome = reported[0][1]
    assert (outcome.outcome, outcome.started, outcome.ended) == ("delivery_failed", 9, 9)
    assert "may not use this function" in outcome.error
