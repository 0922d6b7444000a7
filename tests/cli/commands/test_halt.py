"""What `noonmark halt` and `noonmark unhalt` print."""

from tests.cli.runner import call


def test_halts_are_listed_one_to_a_line(tmp_path):
    place = ("--store", f"sqlite:///{tmp_path / 'noonmark.db'}")
    assert call("migrate", *place).code == 0
    assert call("halt", "--label", "team=blue", *place).code == 0
    assert call("halt", "--lineage", "desk", "--reason", "a loop", *place).code == 0
    labelled, lineage = call("halt", "--list", *place).out.splitlines()
    assert labelled.startswith("Everything with team=blue is halted since ")
    assert lineage.startswith("The lineage of desk is halted since ")
    assert call("unhalt", "--label", "team=blue", *place).out.startswith("Lifted halt_")
    assert call("unhalt", "--lineage", "desk", *place).code == 0
    assert call("halt", "--list", *place).out == "Nothing is halted.\n"
