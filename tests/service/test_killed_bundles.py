"""A server is killed while it runs a bundle: another one runs the same archive, though a newer one was pushed."""

import signal
from pathlib import Path

from tests.cli.runner import Cli
from tests.embedded.waiting import FINAL, eventually
from tests.server.packed import SMALLEST, packed
from tests.service.server import serving
from tests.targets.command.harness import is_alive

JOB = """
import os, pathlib, time
folder = pathlib.Path({folder!r})
print({says!r}, flush=True)
pathlib.Path("left").touch()
note = folder / f"{{os.environ['NOONMARK_RUN_ID']}}.new"
note.write_text(f"{{os.getpid()}} {{os.getcwd()}}")
note.rename(note.with_suffix(".begun"))
while not (folder / "go").exists():
    time.sleep(0.02)
"""


def push(server, says):
    archive = server.folder / "eval.zip"
    archive.write_bytes(packed(SMALLEST, {"job.py": JOB.format(folder=str(server.folder), says=says)}))
    return Cli("--server", server.url).json("bundle", "push", archive)


def begun(folder, count):
    """The process and the working folder of each run that has begun, once there are so many."""
    found = eventually(lambda: len(found := sorted(folder.glob("*.begun"))) == count and found)
    return [(int(pid), Path(where)) for pid, where in (one.read_text().split() for one in found)]


def test_another_node_runs_the_archive_that_the_occurrence_began_with(database, tmp_path):
    options = ("--store", database.url, "--lease", "2", "--allow-bundles", "--bundle-cache", tmp_path / "cache")
    with serving(tmp_path, *options, "--migrate", name="first") as first:
        old = push(first, "first")
        occurrence = first.ask("POST", "/bundles/eval/run", {"payload": 1}).json["occurrence_id"]
        [(pid, folder)] = begun(tmp_path, 1)
        with serving(tmp_path, *options, name="second") as second:
            new = push(second, "second")
            refused = second.ask("DELETE", "/bundles/eval")
            assert (refused.status, occurrence in refused.json["detail"]) == (409, True)
            eventually(lambda: second.get(f"/occurrences/{occurrence}/runs").json["runs"][0]["result"])
            first.stop(signal.SIGKILL)
            eventually(lambda: not is_alive(pid))
            [_, (_, other)] = begun(tmp_path, 2)
            assert other != folder, "it starts in a copy of its own"
            (tmp_path / "go").touch()
            ended = eventually(lambda: (one := second.get(f"/occurrences/{occurrence}").json)["phase"] in FINAL and one)
            runs = second.get(f"/occurrences/{occurrence}/runs").json["runs"]
            newer = second.ask("POST", "/bundles/eval/run", {}).json["occurrence_id"]
            eventually(lambda: second.get(f"/occurrences/{newer}").json["phase"] == "completed")
            latest = second.get(f"/occurrences/{newer}").json
        with serving(tmp_path, *options, name="third"):
            eventually(lambda: not folder.exists())
    assert (ended["phase"], ended["attempt"]) == ("completed", 1)
    assert [run["outcome"] for run in runs] == ["completed", "lease_lost"]
    archive = {"bundle_id": "eval", "digest": old["digest"]}
    assert [run["bundle"] for run in runs] == [archive, archive] == [ended["bundle"]] * 2
    assert [run["result"]["output"] for run in runs] == ["first\n", "first\n"]
    assert latest["bundle"] == {"bundle_id": "eval", "digest": new["digest"]}
