"""Lock files of nodes: who holds one, who finds it free, and what is left of it."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from noonmark.core.errors import StoreUnavailable
from noonmark.node_locks import (
    DRAFT_AGE,
    LOCAL_FILE_SYSTEMS,
    NodeLocks,
    file_system,
    file_system_of_mount,
    shared_descriptors,
)
from noonmark.stores.memory import MemoryStore
from noonmark.testing.factories import NOW
from noonmark.wiring import make_node_locks

DETAILS = "pos:\t0\nflags:\t0100002\nmnt_id:\t{}\nino:\t17\n"
MOUNTS = r"""
22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw
31 27 0:51 / /a\040b rw - nfs4 server:/export rw,vers=4.2
32 27 0:52 / /home rw - fuse.sshfs host:/ rw
33 27 0:53 / /shared rw - virtiofs shared rw
34 27 0:54 /sub /data rw - btrfs /dev/vdb rw,subvol=/sub
damaged
"""


@pytest.mark.parametrize(
    ("mount", "kind", "is_local"),
    [
        (27, "ext4", True),
        (34, "btrfs", True),
        (31, "nfs4", False),
        (32, "fuse.sshfs", False),
        (33, "virtiofs", False),
        (22, "proc", False),
        (2, "", False),
        (271, "", False),
    ],
)
def test_the_file_system_of_a_file_is_that_of_its_mount(mount, kind, is_local):
    assert file_system_of_mount(DETAILS.format(mount), MOUNTS) == kind
    assert (kind in LOCAL_FILE_SYSTEMS) == is_local


@pytest.mark.parametrize(
    "kind",
    ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "fuseblk", "ceph", "lustre", "gfs2", "ocfs2", "bcachefs", "nilfs2"],
)
def test_a_file_system_that_others_may_mount_or_that_shows_files_twice_is_not_used(kind):
    assert kind not in LOCAL_FILE_SYSTEMS


def test_a_file_that_says_nothing_of_its_mount_is_on_no_known_file_system():
    assert file_system_of_mount("pos:\t0\n", MOUNTS) == ""
    assert file_system(-1) == ""


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "nodes"


@pytest.fixture
def make(folder):
    """Locks as another process would have them: each opens the files for itself."""
    collected = []

    def locks():
        collected.append(NodeLocks(lambda: folder))
        return collected[-1]

    yield locks
    for one in collected:
        one.after_fork()


def end_process(locks):
    """What the kernel does when a process ends: its copies are closed, and the file stays."""
    locks.after_fork()


def test_a_lock_names_the_boot_the_device_and_the_inode(make, folder):
    lock = make().acquire("node-a")
    status = (folder / "node-a.lock").stat()
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert lock == f"{boot_id} {status.st_dev} {status.st_ino}"
    assert stat.S_ISREG(status.st_mode)


def test_a_node_is_gone_when_no_process_holds_its_lock(make):
    one, two, three = make(), make(), make()
    lock = one.acquire("node-a")
    for neighbour in (two, three):
        neighbour.acquire(f"node-{id(neighbour)}")
        assert neighbour.find_gone() == {}
    end_process(one)
    for neighbour in (two, three, two):  # a neighbour that has found it hides it from no other
        assert neighbour.find_gone() == {"node-a": lock}


def test_a_node_that_was_found_gone_is_forgotten_with_its_file(make, folder):
    one, two = make(), make()
    one.acquire("node-a")
    two.acquire("node-b")
    end_process(one)
    two.find_gone()
    two.remove("node-a")
    assert [file.name for file in folder.iterdir()] == ["node-b.lock"]
    assert two.find_gone() == {}
    two.remove("node-a")


def test_a_node_that_leaves_takes_its_file_and_the_empty_folder_along(make, folder):
    one, two = make(), make()
    one.acquire("node-a")
    two.acquire("node-b")
    one.release("node-a")
    assert two.find_gone() == {}
    assert [file.name for file in folder.iterdir()] == ["node-b.lock"]
    two.release("node-b")
    assert not folder.exists()
    assert two.find_gone() == {}
    assert two.acquire("node-c")


def test_a_node_has_one_lock_until_its_last_user_is_done(make):
    one, two = make(), make()
    two.acquire("node-b")
    assert one.acquire("node-a") == one.acquire("node-a")
    one.release("node-a")
    assert two.find_gone() == {}
    end_process(one)
    assert list(two.find_gone()) == ["node-a"]


def test_a_file_that_was_replaced_stays_and_is_not_the_one_that_was_locked(make, folder):
    one, two = make(), make()
    lock = one.acquire("node-a")
    two.acquire("node-b")
    (folder / "node-a.lock").unlink()
    (folder / "node-a.lock").touch()
    assert two.find_gone()["node-a"] != lock
    one.release("node-a")
    assert (folder / "node-a.lock").exists()


def descriptors(file):
    """Those of this process for a file."""
    status, found = file.stat(), []
    for fd in [int(link.name) for link in Path("/proc/self/fd").iterdir()]:
        try:
            if os.path.samestat(os.fstat(fd), status):
                found.append(fd)
        except OSError:  # of the folder that is listed
            continue
    return found


@pytest.mark.parametrize("which", [0, -1])
def test_a_descriptor_that_the_program_closed_and_opened_again_is_left_alone(make, folder, tmp_path, which):
    """A mapping has a descriptor of its own, and a program may close the files above some number."""
    one, two = make(), make()
    one.acquire("node-a")
    closed = descriptors(folder / "node-a.lock")[which]
    os.close(closed)
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    os.dup2(other, closed)
    two.acquire("node-b")
    with shared_descriptors() as shared:
        assert [os.path.samestat(os.fstat(fd), (folder / "node-a.lock").stat()) for fd in shared].count(True) == 1
    one.release("node-a")
    assert os.write(closed, b"it is open") == 10
    assert [file.name for file in folder.iterdir()] == ["node-b.lock"]
    for fd in {other, closed}:
        os.close(fd)


CLOSED = """
import os, sys
from pathlib import Path
from noonmark.node_locks import NodeLocks, shared_descriptors
locks = NodeLocks(lambda: Path(sys.argv[1]))
locks.acquire("node-a")
os.closerange(3, 256)
try:
    with shared_descriptors():
        print("shared")
except OSError as error:
    print(error)
locks.freshen()
locks.release("node-a")
print(os.listdir(Path(sys.argv[1]).parent))
"""


def test_no_process_is_started_that_cannot_hold_a_lock(folder):
    """It could go on with the work of the node when that is gone."""
    command = [sys.executable, "-c", CLOSED, str(folder)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == "this program has closed the lock file of its node node-a\n[]\n"


def test_the_files_of_this_process_look_used(make, folder):
    locks = make()
    locks.acquire("node-a")
    os.utime(folder / "node-a.lock", (0, 0))
    locks.freshen()
    status = (folder / "node-a.lock").stat()
    assert min(status.st_atime, status.st_mtime) > 0


REFUSED = """
import os
from pathlib import Path
from noonmark.node_locks import NodeLocks
folder = Path("nodes")
one, two, three = (NodeLocks(lambda: folder) for _ in range(3))
for number, locks in enumerate((one, two, three)):
    locks.acquire(f"node-{number}")
one.after_fork()
folder.chmod(0o555)
if os.geteuid() == 0:
    os.seteuid(65_534)
print(list(two.find_gone()), two.remove("node-0"), list(two.find_gone()), list(three.find_gone()))
os.seteuid(os.getuid())
folder.chmod(0o755)
three.remove("node-0")
print(list(two.find_gone()), list(three.find_gone()))
"""


def test_a_gone_node_whose_file_cannot_be_removed_is_dealt_with_once(tmp_path):
    """As in a folder of another user: each look would ask the store again."""
    tmp_path.chmod(0o755)
    said = subprocess.run(
        [sys.executable, "-c", REFUSED], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert said.splitlines() == ["['node-0'] None [] ['node-0']", "[] []"]


def test_an_inode_that_is_used_again_is_another_lock_only_after_the_last_look_at_it(make, folder):
    """The file of a node that was found gone stays open, so no other file can have its inode meanwhile."""
    one, two = make(), make()
    lock = one.acquire("node-a")
    two.acquire("node-b")
    end_process(one)
    assert two.find_gone() == {"node-a": lock}
    (folder / "node-a.lock").unlink()
    for number in range(50):
        assert make().acquire(f"node-{number}") != lock


def test_a_store_that_does_not_answer_is_not_a_reason_to_go_without_a_lock(folder):
    answers = [StoreUnavailable("connection refused"), None]

    def find_folder():
        if (error := answers.pop(0)) is not None:
            raise error
        return folder

    locks = NodeLocks(find_folder)
    with pytest.raises(StoreUnavailable):
        locks.acquire("node-a")
    assert locks.acquire("node-a")
    locks.release("node-a")


def test_a_folder_that_is_not_on_a_local_file_system_is_not_looked_into(make, caplog):
    caplog.set_level("INFO")
    folder = Path("/proc/self/task")
    locks = NodeLocks(lambda: folder)
    assert locks.acquire("node-a") == ""
    assert "/proc/self/task is on a file system of type proc" in caplog.text
    assert locks.find_gone() == {}


def test_a_file_that_is_being_created_is_not_seen_and_an_old_one_is_removed(make, folder):
    folder.mkdir()
    fresh, old = (folder / f".node-{name}.lock.draft" for name in ("x", "y"))
    fresh.touch()
    old.touch()
    os.utime(old, (0, old.stat().st_mtime - 2 * DRAFT_AGE))
    locks = make()
    assert locks.acquire("node-a")
    assert locks.find_gone() == {}
    assert (fresh.exists(), old.exists()) == (True, False)


@pytest.mark.parametrize(
    ("folder", "node"), [("/proc/nodes", "node-a"), ("/dev/null/nodes", "node-a"), ("/sys", "node-a"), (None, "a/b")]
)
def test_without_a_place_for_the_file_there_is_no_lock(make, folder, node, tmp_path, caplog):
    caplog.set_level("INFO")
    locks = NodeLocks(lambda: tmp_path if folder is None else Path(folder))
    assert locks.acquire(node) == ""
    assert "leases run out" in caplog.text
    assert locks.find_gone() == {}


def test_what_is_no_regular_file_says_nothing(make, folder):
    locks = make()
    locks.acquire("node-a")
    (folder / "node-b.lock").mkdir()
    os.mkfifo(folder / "node-c.lock")
    (folder / "node-d.lock").symlink_to(folder / "node-a.lock")
    (folder / "node-e.lock").touch(mode=0o600)
    assert list(locks.find_gone()) == ["node-e"]


@pytest.fixture
def places(tmp_path, monkeypatch):
    """An environment without any folder for locks; temporary files are in `tmp`."""
    for name in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"RUNTIME_DIRECTORY": "{}/service:{}/other", "XDG_RUNTIME_DIR": "{}"}, "service/nodes"),
        ({"XDG_RUNTIME_DIR": "{}"}, "noonmark/nodes"),
        ({"XDG_RUNTIME_DIR": "{}/missing"}, "tmp/noonmark-nodes-{}"),
        ({"RUNTIME_DIRECTORY": "relative", "XDG_RUNTIME_DIR": ""}, "tmp/noonmark-nodes-{}"),
    ],
)
def test_nodes_of_a_server_have_their_locks_in_a_runtime_folder(places, monkeypatch, variables, expected):
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("{}", str(places)))
    store = MemoryStore(lambda: NOW)
    locks = make_node_locks("postgresql://host/database", store)
    assert locks.acquire("node-a")
    folder = places / expected.format(os.geteuid())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    [lock] = folder.glob("*/node-a.lock")
    again = make_node_locks("postgresql://user@host:5432/database", store)  # another name of the same store
    assert again.acquire("node-b")
    assert [file.name for file in sorted(lock.parent.iterdir())] == ["node-a.lock", "node-b.lock"]
    other = make_node_locks("postgresql://host/other", MemoryStore(lambda: NOW))
    assert other.acquire("node-c")
    assert not (lock.parent / "node-c.lock").exists()
    for one, node in ((locks, "node-a"), (again, "node-b"), (other, "node-c")):
        one.release(node)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_runtime_folder_of_another_user_is_not_used(places, monkeypatch):
    """As in a program that `sudo -E` starts."""
    (places / "run").mkdir()
    os.chown(places / "run", 65_534, -1)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(places / "run"))
    locks = make_node_locks("postgresql://host/database", MemoryStore(lambda: NOW))
    assert locks.acquire("node-a")
    assert not list((places / "run").iterdir())
    assert list((places / "tmp").glob("noonmark-nodes-*/*/node-a.lock"))
    locks.release("node-a")


def test_a_folder_that_another_user_may_have_made_is_not_used(places):
    (places / "elsewhere").mkdir()
    (places / "tmp" / f"noonmark-nodes-{os.geteuid()}").symlink_to(places / "elsewhere")
    assert make_node_locks("postgresql://host/database", MemoryStore(lambda: NOW)).acquire("node-a") == ""


def test_locks_are_beside_the_real_file_and_a_store_in_memory_has_none(tmp_path):
    (tmp_path / "jobs.db").touch()
    (tmp_path / "link.db").symlink_to(tmp_path / "jobs.db")
    locks = make_node_locks(f"sqlite:///{tmp_path}/link.db", MemoryStore(lambda: NOW))
    assert locks.acquire("node-a")
    assert (tmp_path / "jobs.db.nodes" / "node-a.lock").exists()
    locks.release("node-a")
    assert make_node_locks("memory://", MemoryStore(lambda: NOW)) is None
