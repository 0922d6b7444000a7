"""The journal of the processes: beginnings and ends of runs, claims, starts, settlements and lost leases."""

import json
from collections import Counter


class Journal:
    """Reads on from where it was."""

    def __init__(self, path):
        self.path = path
        self._lines = []
        self._read = 0

    @property
    def lines(self):
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._read)
                # The last line may be in the middle of being written.
                whole = file.read().rpartition(b"\n")[0]
            if whole:
                self._read += len(whole) + 1
                self._lines += [json.loads(line) for line in whole.splitlines()]
        return self._lines

    def of(self, what, **facts):
        """The lines of a kind that say all of this."""
        return [
            line
            for line in self.lines
            if line["what"] == what and all(line.get(name) == value for name, value in facts.items())
        ]

    def begins(self, schedule_id):
        """The beginnings of the runs of a schedule, in the order in which they began."""
        return sorted(self.of("begin", schedule=schedule_id), key=lambda line: line["at"])

    def begun_nominals(self, schedule_id):
        return [line["nominal"] for line in self.begins(schedule_id)]

    def busy_pids(self):
        """The processes that have begun a run and not ended it."""
        running = Counter((line["pid"], line["occurrence"]) for line in self.of("begin"))
        running.subtract((line["pid"], line["occurrence"]) for line in self.of("end"))
        return {pid for (pid, _), count in running.items() if count > 0}

    def most_at_once(self, schedule_id):
        """How many runs of a schedule there were at the same time, at most."""
        steps = [(line["at"], 1) for line in self.of("begin", schedule=schedule_id)]
        steps += [(line["at"], -1) for line in self.of("end", schedule=schedule_id)]
        running = most = 0
        for _, step in sorted(steps):
            running += step
            most = max(most, running)
        return most

    def accepted(self):
        """How many results were accepted for each occurrence, as the nodes were told."""
        return Counter(line["occurrence"] for line in self.of("settled") if line["phase"] != "pending")
