"""The files of the web page. They are public: all data comes from the API, which needs a key."""

from __future__ import annotations

import gzip
import re
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from noonmark.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

PAGE = "/ui"
FOLDER = Path(__file__).parent / "page"
INDEX = "index.html"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""The kinds of files that are served, all of them text."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    # The names of files have no version: a browser asks each time, and gets 304.
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}
_COMMENT = re.compile(rb"^[ \t]*(?:/\*(?:[^*]|\*(?!/))*\*/|//.*)[ \t]*$", re.MULTILINE)
"""A comment on lines of its own."""
_INDENT = re.compile(rb"^[ \t]+", re.MULTILINE)
_TAG = re.compile(r'(?:W/)?("[^"]*")')
_GZIP = re.compile(r"(?:gzip|x-gzip|\*)(?:\s*;\s*q=(0(?:\.\d*)?|1(?:\.0*)?))?", re.IGNORECASE | re.ASCII)


@frozen
class PageFile:
    """A file of the page, as it is served, plain and compressed."""

    content: bytes
    compressed: bytes
    media_type: str
    tag: str
    """Without quotes. The compressed form has another one: its bytes differ."""


@cache
def page_files() -> Mapping[str, PageFile]:
    """The files by their path below the folder; read and compressed once."""
    files: dict[str, PageFile] = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in TYPES:
            content = compact(path.read_bytes()) if path.suffix in (".css", ".js") else path.read_bytes()
            tag = sha256(content).hexdigest()[:32]
            files[path.relative_to(FOLDER).as_posix()] = PageFile(
                content, gzip.compress(content, 9, mtime=0), TYPES[path.suffix], tag
            )
    return files


def compact(source: bytes) -> bytes:
    """A script or style sheet without indentation and without comments on lines of their own.

    The lines stay, so that an error in the browser names the line of the file.
    """
    return _INDENT.sub(b"", _COMMENT.sub(lambda comment: b"\n" * comment[0].count(b"\n"), source))


def routes() -> list[Route]:
    """The page, its files, and the way to it for a browser that asks for the server itself."""
    every: tuple[str, ...] = ()
    return [Route("/", _root, methods=every), Route(PAGE, _file), Route(f"{PAGE}/{{path:path}}", _file)]


async def _root(request: Request) -> Response:
    """Lead a browser to the page. Other clients find nothing here."""
    if request.method not in ("GET", "HEAD") or "text/html" not in request.headers.get("accept", "").lower():
        raise HTTPException(404)
    # Relative, for a proxy that serves Noonmark below a path.
    return Response(status_code=303, headers={"Location": PAGE[1:], "Vary": "Accept", "Cache-Control": "no-store"})


async def _file(request: Request) -> Response:
    """One file, compressed if the client takes that, or 304 if the client has it."""
    name = request.path_params.get("path", INDEX)
    if not name:
        return Response(status_code=308, headers={"Location": f"..{PAGE}", "Cache-Control": "no-store"})
    # A name is looked up, never joined to a path, so none leads out of the folder.
    file = page_files().get(name)
    if file is None:
        raise HTTPException(404)
    is_compressed = _takes_gzip(request.headers.get("accept-encoding", ""))
    tag = f'"{file.tag}-gzip"' if is_compressed else f'"{file.tag}"'
    headers = {**HEADERS, "ETag": tag} | ({"Content-Encoding": "gzip"} if is_compressed else {})
    if tag in _TAG.findall(request.headers.get("if-none-match", "")):
        return Response(status_code=304, headers=headers)
    return Response(file.compressed if is_compressed else file.content, 200, headers, media_type=file.media_type)


def _takes_gzip(accepted: str) -> bool:
    """Whether a client takes gzip, by its Accept-Encoding header."""
    matches = [match for one in accepted.split(",") if (match := _GZIP.fullmatch(one.strip())) is not None]
    return any(match[1] is None or float(match[1]) > 0 for match in matches)
