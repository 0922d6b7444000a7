"""How often does it fire? A year is counted, not walked through: every second costs no more than once a day."""

from datetime import UTC, datetime

from noonmark import CronTrigger, IntervalTrigger

ZONE = "Europe/Stockholm"

# The first end is not counted, the second is.
last_year = datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC)
this_year = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)

triggers = {
    "every second": CronTrigger("* * * * * *", ZONE),
    "every half hour": CronTrigger("*/30 * * * *", ZONE),
    "at 02:30 every night": CronTrigger("30 2 * * *", ZONE),
    "every Friday, and every 13th of the month": CronTrigger("0 9 13 * FRI", ZONE),
    "the last workday of the month": CronTrigger("0 17 LW * *", ZONE),
    "every 90 minutes": IntervalTrigger(5_400, start_at=datetime(2026, 1, 1, tzinfo=UTC)),
}

for name, trigger in triggers.items():
    print(f"{trigger.count_between(last_year, this_year):>10,}  {name}")

# Output:
# 31,536,000  every second
#     17,520  every half hour
#        365  at 02:30 every night
#         61  every Friday, and every 13th of the month
#         12  the last workday of the month
#      5,840  every 90 minutes
