"""A capture replays as the node was seen, whatever failed meanwhile; and it is written as a whole
or not at all.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from agent.errors import Unavailable
from agent.host import Host
from agent.output.document import Choices, document
from agent.snapshot.capture import Record, RecordingRoot, entries, record, summary, write_folder
from agent.snapshot.replay import replay
from agent.snapshot.tree import MemoryStore, Tree
from agent.sources.observe import observe
from tests.support import snapshots
from tests.support.kernel_tree import BeforeReads
from tests.support.remembering import alone
from tests.support.snapshots import (
    CLASS,
    DEVICE,
    FUNCTION,
    SMALL,
    SPEED,
    Snapshot,
    bwagent,
    complaint,
    lay,
    started,
)


def second(snapshot: str, folder: Path, excluded: tuple[str, ...] = ()) -> str:
    captured, _ = record(replay(snapshot, excluded))
    write_folder(entries(captured), str(folder))
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize("machine", snapshots.MACHINES)
def test_a_capture_says_what_the_node_said(written: Callable[[str], Path], machine: str) -> None:
    """Byte for byte, also when what was captured is captured again."""
    folder = str(written(machine))
    assert snapshots.text(folder) == snapshots.told(machine)
    again, _ = record(replay(folder))
    assert entries(again) == snapshots.contents(machine)


@pytest.mark.slow
@pytest.mark.parametrize("machine", snapshots.some("cx8-ib-smi", "dgx-h100", "h20-four-bonds"))
def test_a_capture_without_a_device_says_what_the_node_said_without_it(
    tmp_path: Path, machine: str
) -> None:
    """An excluded device is named, and nothing of it is in the capture."""
    original, excluded = str(snapshots.FIXTURES / machine), ("*_1", "*p1*", "ibp0")
    first = second(original, tmp_path / "first", excluded)
    assert snapshots.text(original, excluded) == snapshots.text(first, excluded)
    names = [path.name for path in (snapshots.FIXTURES / machine / CLASS).glob("*")]
    for name in (name for name in names if any(fnmatchcase(name, glob) for glob in excluded)):
        assert (tmp_path / "first" / CLASS / name).is_symlink()
        assert not list((tmp_path / "first").glob(f"**/infiniband/{name}/*"))


def stuck(snapshot: Snapshot, path: str, wait: Callable[[], object]) -> BeforeReads:
    """A Root one of whose files makes its readers wait."""
    return BeforeReads(Tree(MemoryStore(snapshot), {}), lambda asked: asked == path and wait())


def test_a_read_that_blocks_is_in_the_capture(tmp_path: Path) -> None:
    """As ETIMEDOUT, so that the replay gives the same report; a later answer is ignored."""
    two = SMALL | {
        path.replace("ibp0", "ibp1").replace("18:00.0", "19:00.0"): data
        for path, data in SMALL.items()
        if path.startswith("sys/dev")
    }
    two |= {f"{CLASS}/ibp1": "../../devices/pci0000:16/0000:19:00.0/infiniband/ibp1"}
    gate = threading.Event()
    root = stuck(two, f"{CLASS}/ibp1/ports/1/state", lambda: gate.wait(60))
    captured, observation = record(Host(root, lambda: 1777888800.0, "node-17", deadline=0.3))
    before = (set(captured.files), dict(captured.errors))
    gate.set()
    for thread in threading.enumerate():
        if thread.name == "device ibp1":
            thread.join(10)
    assert (set(captured.files), dict(captured.errors)) == before
    write_folder(entries(captured), str(tmp_path / "stuck"))
    notes = json.loads((tmp_path / "stuck/errors.json").read_text())
    assert notes["errors"] == {f"{CLASS}/ibp1/ports/1/state": "ETIMEDOUT"}
    assert f"not read: /{CLASS}/ibp1/ports/1/state (ETIMEDOUT)" in summary(captured)
    assert snapshots.report(str(tmp_path / "stuck")) == document(*alone(observation), Choices())
    # Of the device that blocks no PCI ids are in the tree: nothing is known of its kind.
    assert document(*alone(observation), Choices())["labels"] == {}


def test_what_was_read_before_is_read_again(tmp_path: Path) -> None:
    """A host that was observed already has the same capture as one that was not."""
    host = replay(lay(tmp_path / "snapshot", SMALL))
    observe(host)
    (again, _), (first, _) = record(host), record(replay(str(tmp_path / "snapshot")))
    assert again.files == first.files
    assert f"{CLASS}/ibp0/hca_type" in again.files


def test_two_devices_may_ask_for_the_same_file_at_once(tmp_path: Path) -> None:
    """A slow netdev below two devices is no failure."""
    bond = "sys/class/net/bond0"
    roce = SMALL | {
        f"{DEVICE}/ports/1/link_layer": b"Ethernet\n",
        f"{FUNCTION}/net/bond0/dev_port": b"0\n",
        f"{bond}/speed": b"200000\n",
        f"{bond}/operstate": b"up\n",
        f"{CLASS}/ibp1": "../../devices/pci0000:16/0000:18:00.0/infiniband/ibp0",
    }
    root = stuck(roce, f"{bond}/speed", threading.Barrier(2, timeout=60).wait)
    captured, observation = record(Host(root, lambda: 1.0, deadline=5))
    assert [problem for problem in observation.problems if "broke" in problem.text] == []
    write_folder(entries(captured), str(tmp_path / "two"))
    assert snapshots.report(str(tmp_path / "two"))["labels"][SPEED] == "400G"


@pytest.mark.parametrize("kind", ["folder", "file", "dangling link", "link"])
def test_nothing_is_overwritten(tmp_path: Path, kind: str) -> None:
    """An existing path is refused before the node is read, and stays."""
    place = tmp_path / "here"
    lay(
        tmp_path,
        {"here": {"folder": None, "file": b"mine", "dangling link": "nowhere", "link": "."}[kind]},
    )
    before = os.lstat(place)
    line = f"{place}: exists already; a capture overwrites nothing"
    with pytest.raises(Unavailable, match=f"^{re.escape(line)}$"):
        write_folder({}, str(place))
    if kind == "folder":
        root = lay(tmp_path / "sys", {"x": b""})
        assert complaint(bwagent("capture", "--sysfs-root", root, str(place))) == f"bwagent: {line}"
    assert os.lstat(place) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "words"), [("", "no name"), ("no/such/place", "No such file"), ("file/x", "Not a d")]
)
def test_a_place_that_cannot_be_is_refused(tmp_path: Path, folder: str, words: str) -> None:
    """An empty name, no parent, a parent that is a file: nothing comes into being."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    root = lay(tmp_path / "node", SMALL) + "/sys"
    place = folder and f"{tmp_path}/{folder}"
    refused = bwagent("capture", "--sysfs-root", root, place, cwd=tmp_path / "empty")
    assert words in complaint(refused)
    assert sorted(os.listdir(tmp_path)) == ["empty", "file", "node"]
    assert os.listdir(tmp_path / "empty") == []


def test_a_parent_that_cannot_be_written_is_refused() -> None:
    """Not even root writes into procfs."""
    with pytest.raises(Unavailable, match=r"^/proc/capture: "):
        write_folder(
            entries(record(replay(str(snapshots.FIXTURES / "cpu-node")))[0]), "/proc/capture"
        )


def test_a_name_may_be_as_long_as_names_may_be(tmp_path: Path) -> None:
    """255 bytes, and one more is refused by the kernel."""
    captured, _ = record(replay(lay(tmp_path / "node", SMALL)))
    write_folder(entries(captured), str(tmp_path / ("x" * 255)))
    with pytest.raises(Unavailable, match="File name too long"):
        write_folder(entries(captured), str(tmp_path / ("x" * 256)))
    assert sorted(os.listdir(tmp_path)) == ["node", "x" * 255]


@pytest.mark.slow
def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """One line gives the reason, and the parent folder is as it was before."""
    (tmp_path / "parent").mkdir()
    large = {f"{DEVICE}/fw_ver": b"x" * 4096}
    root = lay(tmp_path / "node", SMALL | large) + "/sys"

    def small_disk() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    place = str(tmp_path / "parent/node")
    line = complaint(started("capture", "--sysfs-root", root, place, preexec_fn=small_disk))
    assert line == f"bwagent: {place}: File too large; nothing was left behind"
    assert os.listdir(tmp_path / "parent") == []


INTERRUPTED = """
import os, signal, sys
from agent.snapshot.capture import entries, record
from agent.snapshot.replay import replay
from agent.snapshot.capture import write_folder
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
captured, _ = record(replay(sys.argv[1]))
class Files(dict):
    def items(self):
        for number, item in enumerate(super().items()):
            if number == 5:
                os.kill(os.getpid(), signal.SIGINT)
            yield item
write_folder(Files(entries(captured)), sys.argv[2])
"""


def test_an_interrupted_capture_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "parent").mkdir()
    paths = (str(snapshots.FIXTURES / "dgx-h100"), str(tmp_path / "parent/node"))
    command = [sys.executable, "-c", INTERRUPTED, *paths]
    finished = subprocess.run(command, check=False, capture_output=True, cwd=snapshots.REPOSITORY)
    assert b"KeyboardInterrupt" in finished.stderr
    assert os.listdir(tmp_path / "parent") == []


def test_a_capture_of_this_node_replays(tmp_path: Path) -> None:
    """By the command line, with a sysfs of its own; the summary names what could not be read."""
    root = lay(tmp_path / "node", SMALL) + "/sys"
    (hca_type := tmp_path / "node" / DEVICE / "hca_type").unlink()
    hca_type.mkdir()
    finished = bwagent("capture", "--sysfs-root", root, "here", cwd=tmp_path)
    assert (finished.returncode, finished.stdout) == (0, b"")
    assert b"captured this host " in finished.stderr
    assert f"not read: /{CLASS}/ibp0/hca_type (EISDIR)".encode() in finished.stderr
    assert (tmp_path / "here").stat().st_mode & 0o777 == 0o755
    assert snapshots.report(str(tmp_path / "here"))["labels"][SPEED] == "400G"
    assert snapshots.report(str(tmp_path / "here"))["problems"][0]["error"] == "EISDIR"


def test_nothing_is_written_where_nothing_was_seen(tmp_path: Path) -> None:
    """A folder that is no sysfs is a mistake, not a node without HCAs."""
    root = lay(tmp_path / "sys", {"x": b""})
    line = complaint(bwagent("capture", "--sysfs-root", root, str(tmp_path / "here")))
    assert "nothing observed" in line
    assert os.listdir(tmp_path) == ["sys"]


def test_a_capture_keeps_the_links_on_the_way(tmp_path: Path) -> None:
    """Also where no folder was listed; two ways to a file are one file."""
    captured = Record(meta=dict.fromkeys(("agent", "kernel", "time")))
    root = RecordingRoot(replay(lay(tmp_path / "node", SMALL)).root, captured)
    root.read(f"{CLASS}/ibp0/hca_type", 9)
    root.read(f"{CLASS}/ibp0/device/numa_node", 9)
    write_folder(entries(captured), str(tmp_path / "here"))
    assert (tmp_path / "here" / CLASS / "ibp0").readlink() == Path(str(SMALL[f"{CLASS}/ibp0"]))
    assert (tmp_path / "here" / DEVICE / "hca_type").read_bytes() == b"MT4129\n"
    assert (tmp_path / "here" / FUNCTION / "numa_node").read_bytes() == b"0\n"


def test_a_folder_that_was_empty_is_written_down(tmp_path: Path) -> None:
    """For git keeps none."""
    second(lay(tmp_path / "node", {CLASS: None, "sys/class/net/lo": None}), tmp_path / "here")
    assert json.loads((tmp_path / "here/errors.json").read_text())["empty"][0] == CLASS


@pytest.mark.parametrize("name", ["x.tgz", "x.tar", "node.tar.zst"])
def test_a_folder_named_as_an_archive_is_refused(tmp_path: Path, name: str) -> None:
    """It would be a folder: the line says how to get an archive."""
    refused = bwagent("capture", "--no-wait", name, cwd=tmp_path)
    line = complaint(refused)
    assert (refused.returncode, list(tmp_path.iterdir())) == (1, [])
    assert line.startswith(f"bwagent: {name}: this would be a folder; for an archive: bwagent cap")


def test_all_counters_of_the_backend_ports_are_captured(tmp_path: Path) -> None:
    """None of a function that manages NVSwitches: a read fails, and fills the kernel log."""
    shutil.copytree(snapshots.FIXTURES / "hgx-b200-nvswitch", tmp_path / "node", symlinks=True)
    for device in (tmp_path / "node/sys/class/infiniband").iterdir():
        for folder in ("counters", "hw_counters"):
            (device / "ports/1" / folder).mkdir(exist_ok=True)
            (device / "ports/1" / folder / "some_errors").write_text("7\n")
    recorded, observation = record(replay(str(tmp_path / "node")))
    read = {path.split("/")[3] for path in recorded.files if path.endswith("/some_errors")}
    assert read == {role.device.name for role in observation.backend}
    assert len(read) == 8
    assert sum(path.endswith("hw_counters/some_errors") for path in recorded.files) == 8
    printed = bwagent("probe", "--replay", "node", "-o", "json", cwd=tmp_path).stdout
    counted = {
        port["device"]: port["counters"]
        for port in json.loads(printed)["ports"]
        if port["counters"]
    }
    assert {*counted} == read
    assert all({"name": "some_errors", "value": 7} in rows for rows in counted.values())


def test_a_capture_of_a_capture_is_anonymized(tmp_path: Path) -> None:
    """What capture.sh wrote on a node can be anonymized on any other."""
    machine = str(snapshots.FIXTURES / "dgx-h100")
    done = bwagent("capture", "--replay", machine, "--anonymize", "copy", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.startswith(f"captured {machine} into copy/: ".encode())
    copy, original = (snapshots.report(path) for path in (str(tmp_path / "copy"), machine))
    assert copy["speed_gbps"] == original["speed_gbps"]
    assert copy["ports"][0]["node_guid"] != original["ports"][0]["node_guid"]
