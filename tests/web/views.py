"""The views of the page, with something to show in each, and words that only that view has."""


def routes(ids):
    """The route of each view, for a server that was seeded."""
    nightly = ids["schedules"]["nightly-report"]
    return {
        "now": "#/now",
        "calendar": "#/calendar",
        "schedules": "#/schedules",
        "schedule": f"#/schedules/{nightly}",
        "edit": f"#/schedules/{nightly}/edit",
        "new": "#/new",
        "occurrence": f"#/occurrences/{ids['failed']}",
        "failures": "#/failures",
        "events": "#/events",
        "workflows": "#/workflows",
        "workflow": "#/workflows/publish-sales",
        "workflow_run": f"#/workflow-runs/{ids['workflow_run']}",
        "sessions": "#/sessions",
        "session": f"#/sessions/{ids['session']}",
        "usage": "#/usage",
        "approvals": "#/approvals",
        "nodes": "#/nodes",
        "audit": "#/audit",
        "keys": "#/keys",
    }
