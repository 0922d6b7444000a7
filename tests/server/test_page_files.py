"""The files of the web page: their headers and size, and that nothing else is reached through them."""

import gzip
import re

import pytest

from noonmark.server.web.files import FOLDER, compact, page_files
from tests.server.live_server import serving

MAX_COMPRESSED = 80_000
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"
)
QUOTED = re.compile(r"""/\\?(?:[^/\n\\]|\\.)+/[gim]*[,)]|"[^"\n]*\"""")
"""Regular expressions and texts in double quotes, in which a backtick begins nothing."""
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@pytest.fixture(scope="module")
def served():
    with serving(keyed=True) as server:
        server.client.headers.pop("Authorization")
        yield server


def test_the_page_is_public_and_the_api_is_not(served):
    answer = served.client.get("/ui")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<title>Noonmark</title>" in answer.text
    assert served.client.get("/schedules").status_code == 401


def test_every_file_is_served_with_strict_headers(served):
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert set(page_files()) == {path.relative_to(FOLDER).as_posix() for path in files}
    for path in files:
        answer = served.client.get(f"/ui/{path.relative_to(FOLDER).as_posix()}")
        source = path.read_bytes()
        content = compact(source) if path.suffix in {".js", ".css"} else source
        assert (answer.status_code, answer.content) == (200, content)
        headers = answer.headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == "no-cache"
        kind = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
        assert headers["content-type"].partition(";")[0] == kind[path.suffix]


def test_indentation_and_comments_on_lines_of_their_own_are_not_sent():
    source = (
        b"/**\n * What. @param {string} a\n */\nf(a); // why\n"
        b"  // because\n  g(/** @type {any} */ (b));\n/* x */ h();\n"
    )
    assert compact(source) == b"\n\n\nf(a); // why\n\ng(/** @type {any} */ (b));\n/* x */ h();\n"
    # A text over several lines could have a line that looks like a comment, or is indented: there is none.
    for path in FOLDER.rglob("*.js"):
        code = QUOTED.sub("", compact(path.read_bytes()).decode())
        assert not [line for line in code.splitlines() if line.count("`") % 2], path


def test_the_whole_page_is_small():
    assert sum(len(one.compressed) for one in page_files().values()) <= MAX_COMPRESSED


def test_a_client_gets_the_encoding_that_it_takes(served):
    plain = (FOLDER / "index.html").read_bytes()
    tags = set()
    for accepted, is_compressed in [
        ("gzip", True),
        ("br, GZip;q=0.5", True),
        ("*", True),
        ("identity", False),
        ("gzip;q=0", False),
        ("", False),
    ]:
        line = f"GET /ui HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: {accepted}\r\nConnection: close\r\n\r\n"
        status, headers, body = served.send(line.encode())
        assert (status, headers.get("content-encoding") == "gzip") == (200, is_compressed), accepted
        assert headers["vary"] == "Accept-Encoding"
        assert (gzip.decompress(body) if is_compressed else body) == plain
        tags.add(headers["etag"])
    assert len(tags) == 2  # the two forms have different bytes


def test_a_client_that_has_a_file_gets_no_content(served):
    tag = served.client.get("/ui").headers["etag"]
    for given in (tag, f"W/{tag}", f'"other", {tag}'):
        answer = served.client.get("/ui", headers={"If-None-Match": given})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
        assert answer.headers["content-security-policy"] == POLICY
    assert served.client.get("/ui", headers={"If-None-Match": '"other"'}).status_code == 200
    head = served.client.head("/ui")
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", tag)


@pytest.mark.parametrize(
    "path",
    [
        "/ui/../files.py",
        "/ui/..%2ffiles.py",
        "/ui/%2e%2e/files.py",
        "/ui/views/../../__init__.py",
        "/ui//etc/passwd",
        "/ui/%2fetc%2fpasswd",
        "/ui/index.html%00.js",
        "/ui/..\\files.py",
        "/ui/INDEX.html",
        "/ui/index.html/",
        "/uix",
    ],
)
def test_nothing_outside_the_folder_is_reached(served, path):
    line = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    status, headers, body = served.send(line.encode())
    assert (status, headers["content-type"]) == (404, "application/problem+json")
    assert b"passwd" not in body


def test_a_browser_is_led_to_the_page_and_a_program_is_not(served):
    answer = served.client.get("/", headers=BROWSER)
    assert (answer.status_code, answer.headers["location"]) == (303, "ui")
    assert served.client.get("/", headers=BROWSER, follow_redirects=True).text == served.client.get("/ui").text
    assert served.client.get("/ui/", follow_redirects=True).url.path == "/ui"
    assert served.client.get("/", headers={"Accept": "*/*"}).status_code == 404
    assert served.client.post("/ui", headers=BROWSER).status_code == 405


def test_the_page_can_be_switched_off():
    with serving(has_page=False) as server:
        for path in ("/", "/ui", "/ui/index.html"):
            assert server.client.get(path, headers=BROWSER).status_code == 404
        assert server.client.get("/schedules").status_code == 200


def test_an_answer_of_the_api_runs_nothing_in_a_browser(served):
    for path in ("/schedules", "/health", "/nowhere"):
        headers = served.client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"


def test_nothing_in_the_page_is_inline_or_comes_from_elsewhere():
    for name, file in page_files().items():
        text = file.content.decode()
        if name.endswith(".html"):
            assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+\s*=|\sstyle\s*=|<style", text), name
            assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", text), name
        if name.endswith(".js"):
            assert not re.search(r"""\b(?:import|from)\s*\(?\s*["'](?:https?:)?//""", text), name
            assert not re.search(r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval)\b", text), name
