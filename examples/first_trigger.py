"""When does it fire? The next five fires of a cron expression, in the time of the people who wait for them."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from noonmark import CronTrigger, describe, fires

now = datetime(2026, 10, 29, 18, 0, tzinfo=UTC)
trigger = CronTrigger("0 9 * * MON-FRI", timezone="America/New_York")

print(describe(trigger).text)
for fire in fires(trigger, after=now, count=5):
    local = fire.astimezone(ZoneInfo(trigger.timezone))
    print(f"{local:%a %d %b %H:%M} in New York, {fire:%H:%M} UTC")

# Output:
# At 09:00, Monday through Friday, America/New_York time
# Fri 30 Oct 09:00 in New York, 13:00 UTC
# Mon 02 Nov 09:00 in New York, 14:00 UTC
# Tue 03 Nov 09:00 in New York, 14:00 UTC
# Wed 04 Nov 09:00 in New York, 14:00 UTC
# Thu 05 Nov 09:00 in New York, 14:00 UTC
