"""The composite target."""

from dataclasses import replace

import pytest

from noonmark.core.ids import TRIGGER
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
    made = factories.schedule("uid-1")
    return Assignment(replace(factories.occurrence(made, TRIGGER, nominal=0), route=route), made, begins=0)


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
    assert [one.log for one in kinds.values()] == [[("open", "report", "now"), "close"]] * 2
