"""Identity is computed: pinned values, and what does and does not count."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark.core import ids
from noonmark.core.errors import InvalidSchedule
from noonmark.core.instants import MAX_INSTANT, MIN_INSTANT, SECOND
from noonmark.core.schedule import Owner

UID = "sch_7Qp2"
NOON = 1_792_573_200_000_000

PARTS = st.lists(st.integers() | st.text(max_size=6), max_size=4)


# Stored ids outlive releases: if one of these changes, every planned occurrence is planned a second time.
@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (ids.TRIGGER, "occ_76a7653288d346bafa257f996cdcd269"),
        (ids.backfill("b1"), "occ_7b2ce577d43889260fc1086320b3fe0a"),
        (ids.manual("deploy-42"), "occ_4c21087292f82a8b8491a082f6696c5a"),
        (ids.event("evt-é"), "occ_c14f9a02449c706651813b8fa513bab0"),
    ],
)
def test_ids_never_change(origin, expected):
    assert ids.occurrence_id(UID, origin, NOON) == expected


TIMED = ids.new_uid("0664e1c51ba8c9d0e4b3a21907", is_timed=True)


# Nor may these, which begin with the time where it is part of the identity.
@pytest.mark.parametrize(
    ("origin", "nominal", "expected"),
    [
        (ids.TRIGGER, NOON, "occ_006ad87f10642243f1d261c752e6cfed"),
        (ids.TRIGGER, NOON + 1, "occ_006ad87f10358ace1eb2e9012a717978"),
        (ids.TRIGGER, MAX_INSTANT, "occ_3afff4417f998546e4a3816946e2817f"),
        (ids.TRIGGER, 0, "occ_0000000000a8bd358bec45faece263d7"),
        (ids.TRIGGER, -1, "occ_0000000000f721bf1e95ae0bd3396862"),
        (ids.TRIGGER, MIN_INSTANT, "occ_00000000001127d724c8663e18181dcd"),
        (ids.backfill("b1"), NOON, "occ_006ad87f10cc28b92aa13e6784da5135"),
        (ids.manual("deploy-42"), NOON, "occ_86efc9b63d69864b9a2a635502e8b5d8"),
        (ids.event("evt-é"), NOON, "occ_0e05e82d13551552458eda5c51719220"),
    ],
)
def test_ids_of_timed_uids_never_change(origin, nominal, expected):
    assert ids.occurrence_id(TIMED, origin, nominal) == expected
    assert len(expected) == len(ids.occurrence_id(UID, origin, nominal))


def test_a_uid_says_whether_it_is_timed():
    assert (TIMED, ids.new_uid("0664", is_timed=False)) == ("t0664e1c51ba8c9d0e4b3a21907", "0664")


@given(st.lists(st.integers(0, MAX_INSTANT), min_size=2, unique_by=lambda time: time // SECOND))
def test_ids_of_timed_uids_are_in_the_order_of_their_times(times):
    known = [ids.occurrence_id(TIMED, ids.TRIGGER, time) for time in sorted(times)]
    assert known == sorted(known)


# Nor may these: every due time and every retry time would move.
@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((UID, NOON), 0.6742061163665369),
        (("occ_1", 1), 0.34932743525490206),
        (("occ_1", 2), 0.9662802694235701),
        ((), 0.061310701584215144),
    ],
)
def test_fractions_never_change(parts, expected):
    assert ids.fraction(*parts) == expected


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (("acme", "ada"), 4463480461970036199),
        (("acmea", "da"), 7642565895766429304),
        (("default", "local"), 6340414570977207237),
    ],
)
def test_numbers_of_owners_never_change(owner, expected):
    assert ids.owner_number(*owner) == expected <= ids.MAX_OWNER
    assert Owner(tenant=owner[0], user=owner[1]).number == expected


@pytest.mark.parametrize("origin", [ids.TRIGGER, ids.backfill("b1")])
def test_the_nominal_time_counts_where_an_origin_names_many(origin):
    assert ids.occurrence_id(UID, origin, NOON) != ids.occurrence_id(UID, origin, NOON + 1)


@pytest.mark.parametrize("origin", [ids.manual("k"), ids.event("k")])
def test_the_nominal_time_does_not_count_where_an_origin_names_one(origin):
    assert ids.occurrence_id(UID, origin, NOON) == ids.occurrence_id(UID, origin, NOON + 1)


def test_schedules_and_origins_keep_apart():
    origins = [ids.TRIGGER, ids.backfill("k"), ids.backfill("l"), ids.manual("k"), ids.event("k"), ids.event("l")]
    known = {ids.occurrence_id(uid, origin, NOON) for uid in ("a", "b") for origin in origins}
    assert len(known) == 12


def test_origins_are_text_and_tell_their_kind():
    origins = [ids.TRIGGER, ids.backfill("b:1"), ids.manual("k"), ids.event("e")]
    assert origins == ["trigger", "backfill:b:1", "manual:k", "event:e"]
    assert [ids.kind_of(origin) for origin in origins] == ["trigger", "backfill", "manual", "event"]


@pytest.mark.parametrize(
    ("origin", "field"), [(ids.backfill, "backfill_id"), (ids.manual, "key"), (ids.event, "event_id")]
)
@pytest.mark.parametrize("key", ["", "k" * 201, "a\nb", "a\x00b", "\ud800"])
def test_a_key_that_cannot_be_stored_is_refused(origin, field, key):
    with pytest.raises(InvalidSchedule) as refused:
        origin(key)
    assert refused.value.field == field


def test_a_key_of_the_greatest_length_is_fine():
    assert ids.manual("k" * 200) == "manual:" + "k" * 200


@given(PARTS)
def test_a_fraction_lies_between_zero_and_one(parts):
    assert 0 <= ids.fraction(*parts) < 1


@given(PARTS, PARTS)
def test_different_parts_give_different_fractions(parts, others):
    # Also where the texts run together: ("ab", "c") and ("a", "bc"), or 1 and "1".
    same_kinds = [type(part) for part in parts] == [type(part) for part in others]
    assert (ids.fraction(*parts) == ids.fraction(*others)) == (parts == others and same_kinds)


@pytest.mark.parametrize(
    ("parts", "others"),
    [(("ab", "c"), ("a", "bc")), ((1,), ("1",)), (("a",), ("a", "")), (("1:a",), (1, "a")), ((1, 2), (12,))],
)
def test_parts_that_look_alike_do_not_collide(parts, others):
    assert ids.fraction(*parts) != ids.fraction(*others)


def test_fractions_of_neighbours_fill_the_range_evenly():
    tenths = [int(ids.fraction(UID, second * 1_000_000) * 10) for second in range(10_000)]
    shares = [tenths.count(tenth) for tenth in range(10)]
    assert all(850 < share < 1_150 for share in shares), shares
    assert any(later < earlier for earlier, later in itertools.pairwise(tenths))


@pytest.mark.parametrize(
    ("index", "undoes", "expected"),
    [
        (None, False, "occ_1/load"),
        (3, False, "occ_1/load/3"),
        (None, True, "occ_1/load/undo"),
        (3, True, "occ_1/load/3/undo"),
    ],
)
def test_a_step_is_found_by_the_id_of_its_run(index, undoes, expected):
    step = ids.step_occurrence_id("occ_1", "load", index, undoes=undoes)
    assert (step, ids.stored_id(step), ids.stored_id("occ_1")) == (expected, "occ_1", "occ_1")


def test_an_id_that_is_made_from_the_uid_is_the_own_one():
    assert ids.is_own_id(ids.job_id("0663f2c1"), "0663f2c1")
    assert ids.is_own_id(ids.default_id("0663f2c1"), "0663f2c1")
    assert not any(ids.is_own_id(one, "0663f2c1") for one in ("daily", "job_0663f2c2", "0663f2c1", "job_x0663f2c1"))
