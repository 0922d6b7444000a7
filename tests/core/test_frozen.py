import copy
import inspect
import pickle
import signal
import subprocess
import sys
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import pytest

from noonmark.core.frozen import evolve, evolver, fast_frozen, frozen, maker
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
    for value in (one, made):
        with pytest.raises(FrozenInstanceError):
            value.first = 2


class _All:
    kind: ClassVar[str] = "all"
    first: int
    second: str = "2"
    third: list[int] = field(default_factory=list, hash=False)
    fourth: Any = field(default=None, kw_only=True, compare=False, repr=False)

    def __post_init__(self):
        if self.first < 0:
            raise ValueError("less than nothing")


class _One:
    only: float


class _None:
    pass


class _OwnMethods:  # noqa: PLW1641 - it gets one
    first: int

    def __init__(self, text):
        object.__setattr__(self, "first", int(text))

    def __repr__(self):
        return "mine"

    def __eq__(self, other):
        return isinstance(other, type(self))


def _both(kind, *, kw_only=False):
    """The same class as a dataclass and by `frozen`, which can be pickled by its name."""
    made = [type("Value", kind.__bases__, dict(vars(kind))) for _ in range(2)]
    ours = frozen(kw_only=True)(made[1]) if kw_only else frozen(made[1])
    return dataclass(frozen=True, slots=True, kw_only=kw_only)(made[0]), ours


BOTH = [_both(_All), _both(_One), _both(_One, kw_only=True), _both(_None), _both(_OwnMethods)]


@pytest.mark.parametrize(
    ("kinds", "values"),
    [
        (BOTH[0], [((1,), {}), ((1, "2"), {"fourth": 4}), ((1, "3"), {}), ((), {"first": 1, "third": [3]})]),
        (BOTH[1], [((1.0,), {}), ((), {"only": 1}), ((2,), {})]),
        (BOTH[2], [((), {"only": 1}), ((), {"only": 2})]),
        (BOTH[3], [((), {})]),
        (BOTH[4], [(("1",), {}), (("2",), {})]),
    ],
)
def test_a_frozen_value_does_what_that_of_a_dataclass_does(kinds, values):
    theirs, ours = kinds
    pairs = [(theirs(*args, **kwargs), ours(*args, **kwargs)) for args, kwargs in values]
    for their, our in pairs:
        assert (repr(our), hash(our), asdict(our)) == (repr(their), hash(their), asdict(their))
        assert [our == other for _, other in pairs] == [their == other for other, _ in pairs]
        assert copy.copy(our) == copy.deepcopy(our) == our != their
        assert our.__getstate__() == their.__getstate__()
        for name in ours.__slots__:
            for one in (their, our):
                with pytest.raises(FrozenInstanceError, match=f"^cannot assign to field '{name}'$"):
                    setattr(one, name, 2)
                with pytest.raises(FrozenInstanceError, match=f"^cannot delete field '{name}'$"):
                    delattr(one, name)
    assert is_dataclass(ours)
    assert [one.name for one in fields(ours)] == [one.name for one in fields(theirs)]
    assert (ours.__match_args__, ours.__slots__) == (theirs.__match_args__, theirs.__slots__)
    ours, theirs = (inspect.signature(kind).parameters.values() for kind in kinds)
    assert [(one.name, one.kind, one.annotation) for one in ours] == [
        (one.name, one.kind, one.annotation) for one in theirs
    ]


@pytest.mark.parametrize("kind", BOTH[0])
def test_a_frozen_value_is_checked_and_replaced_as_that_of_a_dataclass(kind):
    with pytest.raises(ValueError, match="less than nothing"):
        kind(-1)
    with pytest.raises(ValueError, match="less than nothing"):
        replace(kind(1), first=-1)
    assert replace(kind(1), second="3") == kind(1, "3")
    for args, kwargs in (((), {}), ((1, "x", [3], 4), {}), ((1,), {"fifth": 5})):
        with pytest.raises(TypeError):
            kind(*args, **kwargs)
    assert kind(1).third is not kind(1).third


def test_a_subclass_has_the_fields_and_the_constructor_of_its_base():
    base = _both(_One)[1]

    class Plain(base):
        """No dataclass itself."""

    more = frozen(type("More", (base,), {"__annotations__": {"other": int}, "__doc__": "More."}))
    assert replace(dataclass(frozen=True)(type("Theirs", (more,), {}))(1, 2), other=3).other == 3
    assert type(Plain(1)) is Plain
    assert repr(more(1, 2)) == "More(only=1, other=2)"
    assert more(1, 2) != more(1, 3)


def test_a_value_that_holds_itself_is_shown():
    value = BOTH[0][1](1)
    value.third.append(value)
    assert repr(value) == "Value(first=1, second='2', third=[...])"


def test_a_frozen_value_can_be_pickled():
    occurrence = factories.occurrence(factories.schedule(), TRIGGER)
    assert pickle.loads(pickle.dumps(occurrence)) == occurrence  # noqa: S301 - our own bytes


def test_a_program_that_ends_by_a_signal_may_use_a_class_for_the_first_time_then():
    program = """
import atexit
from noonmark.core.policies.misfire import Skip
atexit.register(lambda: print(Skip(grace=1)))
raise KeyboardInterrupt
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("Skip(grace=1)\n", -signal.SIGINT)


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
