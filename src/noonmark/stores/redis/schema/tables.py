"""All tables of the store, by name: the same as those of the SQL stores."""

from __future__ import annotations

from noonmark.stores.redis.schema import accounts, schedules, workflows
from noonmark.stores.redis.transactions.table import Table
from noonmark.stores.sql.reads.inspection import PRIMARY

_KNOWN = {
    one.name: one
    for module in (schedules, workflows, accounts)
    for one in vars(module).values()
    if isinstance(one, Table)
}
TABLES = {name: _KNOWN[name] for name in PRIMARY}
"""In the order in which they are inspected."""
