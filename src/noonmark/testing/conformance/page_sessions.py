"""Sessions of the web page: a store has them by the digest of their token, and ends them by key."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noonmark.core.page_session import PageSession
from noonmark.testing.conformance.bench import case
from noonmark.testing.factories import NOW

if TYPE_CHECKING:
    from noonmark.testing.conformance.bench import Bench

SESSION = PageSession(digest="d1", key_id="nm_live_ab12cd", created=NOW, used=NOW)


def _add(bench: Bench, session: PageSession, *, most: int = 9) -> None:
    bench.store.add_page_session(session, most=most, used_since=NOW - 10, created_since=NOW - 20)


def _other(number: int, **fields: object) -> PageSession:
    return replace(SESSION, digest=f"d{number}", **fields)  # type: ignore[arg-type]


def _known(bench: Bench) -> set[str]:
    digests = [f"d{number}" for number in range(1, 9)]
    return {one for one in digests if bench.store.find_page_session(one) is not None}


@case
def a_page_session_is_found_as_it_was_stored(bench: Bench) -> None:
    _add(bench, SESSION)
    assert bench.store.find_page_session("d1") == SESSION
    assert bench.store.find_page_session("d2") is None


@case
def use_of_a_page_session_never_goes_back(bench: Bench) -> None:
    _add(bench, SESSION)
    bench.store.use_page_session("d1", NOW + 5)
    bench.store.use_page_session("d1", NOW + 3)
    bench.store.use_page_session("d2", NOW + 3)
    assert bench.store.find_page_session("d1") == replace(SESSION, used=NOW + 5)
    assert _known(bench) == {"d1"}


@case
def page_sessions_end_one_by_one_or_all_of_a_key(bench: Bench) -> None:
    for number, key in enumerate(["one", "one", "one", "two"], 1):
        _add(bench, _other(number, key_id=key))
    bench.store.delete_page_session("d2")
    bench.store.delete_page_session("d2")
    assert _known(bench) == {"d1", "d3", "d4"}
    assert bench.store.delete_page_sessions("one") == 2
    assert bench.store.delete_page_sessions("one") == 0
    assert _known(bench) == {"d4"}


@case
def old_page_sessions_go_when_one_is_added(bench: Bench) -> None:
    for one in (_other(1, used=NOW - 11), _other(2, used=NOW - 10), _other(3, created=NOW - 21), _other(4)):
        _add(bench, one)
    _add(bench, _other(5, key_id="other"))
    assert _known(bench) == {"d2", "d4", "d5"}


@case
def a_key_has_no_more_page_sessions_than_it_may(bench: Bench) -> None:
    _add(bench, _other(1, key_id="other"))
    for number, used in ((2, NOW + 2), (3, NOW + 1), (4, NOW + 3)):
        _add(bench, _other(number, used=used), most=2)
    assert _known(bench) == {"d1", "d2", "d4"}
