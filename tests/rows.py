"""Makes one test of the rows of a table, when workers share the tests.

What pytest, its plugins and the main process do for a test takes longer than most rows. Without workers each row is a
test of its own, which can be picked by its id.
"""

import inspect
from functools import partial, wraps

import pytest

SHARED_SCOPES = {"class", "module", "package", "session"}


def joined(items):
    """The tests of one function: a single one if its rows share everything that they use, else as they are."""
    first = items[0]
    if len(items) == 1 or not all(map(_is_plain_row, items)):
        return items
    rows = {item.callspec.id: partial(_call, item) for item in items}

    @wraps(first.function)
    def run(**shared):
        run_rows(rows, shared)

    names = [name for name in first._fixtureinfo.argnames if name not in first.callspec.params]
    names = names if first.cls is None else ["self", *names]
    run.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    )
    run.pytestmark = [mark for mark in first.function.pytestmark if mark.name != "parametrize"]
    return [pytest.Function.from_parent(first.parent, name=first.originalname, callobj=run)]


def run_rows(rows, shared):
    """Call every row; raise what failed, with the id of its row. Only those are left for another attempt."""
    failed, count = [], len(rows)
    for row, call in list(rows.items()):
        try:
            call(shared)
        except Exception as error:  # noqa: BLE001 - it is raised with the others
            error.add_note(f"in row [{row}]")
            failed.append(error)
        else:
            del rows[row]
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {count} rows failed", failed)


def _call(item, shared):
    item.obj(**shared, **item.callspec.params)


def _is_plain_row(item):
    """Whether a test is a row without marks of its own, and nothing that it uses is made for it alone."""
    spec = getattr(item, "callspec", None)
    if spec is None or spec.marks or getattr(item.obj, "is_hypothesis_test", False):
        return False
    if any(item.session._fixturemanager.getfixturedefs(name, item) for name in spec.params):
        return False  # the row is for a fixture
    if "request" in item._fixtureinfo.argnames:
        return False
    definitions = item._fixtureinfo.name2fixturedefs
    used = [name for name in item.fixturenames if name not in {"request", *spec.params}]
    return all(definitions[name][-1].scope in SHARED_SCOPES for name in used)
