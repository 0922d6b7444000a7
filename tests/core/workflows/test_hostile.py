"""Definitions that want to cost much: each is refused, or read with little work."""

import sys
from contextlib import contextmanager

import pytest

from noonmark.core.workflows.graph import Graph
from tests.core.workflows.defined import CALL, defined, problems_of, step, workflow


@contextmanager
def calls_of_python():
    """Count the Python functions that are called, whatever the speed of the machine."""
    count = [0]

    def profile(_, event, __):
        count[0] += event == "call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield count
    finally:
        sys.setprofile(before)


def nested(depth):
    value = "{{ inputs.x }}"
    for _ in range(depth):
        value = [value]
    return value


class Untouched(list):
    """A list that is long, and that nobody may look into."""

    def __len__(self):
        return 100_000

    def __iter__(self):
        raise AssertionError("somebody looked into it")


def test_too_many_steps_are_refused_by_their_number_alone():
    assert problems_of(workflow(steps=Untouched())) == [("steps", "has 100,000 entries; at most 1,000 are allowed")]
    assert len(defined(*(step(f"s{n}") for n in range(1_000))).steps) == 1_000


WRONG = {"id": 5}


@pytest.mark.parametrize(
    ("document", "where", "words"),
    [
        pytest.param(workflow(WRONG, step("a", input={"x": "y" * 1_048_576})), "", "1,024 KiB", id="1 MiB of text"),
        pytest.param(workflow(WRONG, step("a", for_each=[0] * 600_000)), "", "1,024 KiB", id="1 MiB of elements"),
        pytest.param(workflow(WRONG, **{"ü" * 600_000: 1}), "", "1,024 KiB", id="1 MiB of UTF-8"),
        pytest.param(workflow(*[{"id": 5, "x": "y" * 1_100}] * 1_000), "", "1,024 KiB", id="together"),
        pytest.param(workflow(WRONG, step("a", input=nested(10_000))), "steps[1]", "64 levels", id="10,000 levels"),
        pytest.param(nested(10_000), "", "64 levels", id="10,000 levels of nothing"),
        pytest.param(workflow(WRONG, inputs={"x": nested(70)}), "inputs", "64 levels", id="70 levels of a default"),
    ],
)
def test_what_is_too_large_or_too_deep_is_refused_before_it_is_read(document, where, words):
    # The wrong steps are not told of: nobody has read them.
    ((field, message),) = problems_of(document)
    assert field == where
    assert words in message


def test_what_is_not_too_deep_is_read():
    inputs = {"x": nested(61)}
    assert defined(step("a"), inputs=inputs).inputs["x"].default == inputs["x"]


@pytest.mark.no_cover  # slow when it is traced; tables show what it passes through
def test_lists_that_share_their_members_are_refused_by_what_they_are_worth():
    value = ["x"]
    for _ in range(40):
        value = [value, value]
    ((_, message),) = problems_of(workflow(step("a", input={"x": value})))
    assert "1,024 KiB" in message


def test_a_chain_of_a_thousand_steps_is_read_and_every_step_knows_all_before_it():
    steps = [step("s0")]
    steps += [step(f"s{n}", f"s{n - 1}", input={"x": "{{ steps.s0.result }}"}) for n in range(1, 1_000)]
    definition = defined(*reversed(steps))
    assert [one.id for one in definition.order] == [f"s{n}" for n in range(1_000)]
    assert len(definition.downstream("s0")) == 999
    assert len(definition.layers) == 1_000


def dense(number, *, first=()):
    """As many steps that each depend on the hundred before them."""
    return {
        f"s{n}": list(first) * (n == 0) + [f"s{before}" for before in range(max(0, n - 100), n)] for n in range(number)
    }


@pytest.mark.no_cover  # slow when it is traced; tables show what it passes through
def test_a_thousand_steps_with_a_hundred_dependencies_each_are_read():
    needs = dense(1_000)
    definition = defined(*(step(name, *upstream) for name, upstream in needs.items()))
    assert sum(len(one.depends_on) for one in definition.steps) == 94_950
    assert definition.order[-1].id == "s999"


@pytest.mark.no_cover  # slow when it is traced; tables show what it passes through
def test_a_cycle_through_all_of_them_is_named_first():
    ((field, message),) = problems_of(
        workflow(*(step(name, *upstream) for name, upstream in dense(1_000, first=["s999"]).items()))
    )[:1]
    assert field == "steps[0].depends_on"
    assert message.startswith("makes a cycle of ")
    ring = workflow(*(step(f"s{n}", f"s{(n + 1) % 1_000}") for n in range(1_000)))
    ((field, message),) = problems_of(ring)
    assert field == "steps[0].depends_on"
    assert message.startswith("makes a cycle of 1,000 steps, each of which waits for the next: s0 -> s1 -> s2")
    assert message.endswith("s9 -> ..")


def test_the_work_for_a_graph_does_not_grow_with_its_paths():
    """A hundred steps in pairs have 2**50 paths, and a thousand that all depend on each other more than that."""
    with calls_of_python() as calls:
        Graph({name: upstream[-100:] for name, upstream in dense(1_000).items()})
        Graph({f"{n}{side}": [f"{n - 1}a", f"{n - 1}b"] if n else [] for n in range(50) for side in "ab"})
        tangle = Graph({f"s{n}": [f"s{m}" for m in range(100) if m != n] for n in range(100)})
        assert len(tangle.cycles()) == 1
    assert calls[0] < 200_000


def test_wrong_placeholders_without_end_are_not_all_told():
    texts = {f"x{n}": "".join(f"{{{{n{m}}}}}" for m in range(500)) for n in range(20)}
    problems = problems_of(workflow(*(step(f"s{n}", input=texts) for n in range(10))))
    assert len(problems) == 1_000


@pytest.mark.parametrize(
    "text",
    ["{{" * 50_000, "{{ " + " " * 50_000, "{{" + "a." * 40_000 + "}}", "{" * 100_000, "{{ {{ }} }}" * 5_000],
    ids=["open", "blanks", "path", "braces", "nested"],
)
def test_texts_full_of_braces_are_refused_by_one_pass(text):
    with calls_of_python() as calls:
        problems = problems_of(workflow(step("a", input={"x": text})))
    assert {field for field, _ in problems} == {"steps[0].input.x"}
    assert all(len(message) < 500 for _, message in problems)
    assert calls[0] < 50_000


@pytest.mark.parametrize(
    "name", ["ａ", "a\u200b", "é", "\u202ea", "a\n", "a b", "", "{{a}}", "steps.a", "\ud800", "~a"]
)
def test_ids_are_plain_ascii(name):
    found = dict(problems_of(workflow(step("a"), {"id": name, "target": CALL})))
    assert set(found) <= {"steps[1].id", "steps[1]"}
    assert all(message.isascii() and "\n" not in message for message in found.values())
    found = dict(problems_of(workflow(step("a"), inputs={name: 1})))
    assert all(field.startswith("inputs") for field in found)


def test_a_path_of_an_unprintable_name_is_printable():
    problems = problems_of(workflow(step("a", input={"x\n\u202e" * 100: "{{ who }}"})))
    assert all(field.isprintable() and len(field) < 200 for field, _ in problems)
