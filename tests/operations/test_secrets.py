"""Secrets as operations: who may set them, what is told of them, and which schedules may name them."""

from dataclasses import replace

import pytest

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
from tests.operations.desk import EVERY_MINUTE, FOREIGN, LOCAL, Desk

MARK = "s3cr3t-mark-0123456789"
TOLD = {"name", "hosts", "created_at_utc", "updated_at_utc"}


@pytest.fixture
def desk():
    desk = Desk()
    desk.service = replace(desk.service, seal=make_seal(fresh_key()))
    return desk


def put(desk, name="token", hosts=("api.example.com",), value=MARK, caller=LOCAL):
    return desk("secret/set", caller, name=name, value=value, hosts=list(hosts))


def http(url="https://api.example.com/hook", **headers):
    return {"target_kind": "http", "method": "POST", "url": url, "secret_headers": headers or {"X-Token": "token"}}


def test_a_secret_is_told_without_its_value(desk):
    made = put(desk, hosts=["API.example.com.", "api.example.com", "*.example.org:8443"])
    assert made == {
        "name": "token",
        "hosts": ["api.example.com", "*.example.org:8443"],
        "created_at_utc": "2026-03-01T12:00:00Z",
        "updated_at_utc": "2026-03-01T12:00:00Z",
    }
    assert desk("secret/list") == {"secrets": [made]}


def test_another_value_takes_the_place_of_the_first(desk):
    put(desk)
    desk.clock.advance(60)
    again = put(desk, hosts=["b.example"], value=f"{MARK}-again")
    assert (again["created_at_utc"], again["updated_at_utc"]) == ("2026-03-01T12:00:00Z", "2026-03-01T12:01:00Z")
    assert desk("secret/list")["secrets"] == [again]
    assert again["hosts"] == ["b.example"]


def test_who_set_and_deleted_it_is_written_down(desk):
    put(desk)
    assert set(desk("secret/delete", name="token")) == TOLD
    entries = desk("audit/list")["entries"]
    assert [(one["operation"], one["caller"], one["reason"]) for one in entries] == [
        ("secret/delete", "local", "secret token"),
        ("secret/set", "local", "secret token"),
    ]
    assert MARK not in str(entries)
    with pytest.raises(NotFound, match="no secret of that name"):
        desk("secret/delete", name="token")
    assert len(desk("audit/list")["entries"]) == 2


def test_everything_that_is_wrong_is_told_but_what_was_given(desk):
    with pytest.raises(InvalidRequest) as refused:
        desk("secret/set", name=f"Bearer {MARK}", value=f"{MARK}\n", hosts=[f"{MARK}@a", MARK * 20])
    assert [one.field for one in refused.value.problems] == ["name", "value", "hosts[0]", "hosts[1]"]
    assert MARK not in str(refused.value.problems)
    for hosts in ([], None, ["a.example"] * 21):
        with pytest.raises(InvalidRequest, match="hosts"):
            desk("secret/set", name="token", value=MARK, hosts=hosts)
    assert desk("secret/list") == {"secrets": []}
    given = read_secret({"name": "token", "value": MARK, "hosts": ["a.example"]})
    assert MARK not in repr(given)


def test_without_a_key_nothing_is_sealed(desk):
    desk.service = replace(desk.service, seal=None)
    with pytest.raises(Conflict, match=r"`noonmark secret key` .* secret_key, the same on every node") as refused:
        put(desk)
    assert MARK not in str(refused.value)
    assert desk("secret/list") == {"secrets": []}


def test_a_tenant_has_so_many_secrets_and_no_more(desk):
    for number in range(MAX_SECRETS):
        put(desk, name=f"n{number}")
    with pytest.raises(QuotaExceeded, match="1,000 secrets already"):
        put(desk, name="more")
    put(desk, name="n7")
    put(desk, name="more", caller=FOREIGN)


def test_each_tenant_has_its_own(desk):
    put(desk)
    put(desk, hosts=["b.example"], caller=FOREIGN)
    assert [one["hosts"] for one in desk("secret/list", FOREIGN)["secrets"]] == [["b.example"]]
    with pytest.raises(InvalidSchedule, match=r"target.secret_headers.X-Token: token is bound to b.example"):
        desk("schedule/create", FOREIGN, trigger=EVERY_MINUTE, target=http())
    desk("secret/delete", FOREIGN, name="token")
    with pytest.raises(InvalidSchedule, match=r"target.secret_headers.X-Token: there is no secret of that name"):
        desk("schedule/create", FOREIGN, trigger=EVERY_MINUTE, target=http())
    assert desk.create(target=http())["target"] == http()


def test_a_schedule_names_secrets_that_are_there_and_for_its_host(desk):
    put(desk)
    put(desk, name="other", hosts=["*.example.org"])
    with pytest.raises(InvalidSchedule) as refused:
        desk.create(target=http(A="token", B="other", C="gone"))
    assert [str(one) for one in refused.value.problems] == [
        "target.secret_headers.B: other is bound to *.example.org, not to this host",
        "target.secret_headers.C: there is no secret of that name",
    ]
    assert desk("schedule/list")["schedules"] == []


def test_a_value_in_the_place_of_a_name_is_not_repeated(desk):
    for wrong in ({"X-Token": f"Bearer {MARK}"}, {"X-Token": MARK}, {"X-Token": MARK * 9}, f"X-Token: {MARK}", [MARK]):
        with pytest.raises(InvalidSchedule) as refused:
            desk.create(target=http() | {"secret_headers": wrong})
        assert MARK not in str(refused.value.problems)
        assert refused.value.field.startswith("target.secret_headers")


def test_an_edit_is_judged_by_what_it_changes(desk):
    put(desk)
    schedule_id = desk.create(schedule_id="call", target=http())["schedule_id"]
    for change in (http("https://evil.example/"), http(A="gone")):
        with pytest.raises(InvalidSchedule, match=r"target.secret_headers"):
            desk("schedule/update", schedule_id=schedule_id, target=change)
        with pytest.raises(InvalidSchedule, match=r"target.secret_headers"):
            desk("schedule/upsert", schedule_id=schedule_id, trigger=EVERY_MINUTE, target=change)
    desk("secret/delete", name="token")
    assert desk("schedule/update", schedule_id=schedule_id, name="renamed")["revision"] == 1
    with pytest.raises(InvalidSchedule, match=r"target.secret_headers"):
        desk("schedule/update", schedule_id=schedule_id, target=http("https://api.example.com/other"))


def test_a_request_that_is_refused_has_not_used_its_key(desk):
    with pytest.raises(InvalidSchedule, match="there is no secret"):
        desk.create(target=http(), idempotency_key="once")
    put(desk)
    made = desk.create(target=http("https://api.example.com/other"), idempotency_key="once")
    assert desk.create(target=http("https://api.example.com/other"), idempotency_key="once") == made
    with pytest.raises(KeyReused):
        desk.create(target=http(), idempotency_key="once")


def test_nor_do_many_at_once(desk):
    put(desk)
    told = [parse_target(document) for document in (http(), http(X="token"), http(X="gone"))]
    made = [schedule(f"many{number}", owner=LOCAL.owner, target=target) for number, target in enumerate(told)]
    with pytest.raises(InvalidSchedule, match=r"secret_headers\.X: there is no secret of that name"):
        schedule_edits.create_many(desk.service.store, made, lookahead=0)
    assert desk("schedule/list")["schedules"] == []
    assert schedule_edits.create_many(desk.service.store, made[:2], lookahead=0) == [True, True]


def test_every_tenant_is_told_its_own_signing_key_and_nobody_but_an_administrator(desk):
    ours, theirs = (desk("signing/key", caller)["signing_key"] for caller in (LOCAL, FOREIGN))
    assert len({ours, theirs, desk("signing/key")["signing_key"]}) == 2
    desk.service = replace(desk.service, keys=KeySettings(signing_key="a key that was chosen"))
    assert desk("signing/key") == {"signing_key": "a key that was chosen"}
    assert desk("signing/key", FOREIGN)["signing_key"] not in (ours, theirs, "a key that was chosen")
    with pytest.raises(NotAllowed, match="only an administrator"):
        desk("signing/key", replace(LOCAL, is_admin=False))
    noted = desk("audit/list")["entries"]
    assert [(one["operation"], one["caller"], one["reason"]) for one in noted] == [("signing/key", "local", None)] * 3
    assert ours not in str(noted)
