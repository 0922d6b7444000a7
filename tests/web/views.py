"""The views of the page on a seeded server: the route of each, and words that it shows of the data."""

from typing import NamedTuple


class View(NamedTuple):
    """A view: the module of the page, its route with names for ids, its heading, and what it shows."""

    module: str
    route: str
    heading: str
    words: tuple[str, ...]

    def at(self, ids):
        """The route on a server that was seeded."""
        return self.route.format(**ids)


VIEWS = {
    "now": View("now", "#/now", "Now", ("Around now", "rebuild-index", "check-inventory", "failed in the last day")),
    "calendar": View("calendar", "#/calendar", "Calendar", ("Week",)),
    "day": View("calendar", "#/calendar?by=day", "Calendar", ("sync-orders",)),
    "month": View("calendar", "#/calendar?by=month", "Calendar", ("Mon", "Sun")),
    "agenda": View("calendar", "#/calendar?by=agenda&text=index", "Calendar", ("rebuild-index",)),
    "schedules": View("schedules", "#/schedules", "Schedules", ("nightly-report", "Europe/Stockholm", "team=data")),
    "schedule": View("schedule", "#/schedules/{nightly}", "nightly-report", ("Past and future", "Europe/Stockholm")),
    "edit": View(
        "edit", "#/schedules/{nightly}/edit", "nightly-report", ("At 02:30, Europe/Stockholm time.", "Policies")
    ),
    "new": View("edit", "#/new", "New schedule", ("At 09:00, Monday through Friday", "Paste a line of a crontab")),
    "occurrence": View(
        "occurrence",
        "#/occurrences/{failed}",
        "check-inventory",
        ("inventory.example: connection refused", "Decisions"),
    ),
    "running": View("occurrence", "#/occurrences/{running}", "rebuild-index", ("shard 5 of 12", "40 %")),
    "failures": View("failures", "#/failures", "Failures", ("inventory.example: connection refused",)),
    "events": View("events", "#/events", "Events", ("order.placed", "build.finished")),
    "workflows": View("workflows", "#/workflows", "Workflows", ("publish-sales",)),
    "workflow": View("workflow", "#/workflows/publish-sales", "Publish the sales of a day", ("sign-off",)),
    "workflow_run": View("workflow_run", "#/workflow-runs/{workflow_run}", "publish-sales", ("sign-off", "total")),
    "sessions": View("sessions", "#/sessions", "Sessions", ("test",)),
    "session": View("session", "#/sessions/{session}", "", ("What happened since yesterday?",)),
    "usage": View("usage", "#/usage", "Usage", ("local",)),
    "approvals": View("approvals", "#/approvals", "Approvals", ("Publish the sales of Monday?",)),
    "nodes": View("nodes", "#/nodes", "Nodes", ("leads",)),
    "audit": View("audit", "#/audit", "Audit", ("schedule/create",)),
    "keys": View("keys", "#/keys", "Keys", ()),
}
