"""`noonmark import crontab`: the lines of a crontab as schedules."""

from __future__ import annotations

from typing import Annotated

from noonmark.cli.commands.files import Prune, apply_files, print_file
from noonmark.cli.inputs import MAX_BYTES, read_bytes
from noonmark.cli.local_zone import flag_zone
from noonmark.cli.options import Connection
from noonmark.cli.output import print_errors
from noonmark.cli.parameters import Parameter
from noonmark.cli.schedule_files import STANDARD_INPUT, ScheduleFiles, escape_variables
from noonmark.core.changes import owner_name
from noonmark.core.crontab import LineNote, read_crontab
from noonmark.core.errors import InvalidRequest, InvalidSchedule, Problem, refusal

USUAL_OWNER = "crontab"


def import_crontab(  # noqa: PLR0913 - one per option
    file: Annotated[str, Parameter(allow_leading_hyphen=True, help="A crontab; - reads standard input.")],
    /,
    *,
    system: Annotated[
        bool, Parameter(negative=(), show_default=False, help="A user stands before each command, as in /etc/crontab.")
    ] = False,
    timezone: Annotated[
        str | None,
        Parameter(show_default=False, help="IANA time zone of lines without CRON_TZ; default: this machine's."),
    ] = None,
    skip_bad: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Import the other lines if some cannot be imported.")
    ] = False,
    apply: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="Create and change the schedules, as noonmark apply does."),
    ] = False,
    prune: Prune = False,
    dry_run: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Only show what --apply would change.")
    ] = False,
    managed_by: Annotated[str, Parameter(help="The owner of the schedules.")] = USUAL_OWNER,
    connection: Connection = Connection(),
) -> int:
    """Print the schedules of a crontab as a file for noonmark apply, or apply them. Imported again, nothing changes."""
    if file.startswith("--"):
        raise InvalidRequest(f"unknown option {file}")
    if prune and not apply and not dry_run:
        raise InvalidRequest("needs --apply", field="--prune")
    try:
        owner_name(managed_by)
    except ValueError as error:
        raise InvalidRequest(str(error), field="--managed-by") from None
    name = "standard input" if file == STANDARD_INPUT else file
    crontab = read_crontab(_read(file, name), timezone=timezone or flag_zone(), has_user=system)
    if crontab.problems and not skip_bad:
        problems = [Problem(f"{name}:{line}", message) for line, message in crontab.problems]
        raise refusal([*problems, Problem(name, "nothing is imported; --skip-bad imports the other lines")])
    _print_notes(name, "note", crontab.notes)
    _print_notes(name, "skipped", crontab.problems)
    if not apply and not dry_run:
        document = {"managed_by": managed_by, "schedules": escape_variables(crontab.documents)}
        print_file(document, as_json=connection.as_json)
        return 0
    files = ScheduleFiles(owners={managed_by})
    for document, line in zip(crontab.documents, crontab.lines, strict=True):
        files.add(document, managed_by, (f"{name}:{line}", document["name"], {}))
    return apply_files(connection, files, prune=prune, dry_run=dry_run)


def _read(file: str, name: str) -> str:
    raw = read_bytes(None if file == STANDARD_INPUT else file, MAX_BYTES + 1, field=name)
    if len(raw) > MAX_BYTES:
        raise InvalidSchedule("is larger than 1 MiB", field=name)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"is not UTF-8 text: byte {error.start + 1} is 0x{raw[error.start]:02x}"
        raise InvalidSchedule(message, field=name) from None


def _print_notes(name: str, kind: str, notes: list[LineNote]) -> None:
    print_errors(f"{kind}: {name}:{line}: {message}" for line, message in notes)
