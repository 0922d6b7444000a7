"""Uploads that could not be announced are announced at the next request."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.core.instants import SECOND
from noonmark.operations.service import Service
from noonmark.operations.table import perform
from noonmark.operations.uploads import Intake
from noonmark.stores.files import UploadFolder
from noonmark.stores.sqlite.store import SqliteStore
from tests.operations.harness import LOCAL


@pytest.fixture
def service(tmp_path):
    store = SqliteStore(tmp_path / "noonmark.db", lambda: 1_800_000_000 * SECOND, busy_seconds=0.01)
    store.open()
    uploads = UploadFolder(tmp_path / "uploads", max_bytes=100, quota=1_000)
    yield Service(store=store, lookahead=SECOND, fresh_id=lambda: "fresh", uploads=uploads)
    store.close()


def send(service, key):
    intake = Intake(service, LOCAL, key)
    try:
        intake.write(b"something")
        return intake.finish({"filename": key}, None)
    finally:
        intake.drop()


def told(service):
    answer = perform(service, LOCAL, "event/list", {"event_type": "file_uploaded"})["events"]
    return sorted(one["payload"]["filename"] for one in answer)


@pytest.fixture
def unannounced(service, tmp_path):
    """One that was kept while the store was away."""
    assert told(service) == []
    with closing(sqlite3.connect(tmp_path / "noonmark.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable):
            send(service, "first")
        with pytest.raises(StoreUnavailable):
            send(service, "refused")
        other.execute("ROLLBACK")
    assert told(service) == []


@pytest.mark.usefixtures("unannounced")
class TestWhatWasKeptWhileTheStoreWasAway:
    def test_is_reported_before_a_list(self, service):
        answer = perform(service, LOCAL, "upload/list", {})["uploads"]
        assert [one["filename"] for one in answer] == told(service) == ["first"]
        assert service.uploads.unannounced("default") == []

    def test_is_reported_before_the_next_file(self, service):
        send(service, "second")
        assert told(service) == ["first", "second"]

    def test_is_hidden_from_others(self, service):
        elsewhere = replace(LOCAL, owner=replace(LOCAL.owner, tenant="elsewhere"))
        assert perform(service, elsewhere, "upload/list", {})["uploads"] == []
        assert told(service) == []


def test_an_upload_that_another_process_is_about_to_announce_is_left_to_it(service):
    coming = service.uploads.receive("default", "upl_1")
    coming.keep(filename="a", path="/a", content_type="text/plain", now=1)
    assert service.uploads.unannounced("default") == []
    assert list(service.uploads.sweep()) == []
    coming.drop()
    assert [one.upload_id for one in service.uploads.unannounced("default")] == ["upl_1"]
