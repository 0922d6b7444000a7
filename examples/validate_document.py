"""What is wrong with a document? Everything is told at once, each thing with its place and a stable code."""

from datetime import UTC, datetime

from noonmark import InvalidSchedule, parse_schedule

now = datetime(2026, 4, 21, 9, 0, tzinfo=UTC)
faulty = {
    "name": "",
    "trigger": {"type": "cron", "expression": "30 25 * * *", "timezone": "Europe/Stokholm"},
    "target": {"target_kind": "http", "url": "example.com/report"},
    "misfire_policy": {"type": "catch_up_all", "limit": 0},
}
sound = {
    "name": "nightly-report",
    "trigger": {"type": "cron", "expression": "30 2 * * *", "timezone": "Europe/Stockholm"},
    "target": {"target_kind": "http", "url": "https://example.com/report"},
    "misfire_policy": {"type": "catch_up_all", "limit": 5},
}

for document in (faulty, sound):
    try:
        declaration = parse_schedule(document, now=now)
    except InvalidSchedule as error:
        print(f"{len(error.problems)} problems")
        for problem in error.problems:
            print(f"  {problem.field}: {problem.message} [{problem.code}]")
    else:
        print(f"{declaration.name}: {declaration.target.route}, {declaration.misfire_policy.kind}")

# Output:
# 5 problems
#   name: must have 1 to 200 characters, not 0 [invalid_schedule]
#   trigger.expression: hour field "25": 25 is out of range; allowed are 0-23 [invalid_trigger]
#   trigger.timezone: is not an IANA time zone: "Europe/Stokholm"; did you mean Europe/Stockholm? [invalid_trigger]
#   target.url: must be an absolute http or https URL with a host [invalid_schedule]
#   misfire_policy.limit: must be an integer from 1 to 1,000, not 0 [invalid_schedule]
# nightly-report: http, catch_up_all
