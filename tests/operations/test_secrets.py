"""Secrets: who may set them, what answers contain, and which schedules may name them."""

from dataclasses import replace

import pytest

from noonmark.core.api_key import Scope
from noonmark.core.errors import (
    Conflict,
    InvalidRequest,
    InvalidSchedule,
    KeyReused,
    NotAllowed,
    NotFound,
    QuotaExceeded,
)
from noonmark.core.secret import MAX_SECRETS
from noonmark.core.signatures import KeySettings
from noonmark.core.targets import parse_target
from noonmark.operations import schedule_edits
from noonmark.operations.secrets import read_secret
from noonmark.secret_cipher import fresh_key
from noonmark.testing.factories import schedule
from noonmark.wiring import make_seal
from tests.operations.harness import EVERY_MINUTE, FOREIGN, LOCAL, Harness

MARK = "s3cr3t-mark-0123456789"
TOLD = {"name", "hosts", "programs", "created_at_utc", "updated_at_utc"}


@pytest.fixture
def harness():
    harness = Harness()
    harness.service = replace(harness.service, seal=make_seal(fresh_key()))
    return harness


def put(harness, name="token", hosts=("api.example.com",), value=MARK, caller=LOCAL):
    return harness("secret/set", caller, name=name, value=value, hosts=list(hosts))


def http(url="https://api.example.com/hook", **headers):
    return {"target_kind": "http", "method": "POST", "url": url, "secret_headers": headers or {"X-Token": "token"}}


def test_a_secret_is_shown_without_its_value(harness):
    made = put(harness, hosts=["API.example.com.", "api.example.com", "*.example.org:8443"])
    assert made == {
        "name": "token",
        "hosts": ["api.example.com", "*.example.org:8443"],
        "programs": [],
        "created_at_utc": "2026-03-01T12:00:00Z",
        "updated_at_utc": "2026-03-01T12:00:00Z",
    }
    assert harness("secret/list") == {"secrets": [made]}


def test_another_value_takes_the_place_of_the_first(harness):
    put(harness)
    harness.clock.advance(60)
    again = put(harness, hosts=["b.example"], value=f"{MARK}-again")
    assert (again["created_at_utc"], again["updated_at_utc"]) == ("2026-03-01T12:00:00Z", "2026-03-01T12:01:00Z")
    assert harness("secret/list")["secrets"] == [again]
    assert again["hosts"] == ["b.example"]


def test_who_set_and_deleted_it_is_written_down(harness):
    put(harness)
    assert set(harness("secret/delete", name="token")) == TOLD
    entries = harness("audit/list")["entries"]
    assert [(one["operation"], one["caller"], one["reason"]) for one in entries] == [
        ("secret/delete", "local", "secret token"),
        ("secret/set", "local", "secret token"),
    ]
    assert MARK not in str(entries)
    with pytest.raises(NotFound, match="no secret of that name"):
        harness("secret/delete", name="token")
    assert len(harness("audit/list")["entries"]) == 2


def test_all_problems_are_reported_without_the_input(harness):
    with pytest.raises(InvalidRequest) as refused:
        harness("secret/set", name=f"Bearer {MARK}", value=f"{MARK}\n", hosts=[f"{MARK}@a", MARK * 20])
    assert [one.field for one in refused.value.problems] == ["name", "value", "hosts[0]", "hosts[1]"]
    assert MARK not in str(refused.value.problems)
    for hosts in ([], None, ["a.example"] * 21):
        with pytest.raises(InvalidRequest, match="hosts"):
            harness("secret/set", name="token", value=MARK, hosts=hosts)
    assert harness("secret/list") == {"secrets": []}
    given = read_secret({"name": "token", "value": MARK, "hosts": ["a.example"]})
    assert MARK not in repr(given)


def test_without_a_key_nothing_is_sealed(harness):
    harness.service = replace(harness.service, seal=None)
    with pytest.raises(Conflict, match=r"`noonmark secret key` .* secret_key, the same on every node") as refused:
        put(harness)
    assert MARK not in str(refused.value)
    assert harness("secret/list") == {"secrets": []}


def test_the_secrets_of_a_tenant_are_limited(harness):
    for number in range(MAX_SECRETS):
        put(harness, name=f"n{number}")
    with pytest.raises(QuotaExceeded, match="1,000 secrets already"):
        put(harness, name="more")
    put(harness, name="n7")
    put(harness, name="more", caller=FOREIGN)


def test_each_tenant_has_its_own(harness):
    put(harness)
    put(harness, hosts=["b.example"], caller=FOREIGN)
    assert [one["hosts"] for one in harness("secret/list", FOREIGN)["secrets"]] == [["b.example"]]
    with pytest.raises(InvalidSchedule, match=r"target.secret_headers.X-Token: token is bound to b.example"):
        harness("schedule/create", FOREIGN, trigger=EVERY_MINUTE, target=http())
    harness("secret/delete", FOREIGN, name="token")
    with pytest.raises(InvalidSchedule, match=r"target.secret_headers.X-Token: there is no secret of that name"):
        harness("schedule/create", FOREIGN, trigger=EVERY_MINUTE, target=http())
    assert harness.create(target=http())["target"] == http()


def test_a_schedule_names_secrets_that_are_there_and_for_its_host(harness):
    put(harness)
    put(harness, name="other", hosts=["*.example.org"])
    with pytest.raises(InvalidSchedule) as refused:
        harness.create(target=http(A="token", B="other", C="gone"))
    assert [str(one) for one in refused.value.problems] == [
        "target.secret_headers.B: other is bound to *.example.org, not to this host",
        "target.secret_headers.C: there is no secret of that name",
    ]
    assert harness("schedule/list")["schedules"] == []


def test_a_value_in_the_place_of_a_name_is_not_repeated(harness):
    for wrong in ({"X-Token": f"Bearer {MARK}"}, {"X-Token": MARK}, {"X-Token": MARK * 9}, f"X-Token: {MARK}", [MARK]):
        with pytest.raises(InvalidSchedule) as refused:
            harness.create(target=http() | {"secret_headers": wrong})
        assert MARK not in str(refused.value.problems)
        assert refused.value.field.startswith("target.secret_headers")


def test_an_edit_is_judged_by_what_it_changes(harness):
    put(harness)
    schedule_id = harness.create(schedule_id="call", target=http())["schedule_id"]
    for change in (http("https://evil.example/"), http(A="gone")):
        with pytest.raises(InvalidSchedule, match=r"target.secret_headers"):
            harness("schedule/update", schedule_id=schedule_id, target=change)
        with pytest.raises(InvalidSchedule, match=r"target.secret_headers"):
            harness("schedule/upsert", schedule_id=schedule_id, trigger=EVERY_MINUTE, target=change)
    harness("secret/delete", name="token")
    assert harness("schedule/update", schedule_id=schedule_id, name="renamed")["revision"] == 1
    with pytest.raises(InvalidSchedule, match=r"target.secret_headers"):
        harness("schedule/update", schedule_id=schedule_id, target=http("https://api.example.com/other"))


def test_a_request_that_is_refused_has_not_used_its_key(harness):
    with pytest.raises(InvalidSchedule, match="there is no secret"):
        harness.create(target=http(), idempotency_key="once")
    put(harness)
    schedule = harness.create(target=http("https://api.example.com/other"), idempotency_key="once")
    assert harness.create(target=http("https://api.example.com/other"), idempotency_key="once") == schedule
    with pytest.raises(KeyReused):
        harness.create(target=http(), idempotency_key="once")


def test_nor_do_many_at_once(harness):
    put(harness)
    told = [parse_target(document) for document in (http(), http(X="token"), http(X="gone"))]
    made = [schedule(f"many{number}", owner=LOCAL.owner, target=target) for number, target in enumerate(told)]
    with pytest.raises(InvalidSchedule, match=r"secret_headers\.X: there is no secret of that name"):
        schedule_edits.create_many(harness.service.store, made, lookahead=0)
    assert harness("schedule/list")["schedules"] == []
    assert schedule_edits.create_many(harness.service.store, made[:2], lookahead=0) == [True, True]


def test_every_tenant_is_told_its_own_signing_key_and_nobody_but_an_administrator(harness):
    ours, theirs = (harness("signing/key", caller)["signing_key"] for caller in (LOCAL, FOREIGN))
    assert len({ours, theirs, harness("signing/key")["signing_key"]}) == 2
    harness.service = replace(harness.service, keys=KeySettings(signing_key="a key that was chosen"))
    assert harness("signing/key") == {"signing_key": "a key that was chosen"}
    assert harness("signing/key", FOREIGN)["signing_key"] not in (ours, theirs, "a key that was chosen")
    with pytest.raises(NotAllowed, match="needs the scope admin"):
        harness("signing/key", replace(LOCAL, scopes=frozenset({Scope.WRITE})))
    noted = harness("audit/list")["entries"]
    assert [(one["operation"], one["caller"], one["reason"]) for one in noted] == [("signing/key", "local", None)] * 3
    assert ours not in str(noted)
