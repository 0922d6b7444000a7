"""The time zone of the machine."""

import pytest

from noonmark.cli.local_zone import local_zone
from tests.cli.runner import call


@pytest.mark.parametrize(
    ("variable", "zone"),
    [
        ("Europe/Stockholm", "Europe/Stockholm"),
        (":Europe/Stockholm", "Europe/Stockholm"),
        ("/usr/share/zoneinfo/Asia/Tokyo", "Asia/Tokyo"),
        (":/usr/share/zoneinfo/posix/Asia/Tokyo", "Asia/Tokyo"),
        ("EST", "America/Panama"),
        ("EST5EDT", "America/New_York"),
        ("CET", "Europe/Brussels"),
        ("Etc/UTC", "UTC"),
        ("GMT", "UTC"),
        ("CEST", "UTC"),
        ("CET-1CEST,M3.5.0,M10.5.0/3", "UTC"),
        ("../../etc/passwd", "UTC"),
        ("\x1b[31m", "UTC"),
    ],
)
def test_zone_of_the_variable(variable, zone, tmp_path):
    nowhere = tmp_path / "nothing"
    assert local_zone({"TZ": variable}, link=nowhere, file=nowhere) == zone


@pytest.mark.parametrize(
    "command",
    [
        ("preview", "0 9 * * *"),
        ("check", "--cron", "0 9 * * *"),
        ("schedule", "create", "--function", "f", "--cron", "0 9 * * *", "--store"),
    ],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize(("variable", "warnings"), [("Bogus/X", 1), ("Europe/Stockholm", 0)])
def test_an_unknown_zone_in_the_variable_gives_a_warning(command, variable, warnings, tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", variable)
    store = (f"sqlite:///{tmp_path}/zone.db",) if command[-1] == "--store" else ()
    done = call(*command, *store)
    assert done.code == 0
    said = 'noonmark: warning: TZ is "Bogus/X", not an IANA time zone: UTC is used instead; give --timezone'
    assert [line for line in done.err.splitlines() if "TZ" in line] == [said] * warnings


def test_zone_of_the_machine(tmp_path):
    link, file, nowhere = tmp_path / "localtime", tmp_path / "timezone", tmp_path / "nothing"
    assert local_zone({}, link=nowhere, file=nowhere) == "UTC"
    file.write_text("Asia/Kathmandu\n")
    assert local_zone({}, link=nowhere, file=file) == "Asia/Kathmandu"
    link.symlink_to("/usr/share/zoneinfo/America/Argentina/Buenos_Aires")
    assert local_zone({}, link=link, file=file) == "America/Argentina/Buenos_Aires"
    assert local_zone({"TZ": ""}, link=link, file=file) == "America/Argentina/Buenos_Aires"
    assert local_zone({"TZ": "UTC"}, link=link, file=file) == "UTC"
    link.unlink()
    link.symlink_to("/etc/elsewhere")
    file.write_bytes(b"\xff")
    assert local_zone({}, link=link, file=file) == "UTC"
