"""Daylight saving: literal tables, every instant written out in UTC.

Each row is asked from about a hundred places around the clock change (inside the gap, inside both passes of the fold,
on each fire and beside it), forwards, backwards and as a count.
"""

from datetime import timedelta

import pytest

from noonmark.core.triggers import CalendarTrigger, CronTrigger, fires
from tests.core.oracle import calendar_rule, check_timeline, cron_rule, fires_between, utc

NEW_YORK = "America/New_York"
STOCKHOLM = "Europe/Stockholm"
LORD_HOWE = "Australia/Lord_Howe"
SAO_PAULO = "America/Sao_Paulo"
CASABLANCA = "Africa/Casablanca"
APIA = "Pacific/Apia"
KATHMANDU = "Asia/Kathmandu"
CASEY = "Antarctica/Casey"
TROLL = "Antarctica/Troll"
KWAJALEIN = "Pacific/Kwajalein"
ST_JOHNS = "America/St_Johns"

SKIP, AFTER = {"gap": "skip"}, {"gap": "after"}
FIRST, SECOND, BOTH = {"fold": "first"}, {"fold": "second"}, {"fold": "both"}


def instants(text):
    """Fires written as "2026-03: 08T07:00 09T06:30", always in UTC."""
    month = ""
    collected = []
    for word in text.split():
        if word.endswith(":"):
            month = word[:-1]
        else:
            collected.append(utc(f"{month}-{word}Z"))
    return collected


def rows(zone, after, until, table):
    """A stretch of time in a zone; each line is (expressions or calendar fields, dst, the fires)."""
    return [
        pytest.param(zone, rule, dst, after, until, instants(expected), id=f"{zone}-{after[:10]}-{rule}-{dst}")
        for rule, dst, expected in table
    ]


# Clocks go from 02:00 EST to 03:00 EDT at 07:00Z.
NEW_YORK_GAP = (
    rows(
        NEW_YORK,
        "2026-03-07T12:00Z",
        "2026-03-09T12:00Z",
        [
            ("30 2 * * *", None, "2026-03: 08T07:00 09T06:30"),
            ("0 30 2 * * *", None, "2026-03: 08T07:00 09T06:30"),
            ("0 2 * * *", None, "2026-03: 08T07:00 09T06:00"),
            ("59 2 * * *", None, "2026-03: 08T07:00 09T06:59"),
            ("59 1 * * *", None, "2026-03: 08T06:59 09T05:59"),
            ("0 3 * * *", None, "2026-03: 08T07:00 09T07:00"),
            ("10,40 2 * * *", None, "2026-03: 08T07:00 09T06:10 09T06:40"),
            ("0 2,3 * * *", None, "2026-03: 08T07:00 09T06:00 09T07:00"),
            ("15 1-3 * * *", None, "2026-03: 08T06:15 08T07:00 08T07:15 09T05:15 09T06:15 09T07:15"),
            ("*/20 2 * * *", None, "2026-03: 09T06:00 09T06:20 09T06:40"),
            ("30 2 * * SUN", None, "2026-03: 08T07:00"),
            ("30 2 8 3 *", None, "2026-03: 08T07:00"),
            ("30 2 * * MON", None, "2026-03: 09T06:30"),
            ("30 2 8 * MON", None, "2026-03: 08T07:00 09T06:30"),
            ("30 2 * * 0#2", None, "2026-03: 08T07:00"),
            ("*/15 30 2 * * *", None, "2026-03: 08T07:00 09T06:30 09T06:30:15 09T06:30:30 09T06:30:45"),
            ("30 0 2,3 * * *", None, "2026-03: 08T07:00 08T07:00:30 09T06:00:30 09T07:00:30"),
            ("15,45 59 1 * * *", None, "2026-03: 08T06:59:15 08T06:59:45 09T05:59:15 09T05:59:45"),
            ("30 */30 2 * * *", None, "2026-03: 09T06:00:30 09T06:30:30"),
            ("30 2 * * *", SKIP, "2026-03: 09T06:30"),
            ("0 30 2 * * *", SKIP, "2026-03: 09T06:30"),
            ("15 1-3 * * *", SKIP, "2026-03: 08T06:15 08T07:15 09T05:15 09T06:15 09T07:15"),
            ("30 2 * * *", AFTER, "2026-03: 08T07:00 09T06:30"),
            ("30 2 * * *", BOTH, "2026-03: 08T07:00 09T06:30"),
            ("*/20 2 * * *", AFTER, "2026-03: 08T07:00 09T06:00 09T06:20 09T06:40"),
            ("30 */30 2 * * *", AFTER, "2026-03: 08T07:00 09T06:00:30 09T06:30:30"),
            ({"hour": 2, "minute": 30}, None, "2026-03: 08T07:00 09T06:30"),
            ({"hour": [2], "minute": [10, 40]}, None, "2026-03: 08T07:00 09T06:10 09T06:40"),
            ({"hour": 2, "minute": 30, "second": [0, 30]}, None, "2026-03: 08T07:00 09T06:30 09T06:30:30"),
            ({"hour": 2, "minute": 30, "second": 30}, None, "2026-03: 08T07:00 09T06:30:30"),
            ({"hour": 2, "minute": 30, "day_of_week": 7}, None, "2026-03: 08T07:00"),
            ({"hour": 2, "minute": 30, "day_of_month": 8, "day_of_week": 1}, None, ""),
            ({"hour": 2, "minute": 30}, SKIP, "2026-03: 09T06:30"),
            (["30 2 * * *", "45 3 * * *"], None, "2026-03: 08T07:00 08T07:45 09T06:30 09T07:45"),
            (["30 2 * * *", "*/20 2 * * *"], None, "2026-03: 08T07:00 09T06:00 09T06:20 09T06:30 09T06:40"),
            (["30 2 * * *", "*/20 2 * * *"], SKIP, "2026-03: 09T06:00 09T06:20 09T06:30 09T06:40"),
            (["10 2 * * *", "40 2 * * *", "0 3 * * *"], None, "2026-03: 08T07:00 09T06:10 09T06:40 09T07:00"),
        ],
    )
    + rows(
        NEW_YORK,
        "2026-03-08T04:00Z",
        "2026-03-08T13:00Z",
        [
            ("0 */2 * * *", None, "2026-03: 08T05:00 08T08:00 08T10:00 08T12:00"),
            ("0 */2 * * *", AFTER, "2026-03: 08T05:00 08T07:00 08T08:00 08T10:00 08T12:00"),
            ("0 0-23/2 * * *", None, "2026-03: 08T05:00 08T07:00 08T08:00 08T10:00 08T12:00"),
            ("* 2 * * *", None, ""),
            ("* 2 * * *", AFTER, "2026-03: 08T07:00"),
            ("* * 2 * * *", None, ""),
            ("* * 2 * * *", AFTER, "2026-03: 08T07:00"),
            ({"hour": 2}, None, ""),
            ({"hour": 2}, AFTER, "2026-03: 08T07:00"),
            ({"hour": 2, "minute": list(range(60))}, None, "2026-03: 08T07:00"),
            ({"hour": 2, "second": None}, None, ""),
        ],
    )
    + rows(
        NEW_YORK,
        "2026-03-08T05:30Z",
        "2026-03-08T09:00Z",
        [
            ("30 * * * *", None, "2026-03: 08T06:30 08T07:30 08T08:30"),
            ("30 * * * *", AFTER, "2026-03: 08T06:30 08T07:00 08T07:30 08T08:30"),
            ({"minute": 30}, None, "2026-03: 08T06:30 08T07:30 08T08:30"),
            ("0 * * * *", AFTER, "2026-03: 08T06:00 08T07:00 08T08:00 08T09:00"),
            (["30 2 * * *", "@hourly"], None, "2026-03: 08T06:00 08T07:00 08T08:00 08T09:00"),
            (["30 2 * * *", "45 * * * *"], None, "2026-03: 08T05:45 08T06:45 08T07:00 08T07:45 08T08:45"),
        ],
    )
)

# Clocks go from 02:00 EDT back to 01:00 EST at 06:00Z.
NEW_YORK_FOLD = rows(
    NEW_YORK,
    "2026-10-31T12:00Z",
    "2026-11-02T12:00Z",
    [
        ("30 1 * * *", None, "2026-11: 01T05:30 02T06:30"),
        ("0 30 1 * * *", None, "2026-11: 01T05:30 02T06:30"),
        ("0 1 * * *", None, "2026-11: 01T05:00 02T06:00"),
        ("59 1 * * *", None, "2026-11: 01T05:59 02T06:59"),
        ("0 2 * * *", None, "2026-11: 01T07:00 02T07:00"),
        ("30 0,1,2 * * *", None, "2026-11: 01T04:30 01T05:30 01T07:30 02T05:30 02T06:30 02T07:30"),
        ("*/30 1 * * *", None, "2026-11: 01T05:00 01T05:30 01T06:00 01T06:30 02T06:00 02T06:30"),
        ("0,30 30 1 * * *", None, "2026-11: 01T05:30 01T05:30:30 02T06:30 02T06:30:30"),
        ("30 */30 1 * * *", None, "2026-11: 01T05:00:30 01T05:30:30 01T06:00:30 01T06:30:30 02T06:00:30 02T06:30:30"),
        ("30 1 * * SUN", None, "2026-11: 01T05:30"),
        ("30 1 1 * *", None, "2026-11: 01T05:30"),
        ("30 1 * * *", FIRST, "2026-11: 01T05:30 02T06:30"),
        ("30 1 * * *", SECOND, "2026-11: 01T06:30 02T06:30"),
        ("30 1 * * *", BOTH, "2026-11: 01T05:30 01T06:30 02T06:30"),
        ("30 1 * * *", SKIP, "2026-11: 01T05:30 02T06:30"),
        ("0 30 1 * * *", SECOND, "2026-11: 01T06:30 02T06:30"),
        ("30 0,1,2 * * *", SECOND, "2026-11: 01T04:30 01T06:30 01T07:30 02T05:30 02T06:30 02T07:30"),
        ("*/30 1 * * *", FIRST, "2026-11: 01T05:00 01T05:30 02T06:00 02T06:30"),
        ("*/30 1 * * *", SECOND, "2026-11: 01T06:00 01T06:30 02T06:00 02T06:30"),
        (
            "*/30 1 * * *",
            {"gap": "after", "fold": "both"},
            "2026-11: 01T05:00 01T05:30 01T06:00 01T06:30 02T06:00 02T06:30",
        ),
        ({"hour": 1, "minute": 30}, None, "2026-11: 01T05:30 02T06:30"),
        ({"hour": 1, "minute": 30}, SECOND, "2026-11: 01T06:30 02T06:30"),
        ({"hour": 1, "minute": 30}, BOTH, "2026-11: 01T05:30 01T06:30 02T06:30"),
        ({"hour": [0, 1], "minute": 30}, None, "2026-11: 01T04:30 01T05:30 02T05:30 02T06:30"),
        (["30 1 * * *", "*/30 1 * * *"], None, "2026-11: 01T05:00 01T05:30 01T06:00 01T06:30 02T06:00 02T06:30"),
        (
            ["45 1 * * *", "*/30 1 * * *"],
            None,
            "2026-11: 01T05:00 01T05:30 01T05:45 01T06:00 01T06:30 02T06:00 02T06:30 02T06:45",
        ),
        (["45 1 * * *", "*/30 1 1 * *"], SECOND, "2026-11: 01T06:00 01T06:30 01T06:45 02T06:45"),
    ],
) + rows(
    NEW_YORK,
    "2026-11-01T04:00Z",
    "2026-11-01T08:00Z",
    [
        ("0 * * * *", None, "2026-11: 01T05:00 01T06:00 01T07:00 01T08:00"),
        ("0 * * * *", FIRST, "2026-11: 01T05:00 01T07:00 01T08:00"),
        ("0 * * * *", SECOND, "2026-11: 01T06:00 01T07:00 01T08:00"),
        ("0 */1 * * *", None, "2026-11: 01T05:00 01T06:00 01T07:00 01T08:00"),
        ("0 0-23 * * *", None, "2026-11: 01T05:00 01T07:00 01T08:00"),
        ({"minute": 30}, None, "2026-11: 01T04:30 01T05:30 01T06:30 01T07:30"),
        ({"minute": 30}, SECOND, "2026-11: 01T04:30 01T06:30 01T07:30"),
        ({"hour": 1, "minute": [0, 59]}, None, "2026-11: 01T05:00 01T05:59"),
    ],
)

# Clocks go from 02:00 CET to 03:00 CEST at 01:00Z in March, and from 03:00 CEST back to 02:00 CET at 01:00Z in October.
STOCKHOLM_BOTH = rows(
    STOCKHOLM,
    "2026-03-28T12:00Z",
    "2026-03-30T12:00Z",
    [
        ("30 2 * * *", None, "2026-03: 29T01:00 30T00:30"),
        ("0 30 2 * * *", None, "2026-03: 29T01:00 30T00:30"),
        ("10,40 2 * * *", None, "2026-03: 29T01:00 30T00:10 30T00:40"),
        ("15 1-3 * * *", None, "2026-03: 29T00:15 29T01:00 29T01:15 29T23:15 30T00:15 30T01:15"),
        ("*/20 2 * * *", None, "2026-03: 30T00:00 30T00:20 30T00:40"),
        ("30 2 * * *", SKIP, "2026-03: 30T00:30"),
        ("30 2 L-2 3 *", None, "2026-03: 29T01:00"),
        ("30 2 * * SUNDAY", None, "2026-03: 29T01:00"),
        ({"month": 3, "day_of_week": 0, "hour": 2, "minute": 0}, None, "2026-03: 29T01:00"),
    ],
) + rows(
    STOCKHOLM,
    "2026-10-24T12:00Z",
    "2026-10-26T12:00Z",
    [
        ("30 2 * * *", None, "2026-10: 25T00:30 26T01:30"),
        ("30 2 * * *", SECOND, "2026-10: 25T01:30 26T01:30"),
        ("30 2 * * *", BOTH, "2026-10: 25T00:30 25T01:30 26T01:30"),
        ("*/30 2 * * *", None, "2026-10: 25T00:00 25T00:30 25T01:00 25T01:30 26T01:00 26T01:30"),
        ("0 2-3 * * *", None, "2026-10: 25T00:00 25T02:00 26T01:00 26T02:00"),
        ("30 2 * * 0L", None, "2026-10: 25T00:30"),
        ({"day_of_month": 25, "hour": 2, "minute": 30}, None, "2026-10: 25T00:30"),
    ],
)

# Half an hour: clocks go from 02:00 to 02:30 at 15:30Z in October, and from 02:00 back to 01:30 at 15:00Z in April.
LORD_HOWE_BOTH = (
    rows(
        LORD_HOWE,
        "2026-10-03T00:00Z",
        "2026-10-05T00:00Z",
        [
            ("15 2 * * *", None, "2026-10: 03T15:30 04T15:15"),
            ("0 15 2 * * *", None, "2026-10: 03T15:30 04T15:15"),
            ("30 2 * * *", None, "2026-10: 03T15:30 04T15:30"),
            ("45 2 * * *", None, "2026-10: 03T15:45 04T15:45"),
            ("15,30 2 * * *", None, "2026-10: 03T15:30 04T15:15 04T15:30"),
            ("15 2 * * *", SKIP, "2026-10: 04T15:15"),
            ("15 2 4 * *", None, "2026-10: 03T15:30"),
            ({"hour": 2, "minute": [0, 15]}, None, "2026-10: 03T15:30 04T15:00 04T15:15"),
        ],
    )
    + rows(
        LORD_HOWE,
        "2026-10-03T14:00Z",
        "2026-10-03T17:00Z",
        [
            ("*/10 2 * * *", None, "2026-10: 03T15:30 03T15:40 03T15:50"),
            ("*/20 2 * * *", None, "2026-10: 03T15:40"),
            ("*/20 2 * * *", AFTER, "2026-10: 03T15:30 03T15:40"),
            ("0 * * * *", None, "2026-10: 03T14:30 03T16:00 03T17:00"),
            ("15 * * * *", None, "2026-10: 03T14:45 03T16:15"),
            ("30 * * * *", None, "2026-10: 03T15:00 03T15:30 03T16:30"),
        ],
    )
    + rows(
        LORD_HOWE,
        "2026-04-04T00:00Z",
        "2026-04-06T00:00Z",
        [
            ("45 1 * * *", None, "2026-04: 04T14:45 05T15:15"),
            ("15 1 * * *", None, "2026-04: 04T14:15 05T14:45"),
            ("0 2 * * *", None, "2026-04: 04T15:30 05T15:30"),
            ("30 1-2 * * *", None, "2026-04: 04T14:30 04T16:00 05T15:00 05T16:00"),
            (
                "*/15 1 * * *",
                None,
                "2026-04: 04T14:00 04T14:15 04T14:30 04T14:45 04T15:00 04T15:15 05T14:30 05T14:45 05T15:00 05T15:15",
            ),
            ("45 1 * * *", SECOND, "2026-04: 04T15:15 05T15:15"),
            ("45 1 * * *", BOTH, "2026-04: 04T14:45 04T15:15 05T15:15"),
            ("*/15 1 5 * *", SECOND, "2026-04: 04T14:00 04T14:15 04T15:00 04T15:15"),
        ],
    )
)

# At midnight: 00:00 becomes 01:00 at 03:00Z in November, and 24:00 becomes 23:00 again at 02:00Z in February.
SAO_PAULO_BOTH = (
    rows(
        SAO_PAULO,
        "2018-11-03T12:00Z",
        "2018-11-05T12:00Z",
        [
            ("@daily", None, "2018-11: 04T03:00 05T02:00"),
            ("@midnight", None, "2018-11: 04T03:00 05T02:00"),
            ("@weekly", None, "2018-11: 04T03:00"),
            ("0 0 0 * * *", None, "2018-11: 04T03:00 05T02:00"),
            ("30 0 * * *", None, "2018-11: 04T03:00 05T02:30"),
            ("0 0,1 * * *", None, "2018-11: 04T03:00 05T02:00 05T03:00"),
            ("0 0 4 11 *", None, "2018-11: 04T03:00"),
            ("0 0 * * SUN", None, "2018-11: 04T03:00"),
            ("0 0 * * SAT", None, ""),
            ("59 23 * * *", None, "2018-11: 04T02:59 05T01:59"),
            ("*/30 0 * * *", None, "2018-11: 05T02:00 05T02:30"),
            ("*/30 0 * * *", AFTER, "2018-11: 04T03:00 05T02:00 05T02:30"),
            ("@daily", SKIP, "2018-11: 05T02:00"),
            ({"hour": 0, "minute": 0}, None, "2018-11: 04T03:00 05T02:00"),
            ({"hour": 0, "minute": 0, "year": 2018, "month": 11, "day_of_month": 4}, None, "2018-11: 04T03:00"),
            (["@daily", "0 1 * * *"], None, "2018-11: 04T03:00 05T02:00 05T03:00"),
        ],
    )
    + rows(
        SAO_PAULO,
        "2018-11-04T01:00Z",
        "2018-11-04T05:00Z",
        [
            ("@hourly", None, "2018-11: 04T02:00 04T03:00 04T04:00 04T05:00"),
            ("0 */2 * * *", None, "2018-11: 04T04:00"),
        ],
    )
    + rows(
        SAO_PAULO,
        "2018-02-17T12:00Z",
        "2018-02-19T12:00Z",
        [
            ("30 23 * * *", None, "2018-02: 18T01:30 19T02:30"),
            ("30 23 17 * *", None, "2018-02: 18T01:30"),
            ("30 23 * * SAT", None, "2018-02: 18T01:30"),
            ("@daily", None, "2018-02: 18T03:00 19T03:00"),
            ("*/30 23 * * *", None, "2018-02: 18T01:00 18T01:30 18T02:00 18T02:30 19T02:00 19T02:30"),
            ("30 23 * * *", SECOND, "2018-02: 18T02:30 19T02:30"),
            ("30 23 * * *", BOTH, "2018-02: 18T01:30 18T02:30 19T02:30"),
            ({"hour": 23, "minute": 59, "second": 59}, None, "2018-02: 18T01:59:59 19T02:59:59"),
        ],
    )
)

# Winter time in Ramadan: 03:00 becomes 02:00 at 02:00Z in February, and 02:00 becomes 03:00 at 02:00Z in April.
CASABLANCA_BOTH = rows(
    CASABLANCA,
    "2025-02-22T12:00Z",
    "2025-02-24T12:00Z",
    [
        ("30 2 * * *", None, "2025-02: 23T01:30 24T02:30"),
        ("0 3 * * *", None, "2025-02: 23T03:00 24T03:00"),
        ("*/30 2 * * *", None, "2025-02: 23T01:00 23T01:30 23T02:00 23T02:30 24T02:00 24T02:30"),
        ("30 2 * * *", SECOND, "2025-02: 23T02:30 24T02:30"),
        ({"hour": 2, "minute": 30}, BOTH, "2025-02: 23T01:30 23T02:30 24T02:30"),
    ],
) + rows(
    CASABLANCA,
    "2025-04-05T12:00Z",
    "2025-04-07T12:00Z",
    [
        ("30 2 * * *", None, "2025-04: 06T02:00 07T01:30"),
        ("15 1-3 * * *", None, "2025-04: 06T01:15 06T02:00 06T02:15 07T00:15 07T01:15 07T02:15"),
        ("*/20 2 * * *", None, "2025-04: 07T01:00 07T01:20 07T01:40"),
        ("30 2 * * *", SKIP, "2025-04: 07T01:30"),
    ],
)

# A whole day: the 30th of December 2011 does not exist. 24:00 on the 29th is 00:00 on the 31st, at 10:00Z on the 30th.
APIA_GAP = rows(
    APIA,
    "2011-12-28T00:00Z",
    "2012-01-02T00:00Z",
    [
        ("30 2 * * *", None, "2011-12: 28T12:30 29T12:30 30T12:30 31T12:30 2012-01: 01T12:30"),
        ("@daily", None, "2011-12: 28T10:00 29T10:00 30T10:00 31T10:00 2012-01: 01T10:00"),
        ("0 12 30 12 *", None, ""),
        ("0 12 * * FRI", None, ""),
        ("0 12 * * THU,SAT", None, "2011-12: 29T22:00 30T22:00"),
        ("0 12 30 12 *", SKIP, ""),
        ("0 30 2 30,31 12 *", None, "2011-12: 30T12:30"),
        ({"hour": 12, "minute": 0, "day_of_month": 30}, None, ""),
        ({"hour": 12, "minute": 0, "day_of_month": [29, 31]}, None, "2011-12: 29T22:00 30T22:00"),
    ],
) + rows(
    APIA,
    "2011-12-30T00:00Z",
    "2011-12-31T00:00Z",
    [("0 */6 * * *", None, "2011-12: 30T04:00 30T10:00 30T16:00 30T22:00")],
)

# A quarter of an hour at midnight of New Year 1986 (00:00 became 00:15 at 18:30Z), and no change ever since.
KATHMANDU_GAP = (
    rows(
        KATHMANDU,
        "1985-12-30T20:00Z",
        "1986-01-02T00:00Z",
        [
            ("@daily", None, "1985-12: 31T18:30 1986-01: 01T18:15"),
            ("@yearly", None, "1985-12: 31T18:30"),
            ("10 0 * * *", None, "1985-12: 31T18:30 1986-01: 01T18:25"),
            ("15 0 * * *", None, "1985-12: 31T18:30 1986-01: 01T18:30"),
            ("0,15 0 * * *", None, "1985-12: 31T18:30 1986-01: 01T18:15 01T18:30"),
            ("@daily", SKIP, "1986-01: 01T18:15"),
        ],
    )
    + rows(
        KATHMANDU,
        "1985-12-31T18:00Z",
        "1985-12-31T19:00Z",
        [("*/10 0 * * *", None, "1985-12: 31T18:35 31T18:45 31T18:55")],
    )
    + rows(
        KATHMANDU,
        "2026-06-01T00:00Z",
        "2026-06-03T00:00Z",
        [
            ("0 9 * * *", None, "2026-06: 01T03:15 02T03:15"),
            ("*/30 23 * * *", None, "2026-06: 01T17:15 01T17:45 02T17:15 02T17:45"),
        ],
    )
)

# The edges: gaps of exactly three hours, of two, of a day; a fold of three hours; a change at one minute past midnight.
ODD_ONES = (
    rows(
        CASEY,
        "2011-10-27T00:00Z",
        "2011-10-29T00:00Z",
        [
            ("30 4 * * *", None, "2011-10: 27T18:00 28T17:30"),
            ("30 2,3,4 * * *", None, "2011-10: 27T18:00 28T15:30 28T16:30 28T17:30"),
            ("30 4 * * *", SKIP, "2011-10: 28T17:30"),
        ],
    )
    + rows(
        CASEY,
        "2012-02-21T00:00Z",
        "2012-02-23T00:00Z",
        [
            ("30 1,2,3 * * *", None, "2012-02: 21T14:30 21T15:30 21T16:30 22T17:30 22T18:30 22T19:30"),
            ("30 1,2,3 22 * *", BOTH, "2012-02: 21T14:30 21T15:30 21T16:30 21T17:30 21T18:30 21T19:30"),
        ],
    )
    + rows(
        TROLL,
        "2024-03-30T12:00Z",
        "2024-04-01T12:00Z",
        [("30 1,2 * * *", None, "2024-03: 31T01:00 31T23:30 2024-04: 01T00:30")],
    )
    + rows(
        KWAJALEIN,
        "1993-08-20T00:00Z",
        "1993-08-24T00:00Z",
        [
            ("30 2 * * *", None, "1993-08: 20T14:30 21T14:30 22T14:30 23T14:30"),
            ("30 2 21 * *", None, ""),
        ],
    )
    + rows(
        ST_JOHNS,
        "2010-03-13T12:00Z",
        "2010-03-14T12:00Z",
        [
            ("0 0 * * *", None, "2010-03: 14T03:30"),
            ("30 0 * * *", None, "2010-03: 14T03:31"),
            ("0 1 * * *", None, "2010-03: 14T03:31"),
            ("0,1 1 * * *", None, "2010-03: 14T03:31"),
            ("2 1 * * *", None, "2010-03: 14T03:32"),
        ],
    )
    + rows(
        ST_JOHNS,
        "2010-11-06T12:00Z",
        "2010-11-08T12:00Z",
        [
            ("0 0 * * *", None, "2010-11: 07T02:30 08T03:30"),
            ("0 0 * * *", SECOND, "2010-11: 07T03:30 08T03:30"),
            ("30 23 * * *", None, "2010-11: 07T02:00 08T03:00"),
            ("0 0 7 11 *", BOTH, "2010-11: 07T02:30 07T03:30"),
        ],
    )
    # The second pass goes back over midnight, so the 7th's first fire comes before the 6th's last.
    + rows(
        ST_JOHNS,
        "2010-11-07T01:00Z",
        "2010-11-07T04:30Z",
        [
            ("*/30 * * * *", None, "2010-11: 07T01:30 07T02:00 07T02:30 07T03:00 07T03:30 07T04:00 07T04:30"),
            ("*/30 * 6 11 *", None, "2010-11: 07T01:30 07T02:00 07T03:00"),
            ("*/30 * 7 11 *", None, "2010-11: 07T02:30 07T03:30 07T04:00 07T04:30"),
            ("30 23,0 * * *", BOTH, "2010-11: 07T02:00 07T03:00 07T04:00"),
        ],
    )
)

TABLE = (
    NEW_YORK_GAP
    + NEW_YORK_FOLD
    + STOCKHOLM_BOTH
    + LORD_HOWE_BOTH
    + SAO_PAULO_BOTH
    + CASABLANCA_BOTH
    + APIA_GAP
    + KATHMANDU_GAP
    + ODD_ONES
)


@pytest.mark.parametrize(("zone", "rule", "dst", "after", "until", "expected"), TABLE)
def test_clock_changes(zone, rule, dst, after, until, expected):
    if isinstance(rule, dict):
        trigger = CalendarTrigger(**rule, timezone=zone, dst=dst)
    else:
        trigger = CronTrigger(rule, timezone=zone, dst=dst)
    check_timeline(trigger, utc(after), utc(until), expected)


@pytest.mark.parametrize(("zone", "rule", "dst", "after", "until", "expected"), TABLE)
def test_the_model_agrees_with_the_hand_written_table(zone, rule, dst, after, until, expected):
    """The brute-force model is only worth something if it gives these instants too."""
    if isinstance(rule, dict):
        rules = [calendar_rule(**rule)]
    else:
        rules = [cron_rule(each) for each in (rule if isinstance(rule, list) else [rule])]
    assert fires_between(rules, zone, utc(after), utc(until), dst) == expected


ASKED = [
    # (zone, expression, asked at, next, previous)
    (NEW_YORK, "30 1 * * *", "2026-11-01T05:29:59Z", "2026-11-01T05:30Z", "2026-10-31T05:30Z"),
    (NEW_YORK, "30 1 * * *", "2026-11-01T05:30Z", "2026-11-02T06:30Z", "2026-10-31T05:30Z"),
    (NEW_YORK, "30 1 * * *", "2026-11-01T06:00Z", "2026-11-02T06:30Z", "2026-11-01T05:30Z"),
    (NEW_YORK, "30 1 * * *", "2026-11-01T06:15Z", "2026-11-02T06:30Z", "2026-11-01T05:30Z"),
    (NEW_YORK, "30 1 * * *", "2026-11-01T06:45Z", "2026-11-02T06:30Z", "2026-11-01T05:30Z"),
    (NEW_YORK, "*/30 1 * * *", "2026-11-01T06:15Z", "2026-11-01T06:30Z", "2026-11-01T06:00Z"),
    (NEW_YORK, "30 2 * * *", "2026-03-08T06:59:59.999999Z", "2026-03-08T07:00Z", "2026-03-07T07:30Z"),
    (NEW_YORK, "30 2 * * *", "2026-03-08T07:00Z", "2026-03-09T06:30Z", "2026-03-07T07:30Z"),
    (NEW_YORK, "30 2 * * *", "2026-03-08T07:00:00.000001Z", "2026-03-09T06:30Z", "2026-03-08T07:00Z"),
    (STOCKHOLM, "30 2 * * *", "2026-10-25T01:15Z", "2026-10-26T01:30Z", "2026-10-25T00:30Z"),
    (LORD_HOWE, "45 1 * * *", "2026-04-04T15:05Z", "2026-04-05T15:15Z", "2026-04-04T14:45Z"),
    (SAO_PAULO, "30 23 * * *", "2018-02-18T02:15Z", "2018-02-19T02:30Z", "2018-02-18T01:30Z"),
    (SAO_PAULO, "@daily", "2018-11-04T02:59:59Z", "2018-11-04T03:00Z", "2018-11-03T03:00Z"),
    (CASABLANCA, "30 2 * * *", "2025-02-23T02:15Z", "2025-02-24T02:30Z", "2025-02-23T01:30Z"),
    (APIA, "0 12 * * *", "2011-12-30T10:00Z", "2011-12-30T22:00Z", "2011-12-29T22:00Z"),
    (APIA, "0 12 * * FRI", "2011-12-29T22:00Z", "2012-01-05T22:00Z", "2011-12-23T22:00Z"),
    (APIA, "0 12 30 12 *", "2011-12-30T10:00Z", "2012-12-29T22:00Z", "2010-12-30T22:00Z"),
]


@pytest.mark.parametrize(("zone", "expression", "asked", "following", "previous"), ASKED)
def test_asked_in_awkward_places(zone, expression, asked, following, previous):
    trigger = CronTrigger(expression, timezone=zone)
    assert trigger.next_after(utc(asked)) == utc(following)
    assert trigger.previous_before(utc(asked)) == utc(previous)
    assert trigger.count_between(utc(previous), utc(following) - timedelta(microseconds=1)) == (
        1 if utc(asked) in fires(trigger, utc(previous), 1) else 0
    )


def test_a_year_of_a_fixed_time_has_a_fire_for_every_date():
    for zone, expression, year in [
        (NEW_YORK, "30 2 * * *", 2026),
        (NEW_YORK, "30 1 * * *", 2026),
        (STOCKHOLM, "15 2 * * *", 2026),
        (LORD_HOWE, "15 2 * * *", 2026),
        (LORD_HOWE, "45 1 * * *", 2026),
        (SAO_PAULO, "@daily", 2018),
        (CASABLANCA, "30 2 * * *", 2025),
    ]:
        trigger = CronTrigger(expression, timezone=zone)
        assert trigger.count_between(utc(f"{year}-01-02T00:00Z"), utc(f"{year}-12-30T00:00Z")) == 362


def test_a_year_without_the_thirtieth():
    trigger = CronTrigger("30 2 * * *", timezone=APIA)
    assert trigger.count_between(utc("2011-12-28T00:00Z"), utc("2012-01-02T00:00Z")) == 5
    assert trigger.count_between(utc("2011-01-01T10:00Z"), utc("2011-12-31T10:00Z")) == 364
