"""What an uploaded file may be called, and what is told of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noonmark.core.instants import SECOND
from noonmark.core.targets.placeholders import Filling
from noonmark.core.uploads import (
    UNKNOWN_TYPE,
    Upload,
    file_name,
    folder_name,
    id_of_key,
    media_type,
    read_upload,
    upload_id,
    virtual_path,
)

GOOD = ["a", "eval.jsonl", "Zürich 2027.csv", "日本語.txt", "a b", "-rf", "~", "100%", "a..b", "x" * 255, "ü" * 127]
BAD = [
    "",
    ".",
    "..",
    ".hidden",
    "...",
    "a.",
    "a ",
    " a",
    "a/b",
    "/etc/passwd",
    "../up",
    "..\\up",
    "C:\\x",
    "c:x",
    "a\0b",
    "a\nb",
    "a\x7fb",
    "a\u202eb",
    "a\u200bb",
    "\ud800",
    "%2e%2e%2fup",
    "%2E%2E",
    "a%00b",
    "a%5cb",
    "a%2fb",
    "\uff0e\uff0e\uff0fup",
    "\u2025",
    "\uff0e",
    "a\uff0fb",
    "a\uff3cb",
    "con",
    "NUL.txt",
    "Lpt1",
    "com¹.log",
    "a|b",
    "a?b",
    'a"b',
    "a*b",
    "<a>",
    "x" * 256,
    "ü" * 128,
    7,
    None,
]


@pytest.mark.parametrize("name", GOOD)
def test_a_name_is_that_of_one_file_in_one_folder(name):
    assert file_name(name) == name


@pytest.mark.parametrize("name", BAD, ids=repr)
def test_a_name_that_may_mean_another_place_is_refused(name):
    with pytest.raises(ValueError, match=r".") as refused:
        file_name(name)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


def test_names_that_look_alike_are_alike():
    assert file_name("Zu\u0308rich") == "Zürich"


@given(st.text(max_size=300))
def test_accepted_names_stay_in_their_folder(text):
    try:
        name = file_name(text)
    except ValueError:
        return
    assert 0 < len(name.encode()) <= 255
    assert not set(name) & set("/\\\0:")
    assert not name.startswith(".")
    assert file_name(name) == name


@pytest.mark.parametrize(
    ("said", "path"),
    [
        (None, "/f.csv"),
        ("/datasets/eval.jsonl", "/datasets/eval.jsonl"),
        ("datasets//eval.jsonl", "/datasets/eval.jsonl"),
        ("/datasets/", "/datasets/f.csv"),
        ("/", "/f.csv"),
        ("/a b/ü", "/a b/ü"),
        ("/a/...", "/a/..."),
    ],
)
def test_a_path_is_text_from_the_root_on(said, path):
    assert virtual_path(said, "f.csv") == path


@pytest.mark.parametrize(
    "said", ["", "/a/../b", "..", "./a", "/a\\b", "a\0", "a\n", "\ud800", "x" * 1_001, 7, ["a"]], ids=repr
)
def test_a_path_that_leads_back_is_refused(said):
    with pytest.raises(ValueError, match=r"."):
        virtual_path(said, "f.csv")


def test_no_two_tenants_share_a_folder():
    tenants = ["default", "Default", "a/b", "..", "", "~", "a" * 101, "ü", "%2e", "acme-1_x", "\ud800"]
    folders = [folder_name(one) for one in tenants]
    assert len({one.lower() for one in folders}) == len(tenants)
    assert folders[0] == "default"
    assert all(file_name(one) == one for one in folders)


def test_a_key_gives_an_id_that_is_the_tenants_own():
    ids = [id_of_key(*one) for one in (("a", "k"), ("b", "k"), ("a", "l"), ("a:1", "k"), ("a", "1:k"))]
    assert len(set(ids)) == 5
    assert id_of_key("a", "k") == ids[0] == upload_id(ids[0])


@pytest.mark.parametrize("value", ["", "upl_", "upl_A", "../upl_1", "upl_1/..", "upl_" + "a" * 65, 7, None, "evt_1"])
def test_an_id_is_never_a_path(value):
    with pytest.raises(ValueError, match="must be the id of an upload"):
        upload_id(value)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("text/csv; charset=utf-8", "text/csv"),
        ("Image/PNG", "image/png"),
        ("application/x-www-form-urlencoded", UNKNOWN_TYPE),
        ("nonsense", UNKNOWN_TYPE),
        ("text/csv\r\nX: 1", UNKNOWN_TYPE),
        ("", UNKNOWN_TYPE),
        (None, UNKNOWN_TYPE),
    ],
)
def test_a_type_is_told_if_it_is_one(said, kind):
    assert media_type(said) == kind


UPLOAD = Upload(
    upload_id="upl_1",
    filename="eval.jsonl",
    path="/datasets/eval.jsonl",
    content_type="application/json",
    size=3,
    sha256="0" * 64,
    created=1_800_000_000 * SECOND,
)


def test_an_upload_survives_being_written_down():
    assert read_upload(UPLOAD.to_document()) == UPLOAD
    assert UPLOAD.is_same(read_upload({**UPLOAD.to_document(), "upload_id": "upl_2"}))
    assert not UPLOAD.is_same(read_upload({**UPLOAD.to_document(), "size": 4}))


@pytest.mark.parametrize("wrong", [{"filename": "../x"}, {"upload_id": "x"}, {"size": None}, {"created_at_utc": "now"}])
def test_what_was_not_written_by_us_is_not_an_upload(wrong):
    with pytest.raises((KeyError, TypeError, ValueError)):
        read_upload({**UPLOAD.to_document(), **wrong})


def test_an_event_tells_of_it_under_an_id_that_follows_from_what_is_kept():
    event = UPLOAD.to_event("/somewhere/eval.jsonl")
    assert (event.event_type, event.event_id, event.source) == ("file_uploaded", UPLOAD.event_id, "upload")
    others = [replace(UPLOAD, **one) for one in ({"upload_id": "upl_2"}, {"sha256": "1" * 64}, {"created": 1})]
    assert len({one.event_id for one in (UPLOAD, *others)}) == 4
    assert event.payload == {
        "upload_id": "upl_1",
        "filename": "eval.jsonl",
        "path": "/datasets/eval.jsonl",
        "content_type": "application/json",
        "size": 3,
        "sha256": "0" * 64,
        "bucket": "local",
        "stored_path": "/somewhere/eval.jsonl",
    }


def test_a_request_can_carry_what_is_reported():
    filling = Filling({"event": UPLOAD.to_event("/somewhere/eval.jsonl").to_envelope()})
    assert filling.text("{{event.payload.path}} {{event.payload.size}}") == "/datasets/eval.jsonl 3"
