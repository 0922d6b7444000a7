import copy
import inspect
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from noonmark.core.frozen import evolve, evolver, fast_frozen, maker
from noonmark.core.ids import TRIGGER
from noonmark.core.lifecycle import Phase
from noonmark.core.occurrence import Occurrence
from noonmark.core.reasons import Reason
from noonmark.core.run import Outcome, Run
from noonmark.testing import factories


@pytest.mark.parametrize("changes", [{}, {"phase": Phase.CLAIMED}, {"fence": 7, "holds_slot": True, "payload": [1]}])
def test_it_is_what_replace_gives(changes):
    occurrence = factories.occurrence(factories.schedule(), TRIGGER)
    assert evolve(occurrence, **changes) == replace(occurrence, **changes)
    assert occurrence == factories.occurrence(factories.schedule(), TRIGGER)


def test_an_evolver_gives_what_replace_gives():
    occurrence = factories.occurrence(factories.schedule(), TRIGGER)
    changes = {"attempt": 2, "phase": Phase.CLAIMED}
    assert evolver(Occurrence, *changes)(occurrence, **changes) == replace(occurrence, **changes)
    with pytest.raises(TypeError):
        evolver(Occurrence, *changes)(occurrence, attempt=2)


@pytest.mark.parametrize(
    "copy", [lambda one: evolve(one, attempt=2), lambda one: evolver(Occurrence, "attempt")(one, attempt=2)]
)
def test_the_copy_is_frozen_too(copy):
    copied = copy(factories.occurrence(factories.schedule(), TRIGGER))
    with pytest.raises(FrozenInstanceError):
        copied.attempt = 3


@dataclass(frozen=True, slots=True)
class Plain:
    first: int
    second: str = "2"
    third: list[int] = field(default_factory=list)
    fourth: int | None = field(default=None, kw_only=True)


@fast_frozen
@dataclass(frozen=True, slots=True)
class Fast:
    first: int
    second: str = "2"
    third: list[int] = field(default_factory=list)
    fourth: int | None = field(default=None, kw_only=True)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1,), {}), ((1, "x", [3]), {"fourth": 4}), ((), {"third": [], "first": 0})],
)
def test_a_fast_constructor_takes_what_that_of_a_dataclass_takes(args, kwargs):
    expected = repr(Plain(*args, **kwargs)).replace("Plain", "Fast")
    assert repr(Fast(*args, **kwargs)) == repr(maker(Fast)(*args, **kwargs)) == expected


@pytest.mark.parametrize("kind", [Plain, Fast, maker(Fast)])
@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, "x", [3], 4), {}), ((1,), {"fifth": 5})])
def test_it_refuses_what_that_of_a_dataclass_refuses(kind, args, kwargs):
    with pytest.raises(TypeError):
        kind(*args, **kwargs)


def test_a_fast_value_is_as_that_of_a_dataclass():
    assert inspect.signature(Fast) == inspect.signature(Plain)
    one = Fast(1)
    assert one.third is not Fast(1).third
    assert one == copy.copy(one) == copy.deepcopy(one) == replace(one, fourth=None) == evolve(one)
    made = maker(Fast)(1)
    assert (type(made), made, made.third is one.third) == (Fast, one, False)
    for frozen in (one, made):
        with pytest.raises(FrozenInstanceError):
            frozen.first = 2


def test_an_unknown_field_is_an_error():
    with pytest.raises(AttributeError):
        evolve(factories.schedule(), colour="red")


def test_what_matters_of_an_occurrence_is_shown_on_one_line():
    occurrence = factories.occurrence(factories.schedule(), TRIGGER)
    assert repr(occurrence).startswith("Occurrence(phase='pending', nominal_at='")
    assert repr(occurrence).endswith(f"attempt=0, id='{occurrence.id}')")
    gap = evolve(occurrence, phase=Phase.MISFIRED, reason=Reason.OVERLAP, missed_count=3, waiting_for=Reason.QUEUED)
    assert "attempt=0, reason='overlap', waiting_for='queued', missed_count=3, id=" in repr(gap)
    assert (gap == occurrence, gap == evolve(gap), hash(gap) == hash(evolve(gap))) == (False, True, True)


@pytest.mark.parametrize(
    ("error", "summary"),
    [
        (None, None),
        ("", None),
        ("\n \n", None),
        ("Traceback (most recent call last):\n  ...\nKeyError: 'a'\n", "KeyError: 'a'"),
        ("x" * 80, "x" * 80),
        ("x" * 301, "x" * 299 + "…"),
    ],
)
def test_a_run_says_in_short_what_went_wrong(error, summary):
    run = Run(id="run", occurrence_id="occ", attempt=1, node="n", started=0, outcome=Outcome.FAILED, error=error)
    assert run.summary == summary
    shown = "" if summary is None else f", error={summary!r}"
    assert repr(run) == f"Run(outcome='failed', started_at='1970-01-01T00:00:00Z', attempt=1{shown}, id='run')"
