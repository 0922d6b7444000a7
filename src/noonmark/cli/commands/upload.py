"""`noonmark upload`: files on a server. Each upload emits an event."""

from __future__ import annotations

import sys
from typing import Annotated

from noonmark.cli.options import Connection, ConnectionBesideKey, Limit
from noonmark.cli.output import print_answer, print_json, print_line
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect, read_pages
from noonmark.core.errors import InvalidRequest

UploadId = Annotated[str, Parameter(help="The id of the upload.")]


def add(
    file: Annotated[str, Parameter(help="The file to upload.")],
    /,
    *,
    path: Annotated[
        str | None,
        Parameter(show_default=False, help="Its path, for filters: /datasets/eval.jsonl, or a folder ending in /."),
    ] = None,
    filename: Annotated[str | None, Parameter(show_default=False, help="Its name on the server.")] = None,
    content_type: Annotated[str | None, Parameter(show_default=False, help="Its type, such as text/csv.")] = None,
    key: Annotated[
        str | None,
        Parameter(show_default=False, help="An idempotency key; the same file and key again are the same upload."),
    ] = None,
    connection: ConnectionBesideKey = ConnectionBesideKey(),
) -> None:
    """Upload a file to the server, which stores it and emits the event file_uploaded."""
    with connect(connection) as remote:
        upload = remote.upload(file, path=path, filename=filename, content_type=content_type, key=key)
    sentence = f"Uploaded {upload['filename']} ({upload['size']:,} bytes) as {upload['upload_id']}."
    print_answer(upload, sentence, as_json=connection.as_json)


def list_uploads(*, limit: Limit = 100, connection: Connection = Connection()) -> None:
    """List uploads."""
    with connect(connection) as remote:
        answer = read_pages(remote, "upload/list", {}, entries="uploads", limit=limit)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.tables import more_entries, show_uploads

    show_uploads(answer["uploads"], more_entries(answer, limit))


def get(
    upload_id: UploadId,
    /,
    *,
    output: Annotated[
        str | None,
        Parameter(name=("--output", "-o"), show_default=False, help="The file to write; default: standard output."),
    ] = None,
    connection: Connection = Connection(),
) -> None:
    """Download an upload to standard output or to a file, which appears when it is complete."""
    if output is None and connection.as_json:
        raise InvalidRequest("requires --output: standard output has the content", field="--json")
    with connect(connection) as remote:
        size = remote.download(upload_id, sys.stdout.buffer if output is None else output)
    if connection.as_json:
        print_json({"upload_id": upload_id, "output": output, "size": size})
    elif output is not None:
        print_line(f"Wrote {size:,} bytes to {output}.")


def delete(upload_id: UploadId, /, *, connection: Connection = Connection()) -> None:
    """Delete an upload and free its space."""
    with connect(connection) as remote:
        upload = remote.call("upload/delete", {"upload_id": upload_id})
    sentence = f"Deleted {upload['filename']} ({upload['upload_id']})."
    print_answer(upload, sentence, as_json=connection.as_json)
