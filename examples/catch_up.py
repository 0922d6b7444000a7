"""What runs after an outage? A schedule fires every ten minutes, and nobody was there from 01:55 to 04:05."""

from datetime import UTC, datetime

from noonmark import CronTrigger
from noonmark.core.instants import SECOND, from_micros, to_micros
from noonmark.core.policies.catch_up import decide
from noonmark.core.policies.misfire import CatchUpAll, CatchUpOne, CatchUpWithin, Skip, Spread

trigger = CronTrigger("*/10 * * * *")
stopped = to_micros(datetime(2026, 4, 21, 1, 55, tzinfo=UTC))
now = to_micros(datetime(2026, 4, 21, 4, 5, tzinfo=UTC))


def clock(micros: int) -> str:
    """An instant as the time of day."""
    return f"{from_micros(micros):%H:%M}"


for policy in (
    Skip(),
    Skip(grace=600 * SECOND),
    CatchUpOne(),
    CatchUpAll(limit=3),
    CatchUpWithin(window=1_800 * SECOND),
    Spread(limit=4, window=600 * SECOND),
):
    decision = decide(policy, trigger, uid="report", after=stopped, now=now)
    print(f"{policy.kind}, {policy.grace // SECOND} s of grace")
    for start in decision.starts:
        print(f"  {clock(start.nominal)} runs, due {clock(start.due)} ({start.reason})")
    if (missed := decision.missed) is not None:
        print(f"  {clock(missed.first)} to {clock(missed.last)}: {missed.count} missed ({missed.reason})")

# Output:
# skip, 60 s of grace
#   02:00 to 04:00: 13 missed (late)
# skip, 600 s of grace
#   04:00 runs, due 04:00 (within_grace)
#   02:00 to 03:50: 12 missed (late)
# catch_up_one, 60 s of grace
#   04:00 runs, due 04:00 (caught_up)
#   02:00 to 03:50: 12 missed (newer_fire)
# catch_up_all, 60 s of grace
#   03:40 runs, due 03:40 (caught_up)
#   03:50 runs, due 03:50 (caught_up)
#   04:00 runs, due 04:00 (caught_up)
#   02:00 to 03:30: 10 missed (catch_up_limit)
# catch_up_within, 60 s of grace
#   03:40 runs, due 03:40 (caught_up)
#   03:50 runs, due 03:50 (caught_up)
#   04:00 runs, due 04:00 (caught_up)
#   02:00 to 03:30: 10 missed (late)
# spread, 60 s of grace
#   03:30 runs, due 04:05 (caught_up)
#   03:40 runs, due 04:07 (caught_up)
#   03:50 runs, due 04:10 (caught_up)
#   04:00 runs, due 04:12 (caught_up)
#   02:00 to 03:20: 9 missed (catch_up_limit)
