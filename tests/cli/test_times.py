"""Lengths of time as people type them, and the zone of the machine they type them on."""

import pytest

from noonmark.cli.local_zone import local_zone
from noonmark.cli.tables import when
from noonmark.cli.times import parse_duration
from noonmark.core.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30m", 1800),
        ("2h", 7200),
        ("10s", 10),
        ("1d", 86_400),
        ("250ms", 0.25),
        ("1.5h", 5400),
        ("0.1s", 0.1),
        (".5m", 30),
        ("90", 90),
        ("0.25", 0.25),
        (" 5 m ", 300),
        ("0", 0),
    ],
)
def test_lengths_of_time(text, seconds):
    found = parse_duration(text, field="--in")
    assert (found, type(found)) == (seconds, type(seconds))


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.000034, "0.034 ms"),
        (0.0071234, "7.12 ms"),
        (0.25, "250 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (1, "1 s"),
        (3.14159, "3.14 s"),
        (59.96, "60 s"),
        (90, "1 min 30 s"),
        (7_200, "2 h"),
    ],
)
def test_lengths_of_time_for_people(seconds, told):
    assert when({"trigger": {"type": "interval", "every_seconds": seconds}}) == f"every {told}"


@pytest.mark.parametrize(
    "text", ["", "m", "5w", "5M", "-5s", "+5s", "1e3", "5m30s", "inf", "nan", "٣s", "1_0", "9" * 13, "5\x00"]
)
def test_what_is_no_length_of_time(text):
    with pytest.raises(InvalidRequest, match=r"^--in: must be a length of time such as 30m"):
        parse_duration(text, field="--in")


@pytest.mark.parametrize(
    ("told", "zone"),
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
def test_the_zone_that_a_variable_names(told, zone, tmp_path):
    nowhere = tmp_path / "nothing"
    assert local_zone({"TZ": told}, link=nowhere, file=nowhere) == zone


def test_the_zone_that_a_machine_is_set_to(tmp_path):
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
