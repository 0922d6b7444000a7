"""Schedules that the tests of commands create."""

NEVER = ("--cron", "0 0 1 1 *", "--timezone", "UTC")


def create(cli, *options):
    return cli.json("schedule", "create", "--function", "report", *NEVER, *options)["schedule_id"]
