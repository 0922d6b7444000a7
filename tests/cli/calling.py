"""Commands called in this process: quicker than a process each, and the same from the arguments on."""

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from noonmark.cli.app import run


class Done(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """The one document on stdout."""
        assert self.out.count("\n") == 1, self
        return json.loads(self.out)

    @property
    def problem(self):
        """The one document on stderr, with nothing on stdout."""
        assert (self.out, self.err.count("\n")) == ("", 1), self
        return json.loads(self.err)

    @property
    def complaints(self):
        """The lines on stderr, with nothing on stdout."""
        assert self.out == "", self
        lines = self.err.splitlines()
        assert all(line.startswith("noonmark: ") and line.isprintable() for line in lines), lines
        return [line.removeprefix("noonmark: ") for line in lines]


def call(*arguments):
    """Run one command to its end."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([str(one) for one in arguments])
    return Done(code, out.getvalue(), err.getvalue())


class Desk:
    """Somebody who gives one command after another to the same store or server."""

    def __init__(self, *place):
        self.place = place

    def __call__(self, *arguments):
        """A command that has to succeed, for people; what it printed."""
        done = call(*arguments[:2], *self.place, *arguments[2:])
        assert (done.code, done.err) == (0, ""), done
        return done.out

    def json(self, *arguments):
        """A command that has to succeed, for machines; its document."""
        done = call(*arguments[:2], *self.place, "--json", *arguments[2:])
        assert (done.code, done.err) == (0, ""), done
        return done.json

    def refused(self, code, *arguments):
        """A command that has to fail with this exit code; the lines of its complaint."""
        done = call(*arguments[:2], *self.place, *arguments[2:])
        assert done.code == code, done
        return done.complaints

    def problem(self, code, *arguments):
        """A command that has to fail with this exit code; its problem, for machines."""
        done = call(*arguments[:2], *self.place, "--json", *arguments[2:])
        assert done.code == code, done
        return done.problem

    def create(self, *arguments):
        """A schedule whose function nobody has; its id."""
        return self.json("schedule", "create", "--function", "nobody", *arguments)["schedule_id"]


def contains(document, part):
    """Whether a document has all that a part of one says."""
    if isinstance(part, Mapping):
        return isinstance(document, dict) and all(
            name in document and contains(document[name], value) for name, value in part.items()
        )
    return document == part
