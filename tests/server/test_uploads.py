"""Uploads over HTTP: files of any size and name, from every kind of client."""

import asyncio
import json
import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from io import BytesIO, StringIO
from select import select

import pytest

from noonmark.client import AsyncClient, Client
from noonmark.core.errors import Conflict, InvalidRequest, KeyReused, NotFound, PayloadTooLarge, QuotaExceeded
from noonmark.stores.files import UploadFolder
from tests.cli.runner import call
from tests.cli.terminal import NOONMARK, in_pipe
from tests.embedded.waiting import eventually
from tests.server.live_server import read_answer, serving

LARGEST, QUOTA = 100_000, 400_000
TEXT = b"one\ntwo\n"
KEYS = {name: {"Idempotency-Key": f"of {name}"} for name in "abc"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("uploads") / "kept"


@pytest.fixture(scope="module")
def server(folder):
    """One that takes small files, and gives up slow senders soon."""
    uploads = UploadFolder(folder, max_bytes=LARGEST, quota=QUOTA)
    with serving(uploads=uploads, begins=True, body_seconds=1.0) as served:
        yield served


@pytest.fixture
def served(server, folder):
    yield server
    # The client sees the rejection before the server has finished.
    eventually(lambda: left_behind(folder) == [])
    for one in server.client.get("/uploads").json()["uploads"]:
        assert server.client.delete(f"/uploads/{one['upload_id']}").status_code == 200


def left_behind(folder):
    """What is neither kept nor told of."""
    coming = folder / "default/.incoming"
    return [one.name for one in coming.iterdir() if not one.name.startswith(".")] if coming.exists() else []


def told_of(served, upload_id):
    """The events that tell of an upload."""
    events = served.client.get("/events", params={"event_type": "file_uploaded", "limit": 1_000}).json()["events"]
    return [one for one in events if one["payload"]["upload_id"] == upload_id]


def refused(answer, status, code, field=None):
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem.get("field")) == (status, code, field), problem
    assert answer.headers["content-type"] == "application/problem+json"
    return problem


class TestAFileThatComes:
    def test_as_a_form_is_kept_told_of_and_given_back(self, served, folder):
        part = {"file": ("Zürich 1.csv", TEXT, "text/csv")}
        answer = served.client.post("/uploads", files=part, data={"path": "/datasets/"})
        assert answer.status_code == 201, answer.text
        kept = answer.json()
        assert answer.headers["location"] == f"/uploads/{kept['upload_id']}"
        digest = sha256(TEXT).hexdigest()
        payload = {
            "upload_id": kept["upload_id"],
            "filename": "Zürich 1.csv",
            "path": "/datasets/Zürich 1.csv",
            "content_type": "text/csv",
            "size": 8,
            "sha256": digest,
            "bucket": "local",
        }
        assert {name: kept[name] for name in payload} == payload
        stored = folder / "default" / kept["upload_id"] / "Zürich 1.csv"
        [event] = told_of(served, kept["upload_id"])
        assert event["payload"] == {**payload, "stored_path": str(stored)}
        assert (event["event_id"], event["source"]) == (kept["event_id"], "upload")
        assert stored.read_bytes() == TEXT
        back = served.client.get(f"/uploads/{kept['upload_id']}")
        assert back.content == TEXT
        assert back.headers["content-disposition"] == (
            "attachment; filename=\"Z_rich 1.csv\"; filename*=UTF-8''Z%C3%BCrich%201.csv"
        )
        assert back.headers["x-content-type-options"] == "nosniff"
        assert back.headers["content-type"] == "application/octet-stream"
        assert served.client.head(f"/uploads/{kept['upload_id']}").headers["content-length"] == "8"

    def test_bare_has_its_name_in_a_parameter(self, served):
        answer = served.client.post("/uploads", params={"filename": "a.bin"}, content=TEXT).json()
        assert (answer["path"], answer["content_type"]) == ("/a.bin", "application/octet-stream")
        asked = {"filename": "a.bin", "path": "/x/../y"}
        refused(served.client.post("/uploads", params=asked, content=TEXT), 400, "invalid_request", "path")

    def test_may_be_empty(self, served):
        answer = served.client.post("/uploads", params={"filename": "nothing"}).json()
        assert (answer["size"], served.client.get(f"/uploads/{answer['upload_id']}").content) == (0, b"")

    @pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
    def test_may_come_by_curl(self, served, tmp_path):
        (tmp_path / "eval.jsonl").write_bytes(TEXT)
        for way in (("-F", "file=@eval.jsonl"), ("--data-binary", "@eval.jsonl")):
            url = f"{served.url}/uploads{'' if way[0] == '-F' else '?filename=eval.jsonl'}"
            process = subprocess.run(["curl", "-s", *way, url], cwd=tmp_path, capture_output=True, check=True).stdout
            assert (kept := json.loads(process))["filename"] == "eval.jsonl"
            assert kept["sha256"] == sha256(TEXT).hexdigest()

    def test_triggers_the_schedules_that_wait_for_it(self, served):
        trigger = {"type": "event", "event_type": "file_uploaded", "filters": {"path": {"prefix": "/datasets/"}}}
        schedule_id = served.create(trigger=trigger)["schedule_id"]
        for path in ("/datasets/eval.jsonl", "/elsewhere/eval.jsonl"):
            served.client.post("/uploads", params={"filename": "e", "path": path}, content=TEXT)
        result = eventually(
            lambda: served.client.get(f"/schedules/{schedule_id}/occurrences?phase=completed").json()["occurrences"]
        )
        assert len(result) == 1

    def test_again_under_its_key_is_the_same_and_told_of_once(self, served):
        asked = {"params": {"filename": "k"}, "headers": {"Idempotency-Key": "once"}}
        first = served.client.post("/uploads", content=TEXT, **asked)
        assert served.client.post("/uploads", content=TEXT, **asked).json() == first.json()
        assert len(told_of(served, first.json()["upload_id"])) == 1
        again = served.client.post("/uploads", content=b"other", **asked)
        refused(again, 409, "idempotency_key_reused", "idempotency_key")
        served.client.delete(f"/uploads/{first.json()['upload_id']}")
        for number, content in enumerate((b"other", TEXT), start=2):
            another = served.client.post("/uploads", content=content, **asked).json()
            events = told_of(served, another["upload_id"])
            assert [another["event_id"] == one["event_id"] for one in events].count(True) == 1
            assert len(events) == number
            served.client.delete(f"/uploads/{another['upload_id']}")
        asked["headers"]["Idempotency-Key"] = "x" * 201
        refused(served.client.post("/uploads", content=TEXT, **asked), 400, "invalid_request", "idempotency_key")


class TestAName:
    @pytest.mark.parametrize(
        "name",
        [
            "../up",
            "..",
            "/etc/passwd",
            "a\\b",
            ".hidden",
            "a%2fb",
            "%2e%2e%2fx",
            "\uff0e\uff0e\uff0fx",
            "nul.txt",
            "a\u202eb",
        ],
    )
    def test_that_leads_elsewhere_is_refused_however_it_comes(self, served, name):
        bare = served.client.post("/uploads", params={"filename": name}, content=TEXT)
        refused(bare, 400, "invalid_request", "filename")
        boundary = b'--b\r\nContent-Disposition: form-data; name=file; filename="%s"\r\n\r\nx\r\n--b--\r\n'
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        form = served.client.post("/uploads", content=boundary % name.encode(), headers=headers)
        refused(form, 400, "invalid_request", "filename")

    @pytest.mark.parametrize("one_id", ["..", "upl_x%2f..", "%2e%2e%2f", "upl_A", "default"])
    def test_of_an_upload_is_never_a_path(self, served, one_id):
        for method in ("GET", "DELETE"):
            answer = served.client.request(method, f"/uploads/{one_id}")
            assert answer.status_code in (400, 404, 405), answer.text

    @pytest.mark.parametrize("one_id", ["upl_0", "nope", "upl_A", "x" * 128])
    def test_that_no_upload_has_is_not_found(self, served, one_id):
        for method in ("GET", "DELETE"):
            refused(served.client.request(method, f"/uploads/{one_id}"), 404, "not_found", "upload_id")


def form(*parts, end=b"--b--\r\n"):
    return b"".join(b"--b\r\n" + head + b"\r\n\r\n" + body + b"\r\n" for head, body in parts) + end


A_FILE = (b'Content-Disposition: form-data; name="file"; filename="a"', b"x")
A_PATH = (b'Content-Disposition: form-data; name="path"', b"/p")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (form(A_FILE, A_FILE), "file"),
        (form(A_PATH), "file"),
        (form(A_PATH, A_PATH, A_FILE), "path"),
        (form((A_PATH[0], b"x" * 9_000), A_FILE), "path"),
        (form((A_PATH[0], b"\xff"), A_FILE), "path"),
        (form(A_FILE, (A_PATH[0], b"..")), "path"),
        (form((b'Content-Disposition: form-data; name="more"', b"")), "more"),
        (form((b'Content-Disposition: form-data; name="file"', b"x")), "filename"),
        (form((b'Content-Disposition: form-data; name="file"; filename="\xff"', b"x")), "filename"),
        (form((b"X: " + b"x" * 5_000, b"x")), None),
        (form(A_FILE, end=b""), None),
        (b"--c\r\n", None),
        (b"", None),
    ],
)  # fmt: skip
def test_a_form_that_is_none_is_refused_and_leaves_nothing(served, body, field):
    answer = served.client.post("/uploads", content=body, headers={"Content-Type": "multipart/form-data; boundary=b"})
    refused(answer, 400, "invalid_request", field)
    assert "problems" not in answer.json()


def test_headers_that_cannot_be_meant_are_refused(served):
    def sent(status, code, field=None, params=None, **headers):
        refused(served.client.post("/uploads", params=params, content=TEXT, headers=headers), status, code, field)

    sent(400, "invalid_request", "filename")
    sent(400, "invalid_request", "filename", params={"filename": ""})
    sent(400, "invalid_request", **{"Content-Type": "multipart/form-data"})
    sent(400, "invalid_request", **{"Content-Type": f"multipart/form-data; boundary={'b' * 300}"})
    sent(415, "unsupported_media_type", params={"filename": "a"}, **{"Content-Encoding": "gzip"})
    sent(403, "not_allowed", params={"filename": "a"}, Origin="https://evil.example")
    sent(403, "not_allowed", params={"filename": "a"}, Host="evil.example")


class TestTooMuch:
    def test_is_refused_by_what_is_said_before_anything_comes(self, served):
        head = f"POST /uploads?filename=a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {LARGEST + 1}\r\n"
        status, _, body = served.send(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert (status, json.loads(body)["code"]) == (413, "payload_too_large")

    @pytest.mark.parametrize("as_form", [False, True])
    def test_is_refused_as_it_comes(self, served, as_form):
        def body():
            if as_form:
                yield form(A_FILE, end=b"")[:-3]
            for _ in range(LARGEST // 1_000 + 2):
                yield b"x" * 1_000

        headers = {"Content-Type": "multipart/form-data; boundary=b"} if as_form else {}
        asked = {} if as_form else {"filename": "a"}
        refused(
            served.client.post("/uploads", params=asked, content=body(), headers=headers),
            413, "payload_too_large", "file",
        )  # fmt: skip

    def test_together_is_refused_until_something_is_deleted(self, served):
        def send(name):
            return served.client.post("/uploads", params={"filename": name}, content=b"x" * LARGEST)

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(send, map(str, range(8))))
        kept = [one.json()["upload_id"] for one in answers if one.status_code == 201]
        assert {one.status_code for one in answers} == {201, 429}
        assert len(kept) <= QUOTA // LARGEST
        for number in range(QUOTA // LARGEST - len(kept)):
            assert send(f"more{number}").status_code == 201
        last = send("last")
        refused(last, 429, "quota_exceeded", "file")
        assert last.json()["limit"] == {"name": "upload_bytes", "scope": "tenant", "value": QUOTA, "used": QUOTA}
        served.client.delete(f"/uploads/{kept[0]}")
        assert send("last").status_code == 201


class TestASender:
    def test_who_hangs_up_leaves_nothing(self, served, folder):
        with served.connect() as line:
            head = b"POST /uploads?filename=gone HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50000\r\n\r\n"
            line.sendall(head + b"x" * 20_000)
            eventually(lambda: left_behind(folder))
            line.shutdown(socket.SHUT_RDWR)
        eventually(lambda: not left_behind(folder))

    def test_who_stops_is_given_up(self, served, folder):
        with served.connect() as line:
            line.sendall(b"POST /uploads?filename=slow HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nx")
            status, _, body = read_answer(line)
        assert (status, json.loads(body)["code"]) == (408, "request_timeout")

    def test_who_sends_drop_by_drop_is_given_up(self, served):
        with served.connect() as line:
            line.sendall(b"POST /uploads?filename=slow HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50000\r\n\r\n")
            while not select([line], [], [], 0.1)[0]:
                line.sendall(b"x")
            status, _, body = read_answer(line)
        assert (status, json.loads(body)["code"]) == (408, "request_timeout")


def test_pages_and_who_sends_and_deletes_are_kept(served):
    sent = [served.client.post(f"/uploads?filename={name}", content=TEXT, headers=KEYS[name]) for name in "abc"]
    kept = [one.json() for one in sent]
    page = served.client.get("/uploads?limit=2").json()
    rest = served.client.get("/uploads", params={"cursor": page["next_cursor"]}).json()
    assert page["uploads"] + rest["uploads"] == kept[::-1]
    assert served.client.delete(f"/uploads/{kept[0]['upload_id']}").json() == kept[0]
    refused(served.client.get(f"/uploads/{kept[0]['upload_id']}"), 404, "not_found", "upload_id")
    assert served.client.post("/uploads?filename=c", content=TEXT, headers=KEYS["c"]).json() == kept[2]
    entries = served.client.get("/audit").json()["entries"][:4]
    told = [(one["operation"], one["reason"], one["request_id"], one["caller"]) for one in entries]
    assert told[0][:2] == ("upload/delete", f"upload {kept[0]['upload_id']}")
    assert told[1:] == [
        ("upload/create", f"upload {one.json()['upload_id']}", one.headers["x-request-id"], "local")
        for one in reversed(sent)
    ]


class TestClients:
    def test_send_files_by_name_or_open(self, served, tmp_path):
        (tmp_path / "report.csv").write_bytes(TEXT)
        with Client(served.url) as client:
            upload = client.upload(tmp_path / "report.csv", path="/datasets/", content_type="text/csv")
            assert (upload.path, upload.content_type, upload.size) == ("/datasets/report.csv", "text/csv", 8)
            again = client.upload(BytesIO(b"abc" * 10), filename="b", idempotency_key="k")
            assert list(client.uploads(page_size=1)) == [again, upload]
            with pytest.raises(KeyReused):
                client.upload(BytesIO(b"abd"), filename="b", idempotency_key="k")
            with pytest.raises(PayloadTooLarge):
                client.upload(BytesIO(b"x" * (LARGEST + 1)), filename="b")
            with pytest.raises(NotFound, match="no such file"):
                client.upload(tmp_path / "nowhere")
            with pytest.raises(ValueError, match="the name of the file"):
                client.upload(BytesIO(b""))
            assert client.delete_upload(upload.upload_id) == upload

    @pytest.mark.parametrize(
        ("file", "more", "said"),
        [
            (StringIO("text"), {}, "file: is open for text; a file has bytes: open it with 'rb'"),
            (5, {}, "file: must be the name of a file, or a file open to read bytes, not 5"),
            (b"data", {}, "file: must be .* not bytes; io.BytesIO makes one of bytes"),
            ("a\0b", {}, "cannot be read: embedded null byte"),
            (BytesIO(TEXT), {"content_type": "text/csv\r\nX: y"}, "content_type: must be a type such as text/csv"),
            (BytesIO(TEXT), {"idempotency_key": 5}, "idempotency_key: must be a text of printable ASCII"),
            (BytesIO(TEXT), {"idempotency_key": "\n"}, "idempotency_key: must be a text of printable ASCII"),
        ],
    )
    def test_say_what_is_no_file(self, served, file, more, said):
        with Client(served.url) as client, pytest.raises(InvalidRequest, match=said):
            client.upload(file, **{"filename": "a", **more})

        async def send():
            async with AsyncClient(served.url) as client:
                await client.upload(file, **{"filename": "a", **more})

        with pytest.raises(InvalidRequest, match=said):
            asyncio.run(send())

    def test_say_when_what_is_read_is_text(self, served, folder):
        class Read:
            def read(self, _):
                return "text"

        with Client(served.url) as client, pytest.raises(InvalidRequest, match="file: must give bytes"):
            client.upload(Read(), filename="a")

    def test_get_files_back(self, served, tmp_path):
        there, large = tmp_path / "back.bin", bytes(range(256)) * 390
        with Client(served.url) as client:
            upload = client.upload(BytesIO(large), filename="a.bin").upload_id
            assert client.download(upload, there) == len(large)
            assert there.read_bytes() == large
            held = BytesIO()
            assert (client.download(upload, held), held.getvalue()) == (len(large), large)
            with pytest.raises(NotFound, match="there is no upload 'upl_0'"):
                client.download("upl_0", there)
            for to, said in (
                (StringIO(), "to: is open for text; a file has bytes: open it with 'wb'"),
                (5, "to: must be the name of a file, or a file open to write bytes, not 5"),
                (tmp_path, "cannot be written: Is a directory"),
                (tmp_path / "nowhere" / "b", "cannot be written: No such file"),
                ("a\0b", "cannot be written: "),
            ):
                with pytest.raises(InvalidRequest, match=said):
                    client.download(upload, to)
            with pytest.raises(InvalidRequest, match="upload_id: must have letters"):
                client.download("a/b", there)
            assert client.download(upload, "/dev/null") == len(large)

        async def get():
            async with AsyncClient(served.url) as client:
                with pytest.raises(NotFound):
                    await client.download("upl_0", tmp_path / "second.bin")
                return await client.download(upload, tmp_path / "second.bin")

        assert asyncio.run(get()) == len(large)
        assert (tmp_path / "second.bin").read_bytes() == large
        assert sorted(one.name for one in tmp_path.iterdir()) == ["back.bin", "second.bin"]

    def test_send_them_from_a_loop(self, served, tmp_path):
        async def send():
            async with AsyncClient(served.url) as client:
                upload = await client.upload(BytesIO(TEXT), filename="a", path="/datasets/")
                assert [one async for one in client.uploads()] == [upload]
                for number in range(3):
                    await client.upload(BytesIO(b"x" * LARGEST), filename=f"{number}")
                with pytest.raises(QuotaExceeded):
                    await client.upload(BytesIO(b"x" * LARGEST), filename="last")

        asyncio.run(send())

    def test_send_them_from_a_shell(self, served, tmp_path):
        (tmp_path / "a.csv").write_bytes(TEXT)
        there = ("--server", served.url)
        answer = call("upload", tmp_path / "a.csv", "--path", "/datasets/", *there, "--json").json
        assert answer["path"] == "/datasets/a.csv"
        assert call("upload", "list", *there, "--json").json["uploads"] == [answer]
        assert "/datasets/a.csv" in call("upload", "list", *there).out
        back = tmp_path / "back.csv"
        assert call("upload", "get", answer["upload_id"], "-o", back, *there).out == f"Wrote 8 bytes to {back}.\n"
        assert back.read_bytes() == TEXT
        got = call("upload", "get", answer["upload_id"], "--output", back, "--json", *there).json
        assert got == {"upload_id": answer["upload_id"], "output": str(back), "size": 8}
        assert call("upload", "get", answer["upload_id"], "--json", *there).problem["field"] == "--json"
        done = in_pipe(*NOONMARK, "upload", "get", answer["upload_id"], *there)
        assert (done.returncode, done.stdout, done.stderr) == (0, TEXT.decode(), "")
        gone = call("upload", "get", "upl_0", "-o", back, "--store", f"sqlite:///{tmp_path}/s.db")
        assert (gone.code, "--server" in gone.err) == (4, True)
        assert call("upload", "delete", answer["upload_id"], *there).out.startswith("Deleted a.csv")
        assert call("upload", "get", answer["upload_id"], "-o", back, *there).code == 3
        assert call("upload", "get", "nope", "-o", back, *there).code == 3
        assert call("upload", "delete", "nope", *there).code == 3
        assert call("upload", tmp_path / "b", *there).code == 3
        assert call("upload", tmp_path, *there).code == 2
        assert call("upload", "add", tmp_path / "a.csv", *there).out.startswith("Uploaded a.csv (8 bytes) as upl_")
        gone = call("upload", tmp_path / "a.csv", "--store", f"sqlite:///{tmp_path}/s.db")
        assert (gone.code, "--server" in gone.err) == (4, True)


def test_a_server_without_a_folder_says_how_to_have_one():
    with serving() as served:
        error = refused(served.client.post("/uploads", files={"file": ("a", TEXT)}), 409, "conflict")
        assert "--upload-dir" in error["detail"]
        with Client(served.url) as client, pytest.raises(Conflict, match="--upload-dir"):
            list(client.uploads())
