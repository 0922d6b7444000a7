"""`noonmark bundle`: push, list, show, run and delete bundles."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, Any

from noonmark.cli.inputs import parse_optional_json
from noonmark.cli.options import Connection, ConnectionBesideKey, Limit
from noonmark.cli.output import EXIT_FAILED, print_answer, print_errors, print_json, print_line, print_text
from noonmark.cli.parameters import Parameter
from noonmark.cli.remote import connect, push_or_find, read_pages
from noonmark.core.documents import present
from noonmark.core.lifecycle import FINAL

if TYPE_CHECKING:
    from noonmark.cli.remote import Remote

POLL_SECONDS = 0.25
BundleId = Annotated[str, Parameter(help="The id of the bundle.")]
BundlePath = Annotated[str, Parameter(help="A folder with a manifest.json, or a zip file of one.")]


def push(
    path: BundlePath,
    /,
    *,
    bundle_id: Annotated[
        str | None,
        Parameter(name="--id", show_default=False, help="The id of the bundle; default: the name in its manifest."),
    ] = None,
    connection: Connection = Connection(),
) -> None:
    """Push a bundle: it is the newest of its id, and the schedules of its manifest are declared."""
    with connect(connection) as remote:
        pushed = remote.push(path, bundle_id=bundle_id)
    if connection.as_json:
        print_json(pushed)
        return
    print_line(f"Pushed {describe(pushed)}.")
    for managed in [*pushed["schedules"], *pushed["triggers"]]:
        print_text(f"    {managed['action']} {managed['schedule_id']}\n")


def describe(bundle: dict[str, Any]) -> str:
    """A bundle in a sentence."""
    return f"{bundle['bundle_id']} ({bundle['files']:,} files, {bundle['size']:,} bytes, {bundle['digest'][:12]})"


def list_bundles(*, limit: Limit = 100, connection: Connection = Connection()) -> None:
    """List bundles, each with its newest archive."""
    with connect(connection) as remote:
        answer = read_pages(remote, "bundle/list", {}, entries="bundles", limit=limit)
    if connection.as_json:
        print_json(answer)
        return
    from noonmark.cli.render.tables import more_entries, show_bundles

    show_bundles(answer["bundles"], more_entries(answer, limit))


def show(bundle_id: BundleId, /, *, connection: Connection = Connection()) -> None:
    """Show a bundle: its manifest, its archives and its schedules."""
    with connect(connection) as remote:
        bundle = remote.call("bundle/get", {"bundle_id": bundle_id})
    if connection.as_json:
        print_json(bundle)
        return
    from noonmark.cli.render.tables import show_bundle_versions

    print_line(describe(bundle))
    print_json(bundle["manifest"])
    for schedule_id in bundle["schedules"]:
        print_text(f"    declares {schedule_id}\n")
    show_bundle_versions(bundle["versions"])


def run(
    bundle: Annotated[str, Parameter(name="BUNDLE", help="The id of a bundle, or a folder or zip file to push first.")],
    /,
    *,
    payload_json: Annotated[str | None, Parameter(show_default=False, help="The payload, as JSON.")] = None,
    key: Annotated[
        str | None, Parameter(show_default=False, help="An idempotency key; the same key again is the same run.")
    ] = None,
    connection: ConnectionBesideKey = ConnectionBesideKey(),
) -> int:
    """Run a bundle now, print its output as it comes, and exit with the exit code of its command."""
    payload = parse_optional_json(payload_json, "--payload-json")
    with connect(connection) as remote:
        bundle_document = push_or_find(remote, bundle)
        arguments = {"bundle_id": bundle_document["bundle_id"]} | present(payload=payload, key=key)
        occurrence_id = remote.call("bundle/run", arguments)["occurrence_id"]
        with remote.node(occurrence_id):
            occurrence, last = _follow(remote, occurrence_id, prints=not connection.as_json)
    if connection.as_json:
        print_json(occurrence | {"run": last})
    result = None if last is None else last["result"]
    code = result.get("exit_code") if isinstance(result, dict) else None
    if occurrence["phase"] == "completed":
        return 0
    if not connection.as_json:
        error = "" if last is None or not last["error"] else last["error"].strip().splitlines()[-1]
        print_errors([f"{occurrence_id} {occurrence['phase']}: {error or occurrence['why']}"])
    return code if isinstance(code, int) and 0 < code < 256 else EXIT_FAILED


def _follow(remote: Remote, occurrence_id: str, *, prints: bool) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Print what the runs of an occurrence put out until it ends; returns it, and its last run."""
    from noonmark.cli.commands.run import print_output

    arguments, printed, shown_reason = {"occurrence_id": occurrence_id}, dict[str, int](), ""
    while True:
        occurrence = remote.call("occurrence/get", arguments)
        runs = remote.call("occurrence/runs", arguments)["runs"]
        if prints:
            for one in (run for run in reversed(runs) if run["result"] is not None):  # an error is told in the end
                printed[one["run_id"]] = print_output(one, printed.get(one["run_id"], 0))
            if occurrence["waiting_for"] is not None and occurrence["why"] != shown_reason:
                shown_reason = occurrence["why"]
                print_errors([f"{occurrence_id} waits: {shown_reason}"])
        if occurrence["phase"] in FINAL:
            return occurrence, runs[0] if runs else None
        threading.Event().wait(POLL_SECONDS)


def delete(bundle_id: BundleId, /, *, connection: Connection = Connection()) -> None:
    """Delete a bundle with all its archives; refused while a schedule names it."""
    with connect(connection) as remote:
        bundle = remote.call("bundle/delete", {"bundle_id": bundle_id})
    print_answer(bundle, f"Deleted {bundle['bundle_id']}.", as_json=connection.as_json)
