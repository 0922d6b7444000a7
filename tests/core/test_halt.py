"""What a halt covers, and what becomes of what it stops."""

from dataclasses import replace

import pytest

from noonmark.core.admission import Busy, Claim, Place, refused
from noonmark.core.halt import Halt, halted_text
from noonmark.core.ids import manual
from noonmark.core.lifecycle import ENDINGS, Phase
from noonmark.core.lineage import Lineage
from noonmark.core.reasons import Reason
from noonmark.core.schedule import Owner
from noonmark.core.targets.session import OnDemandSessionTarget, PromptAction, SessionSpec, SessionTarget, SessionType
from noonmark.testing import factories

HALT = Halt(halt_id="h1", tenant="acme", at=factories.NOW, by="ada", reason="a loop", labels={"team": "blue"})


@pytest.mark.parametrize(
    ("tenant", "labels", "is_covered"),
    [
        ("acme", {"team": "blue"}, True),
        ("acme", {"team": "blue", "tier": "1"}, True),
        ("acme", {"team": "red"}, False),
        ("acme", {}, False),
        ("other", {"team": "blue"}, False),
    ],
)
def test_a_halt_covers_what_has_its_labels(tenant, labels, is_covered):
    schedule = factories.schedule(labels=labels, owner=Owner(tenant=tenant, user="ada"))
    assert HALT.covers(schedule) is is_covered
    everything = Halt(halt_id="h2", tenant="acme", at=0, by="ada")
    assert everything.covers(schedule) is (tenant == "acme")
    assert everything.facts() == {"halt_id": "h2", "halted_by": "ada", "halted_at": "1970-01-01T00:00:00Z"}


def test_what_is_halted_is_the_subject_of_a_sentence():
    assert halted_text({}, None) == "Everything"
    assert halted_text({"team": "blue", "tier": "1"}, None) == "Everything with team=blue tier=1"
    assert halted_text({}, "talk") == "The lineage of talk"


PROMPT = PromptAction(prompt="Go on.")
DESK = SessionTarget(type=SessionType.EXACT, session_id="desk", action=PROMPT)
ON_DEMAND = OnDemandSessionTarget(create=SessionSpec(model="test"), action=PROMPT)


@pytest.mark.parametrize(
    ("ancestor", "target", "chain", "is_covered"),
    [
        ("own", None, None, True),
        ("boss", None, ("schedule:boss", "session:desk"), True),
        ("desk", None, ("schedule:boss", "session:desk", "schedule:child"), True),
        ("child", None, ("schedule:boss", "session:desk", "schedule:child"), True),
        ("bos", None, ("schedule:boss",), False),
        ("schedule:boss", None, ("schedule:boss",), False),
        ("desk", DESK, None, True),
        ("schedule:uid-1", ON_DEMAND, (), True),
        ("other", DESK, (), False),
        ("other", None, None, False),
    ],
)
def test_a_halt_covers_a_session_or_a_schedule_and_what_it_made(ancestor, target, chain, is_covered):
    schedule = factories.schedule(schedule_id="own", **({} if target is None else {"target": target}))
    made = replace(schedule, lineage=None if chain is None else Lineage(depth=1, chain=chain))
    halt = Halt(halt_id="h", tenant="acme", at=0, by="ada", lineage=ancestor)
    assert halt.covers(made) is is_covered
    assert not replace(halt, tenant="other").covers(made)
    assert [one.is_of_tenant for one in (halt, HALT, replace(HALT, labels={}))] == [False, False, True]


@pytest.mark.parametrize(("attempt", "phase"), [(0, Phase.SKIPPED), (1, Phase.CANCELLED)])
def test_what_is_halted_is_skipped_or_cancelled_if_it_has_begun(attempt, phase):
    schedule = factories.schedule()
    claim = Claim(
        occurrence=factories.occurrence(schedule, manual("a"), attempt=attempt),
        schedule=schedule,
        claimed=factories.NOW,
    )
    end = refused(claim, Busy(place=Place.HALT, halt=HALT))
    assert (end.phase, end.reason, end.facts["halt_reason"]) == (phase, Reason.HALTED, "a loop")
    assert end.reason in ENDINGS[end.phase]
    assert refused(claim, Busy(place=Place.HALT)).facts == {}
