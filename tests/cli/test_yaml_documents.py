"""YAML: the values of YAML 1.2, their lines, and what is refused."""

import pytest

from noonmark.cli.yaml_documents import format_yaml, parse_yaml
from noonmark.core.errors import InvalidSchedule

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("12:30", "12:30"),
        ("2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("0 2 * * *", "0 2 * * *"),
        ("[1, -2, 0x10, 0o17, 007]", [1, -2, 16, 15, 7]),
        ("[1.5, 1e3, .5]", [1.5, 1000.0, 0.5]),
        ("[true, False, ~, null, '']", [True, False, None, None, ""]),
        ("{a: &x {b: 1}, c: {<<: *x, d: 2}}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
        ("{<<: [{a: 1}, {a: 2, b: 3}], b: 4}", {"a": 1, "b": 4}),
        ("!!str 5", "5"),
    ],
)
def test_values_follow_yaml_1_2(text, value):
    assert parse_yaml(text)[0].value == value


@pytest.mark.parametrize(
    "value",
    [
        "on",
        "1e3",
        "0o17",
        "007",
        "12:30",
        "null",
        "",
        " x ",
        "a\nb\n",
        "${X}",
        "é\t",
        "2027-01-01",
        1.5,
        10**15,
        None,
        True,
    ],
)
def test_what_is_written_reads_back(value):
    assert parse_yaml(format_yaml({"a": [value, {"b": value}]}))[0].value == {"a": [value, {"b": value}]}


def test_documents_have_lines():
    first, second = parse_yaml("a:\n  - b: 1\n    c: [2]\n---\nd: 3\n")
    assert first.lines == {"": 1, "a": 1, "a[0]": 2, "a[0].b": 2, "a[0].c": 3, "a[0].c[0]": 3}
    assert second.lines["d"] == 5


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "is not YAML: "),
        ("a: \0", "is not YAML: "),
        ("a: 1\na: 2", 'gives the key "a" twice in one object (line 2, column 1)'),
        ("a: &a [*a]", "has more than 64 levels"),
        (BOMB, "has more than 200,000 values"),
        ("a: !!python/object/apply:os.system [x]", "has a value that is not JSON, of the tag"),
        ("a: !!python/name:os.system x", "has a value that is not JSON, of the tag"),
        ("a: !!int x", "has a value that is not JSON, of the tag"),
        ("? [1]\n: 2", "has a key that is not text (line 1, column 3)"),
        ("<<: 5", "<< must name objects"),
        ("[" * 5_000, "is n"),
    ],
)
def test_what_is_refused(text, problem):
    with pytest.raises(InvalidSchedule) as refused:
        parse_yaml(text)
    assert refused.value.message.startswith(problem)
