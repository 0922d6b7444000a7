"""`noonmark upload FILE`, `noonmark upload list | get | delete`: files that a server keeps, and tells of by events."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from noonmark.cli.options import USUAL_PLACE, Limit, Where
from noonmark.cli.output import one_line, print_json
from noonmark.cli.pages import more_of, read_pages
from noonmark.cli.remote import connected
from noonmark.core.errors import InvalidRequest


def add(
    file: Annotated[str, Parameter(help="The file to send.")],
    /,
    *,
    path: Annotated[
        str | None,
        Parameter(show_default=False, help="Where it belongs, for filters: /datasets/eval.jsonl, or a folder with /."),
    ] = None,
    filename: Annotated[str | None, Parameter(show_default=False, help="What it is to be called there.")] = None,
    content_type: Annotated[str | None, Parameter(show_default=False, help="What it is, such as text/csv.")] = None,
    key: Annotated[
        str | None, Parameter(show_default=False, help="The same file under the same key again is the same upload.")
    ] = None,
    place: Where = USUAL_PLACE,
) -> None:
    """Send a file to the server, which keeps it and tells of it by an event: file_uploaded."""
    with connected(place) as remote:
        kept = remote.upload(file, path=path, filename=filename, content_type=content_type, key=key)
    if place.as_json:
        print_json(kept)
        return
    sys.stdout.write(one_line(f"Kept {kept['filename']} ({kept['size']:,} bytes) as {kept['upload_id']}.") + "\n")


def list_uploads(*, limit: Limit = 100, place: Where = USUAL_PLACE) -> None:
    """List the files that were uploaded and are kept."""
    with connected(place) as remote:
        answer = read_pages(remote, "upload/list", {}, entries="uploads", limit=limit)
    if place.as_json:
        print_json(answer)
        return
    from noonmark.cli.tables import show_uploads  # noqa: PLC0415 - JSON needs no rich, which is slow to load

    show_uploads(answer["uploads"], more_of(answer, limit))


def get(
    upload_id: Annotated[str, Parameter(help="The id of the upload.")],
    /,
    *,
    output: Annotated[
        str | None,
        Parameter(name=("--output", "-o"), show_default=False, help="The file to write; standard output unless given."),
    ] = None,
    place: Where = USUAL_PLACE,
) -> None:
    """Get a file back: what is in it, to standard output or to a file, which is there when it is whole."""
    if output is None and place.as_json:
        raise InvalidRequest("goes with --output: standard output has the file itself", field="--json")
    with connected(place) as remote:
        size = remote.download(upload_id, sys.stdout.buffer if output is None else output)
    if place.as_json:
        print_json({"upload_id": upload_id, "output": output, "size": size})
    elif output is not None:
        sys.stdout.write(one_line(f"Wrote {size:,} bytes to {output}.") + "\n")


def delete(
    upload_id: Annotated[str, Parameter(help="The id of the upload.")], /, *, place: Where = USUAL_PLACE
) -> None:
    """Forget a file, which makes room for others."""
    with connected(place) as remote:
        gone = remote.call("upload/delete", {"upload_id": upload_id})
    if place.as_json:
        print_json(gone)
        return
    sys.stdout.write(one_line(f"Deleted {gone['filename']} ({gone['upload_id']}).") + "\n")
