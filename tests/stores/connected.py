"""PostgreSQL stores whose connections a test can count and end."""

from itertools import count

from noonmark.stores.postgres import PostgresStore
from noonmark.testing.conformance import HandClock
from tests.embedded.waiting import together

NAMES = count(1)
NAP = "SELECT pg_sleep(0.05)"


class Stores:
    """Makes stores in a schema of their own, and knows their connections."""

    def __init__(self, postgres, watcher):
        self.postgres, self._watcher = postgres, watcher
        self.name = f"lines_{next(NAMES)}"
        self._made = []

    def open(self, *options, port=None):
        """A store that is open, by way of a proxy on a port or not."""
        url = "&".join([f"{self.postgres.url(port=port)}?application_name={self.name}&schema={self.name}", *options])
        store = PostgresStore(url, HandClock())
        self._made.append(store)
        store.open()
        return store

    def backends(self):
        """The server's processes for all that were made here."""
        found = self._watcher.fetch("SELECT pid FROM pg_stat_activity WHERE application_name = $1", [self.name])
        return {pid for (pid,) in found}

    def terminate(self):
        """End all of their connections, on the server's side."""
        pids = self.backends()
        self._watcher.fetch("SELECT pg_terminate_backend(pid, 30000) FROM unnest($1::int[]) AS pid", [list(pids)])
        return pids

    def nodes(self):
        """The names that were written."""
        found = self._watcher.fetch(f"SELECT route FROM {self.name}.served_routes ORDER BY route")  # noqa: S608 - our own name
        return [name for (name,) in found]

    def close(self):
        for store in self._made:
            store.close()


def ask(store, text, *parameters):
    return store._autocommit(lambda uow: uow.session.query(text, *parameters))


def occupy(store, lines):
    """Let a store have so many connections."""
    together(lines, lambda _: ask(store, NAP))
