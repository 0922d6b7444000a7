"""Which schedules belong to a pipeline, and when its node is gone."""

from dataclasses import replace

import pytest

from noonmark.core.instants import SECOND
from noonmark.core.pipeline_ownership import (
    BEYOND,
    PREFIX,
    STOPPED_FOR,
    UNKNOWN_FOR,
    is_abandoned,
    owner_key,
    owner_of,
    pipeline_schedule_id,
)
from noonmark.core.schedule import TRUSTED
from tests.core.scheduled import scheduled

OWN = replace(scheduled(), source=TRUSTED, schedule_id=pipeline_schedule_id("host-17-abc", "u1"))
NOW = OWN.created + 3_600 * SECOND


def test_the_id_of_a_schedule_names_the_node_that_runs_its_pipeline():
    assert owner_of(OWN) == owner_key("host-17-abc") != owner_key("host-17-abd")
    assert PREFIX < OWN.schedule_id < BEYOND


@pytest.mark.parametrize(
    "other",
    [
        replace(OWN, source="rest"),
        replace(OWN, schedule_id="job_1"),
        replace(OWN, declaration=replace(OWN.declaration, name="nightly")),
    ],
)
def test_other_schedules_belong_to_no_pipeline(other):
    assert owner_of(other) is None


@pytest.mark.parametrize(
    ("record", "now", "gone"),
    [
        ({"is_known": True, "is_alive": True, "left": None}, NOW, False),
        ({"is_known": True, "is_alive": False, "left": None}, NOW, True),
        ({"is_known": True, "is_alive": False, "left": NOW}, NOW + STOPPED_FOR, False),
        ({"is_known": True, "is_alive": False, "left": NOW}, NOW + STOPPED_FOR + 1, True),
        ({"is_known": False, "is_alive": False, "left": None}, OWN.created + UNKNOWN_FOR, False),
        ({"is_known": False, "is_alive": False, "left": None}, OWN.created + UNKNOWN_FOR + 1, True),
    ],
)
def test_it_is_abandoned_when_its_node_is_gone(record, now, gone):
    assert is_abandoned(OWN, **record, now=now) is gone
