"""Snapshots as strangers make them: whole, copied in part, broken, hostile; labels as far as
possible or one line.
"""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.errors import Malformed, Unavailable
from agent.snapshot.replay import replay
from tests.support import snapshots
from tests.support.snapshots import (
    BARE,
    CLASS,
    FUNCTION,
    SMALL,
    SPEED,
    Snapshot,
    bwagent,
    complaint,
    lay,
)

UEVENT = b"DRIVER=mlx5_core\nPCI_CLASS=20700\nPCI_ID=15B3:1021\nPCI_SLOT_NAME=0000:18:00.0\n"


def test_the_facts_of_the_capture_are_the_hosts(tmp_path: Path) -> None:
    """Its time, host name and kernel; not those of the machine that replays."""
    meta = b'{"schema": 1, "time": "2026-05-04T12:00:00+02:00", "kernel": "6.8.0-41-generic"}'
    host = replay(lay(tmp_path / "small", {**SMALL, "meta.json": meta}))
    assert (host.clock(), host.name, host.kernel) == (1777888800.0, "node-17", "6.8.0-41-generic")


def test_a_time_without_a_zone_is_utc(tmp_path: Path) -> None:
    """The machine that replays has a zone of its own."""
    meta = b'{"time": "2026-05-04T10:00:00"}'
    assert replay(lay(tmp_path / "small", {**SMALL, "meta.json": meta})).clock() == 1777888800.0


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nope", "No such file or directory"),
        ("empty", "no snapshot"),
        ("file", "not a tar archive"),
        ("dangling", "No such file or directory"),
    ],
)
def test_what_is_no_snapshot_is_refused(tmp_path: Path, path: str, words: str) -> None:
    """Nothing, an empty folder, an empty file, a dangling link: a line with its name."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    line = complaint(bwagent("probe", "--replay", str(tmp_path / path)))
    assert line.startswith(f"bwagent: {tmp_path / path}: {words}")


NO_SNAPSHOTS: dict[str, tuple[Snapshot, str]] = {
    "files, folders and a link": (
        {"hostname": b"node-17\n", "ssl/certs": None, "mtab": "../proc/self/mounts"},
        "no snapshot: neither a sys folder nor the devices of class/infiniband are in it",
    ),
    "links only": (
        {"mlx5_0": "../../devices/pci0000:16/0000:18:00.0/infiniband/mlx5_0", "mlx5_1": "nowhere"},
        "no snapshot: only links, whose targets are not in it (cp -rL copies the targets)",
    ),
}


@pytest.mark.parametrize("kind", NO_SNAPSHOTS)
def test_a_folder_that_is_no_snapshot_is_described_truly(tmp_path: Path, kind: str) -> None:
    """A folder such as /etc is no class folder copied without its devices."""
    content, words = NO_SNAPSHOTS[kind]
    folder = lay(tmp_path / "folder", content)
    with pytest.raises(Malformed, match=f"^{re.escape(f'{folder}: {words}')}$"):
        replay(folder)


def test_an_empty_sys_is_no_observation(tmp_path: Path) -> None:
    """The report has a problem and no speed, and the exit code is 1."""
    finished = bwagent("probe", "--replay", lay(tmp_path / "hollow", {"sys": None}), "-o", "json")
    assert (finished.returncode, finished.stderr.count(b"\n")) == (1, 1)
    assert (json.loads(finished.stdout)["speed_gbps"], json.loads(finished.stdout)["labels"]) == (
        None,
        {},
    )


def test_a_sys_that_is_a_link_is_no_snapshot(tmp_path: Path) -> None:
    """Or else this machine's own sysfs would be read as a stranger's."""
    with pytest.raises(Malformed, match="no snapshot"):
        replay(lay(tmp_path / "link", {"sys": "/sys", "class/infiniband": "/sys/class/infiniband"}))


BROKEN: dict[str, tuple[str, bytes]] = {
    "not JSON": ("errors.json", b"{"),
    "empty": ("meta.json", b""),
    "not UTF-8": ("host.json", b'{"hostname": "\xff"}'),
    "a list": ("errors.json", b"[]"),
    "a number": ("meta.json", b"1"),
    "null": ("host.json", b"null"),
    "deep": ("errors.json", b"[" * 100_000),
    "deep objects": ("meta.json", b'{"a":' * 100_000),
    "a deep schema": ("meta.json", b'{"schema":' + b"[" * 900 + b"]" * 900 + b"}"),
    "a huge schema": ("meta.json", b'{"schema": "' + b"x" * 900_000 + b'"}'),
    "huge": ("errors.json", b'{"errors": {}, "x": "' + b"x" * (2 << 20) + b'"}'),
    "a huge number": ("meta.json", b'{"schema": ' + b"9" * 100_000 + b"}"),
    "another schema": ("meta.json", b'{"schema": 2}'),
    "no schema": ("meta.json", b'{"schema": null}'),
    "a time that is none": ("meta.json", b'{"time": "yesterday\\n\\u001b[2J"}'),
    "a time that is a number": ("meta.json", b'{"time": 1777888800}'),
    "a kernel that is none": ("meta.json", b'{"kernel": ["6.8"]}'),
    "a host name that is a number": ("host.json", b'{"hostname": 17}'),
    "a host name with an escape": ("host.json", b'{"hostname": "\\u001b[2J"}'),
    "a host name with half a character": ("host.json", b'{"hostname": "\\ud800"}'),
    "a huge host name": ("host.json", b'{"hostname": "' + b"x" * 900_000 + b'"}'),
    "errors that are a list": ("errors.json", b'{"errors": ["sys/x"]}'),
    "an unknown errno": ("errors.json", b'{"errors": {"sys/x": "EWHATEVER"}}'),
    "an errno that is a number": ("errors.json", b'{"errors": {"sys/x": 5}}'),
    "an errno that is a list": ("errors.json", b'{"errors": {"sys/x": ["EIO"]}}'),
    "a path with an escape": ("errors.json", b'{"errors": {"sys/\\n\\u001b[2J": "E"}}'),
    "a huge path": ("errors.json", b'{"errors": {"' + b"x" * 900_000 + b'": "E"}}'),
    "a path of many folders": ("errors.json", b'{"errors": {"' + b"x/" * 400_000 + b'": "EIO"}}'),
    "many paths of many folders": (
        "errors.json",
        json.dumps(
            {"errors": {f"{number}/" + "x/" * 1000: "EIO" for number in range(400)}}
        ).encode(),
    ),
    "a path outside": ("errors.json", b'{"errors": {"../../etc/passwd": "EIO"}}'),
    "empty that is a text": ("errors.json", b'{"empty": "sys/x"}'),
    "empty of numbers": ("errors.json", b'{"empty": [1]}'),
    "empty outside": ("errors.json", b'{"empty": ["sys/../../x"]}'),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_note_refuses_the_snapshot(tmp_path: Path, broken: str) -> None:
    """One short printable line names the snapshot and the file in it."""
    name, content = BROKEN[broken]
    folder = lay(tmp_path / "small", {**SMALL, name: content})
    with pytest.raises(Malformed) as refused:
        replay(folder)
    line = str(refused.value)
    assert line.startswith(f"{folder}: {name}: ")
    assert line.isprintable()
    assert len(line) < len(folder) + 340


@pytest.mark.parametrize("broken", ["deep", "huge", "many paths of many folders"])
def test_a_broken_note_costs_little(tmp_path: Path, broken: str) -> None:
    """The program has a limit of memory here."""
    name, content = BROKEN[broken]
    folder = lay(tmp_path / "small", {**SMALL, name: content})
    line = complaint(bwagent("probe", "--replay", folder))
    assert line.startswith(f"bwagent: {folder}: {name}: ")


@pytest.mark.parametrize("path", ["sys/\ud800/x", "sys/a\0b", "", "/", "sys/x/" * 60, "x" * 5000])
def test_an_odd_path_in_the_notes_hurts_nothing_else(tmp_path: Path, path: str) -> None:
    """A path that no file can have, or that is not there."""
    notes = json.dumps({"errors": {path: "EIO"}, "empty": [path]}).encode()
    assert (
        snapshots.report(lay(tmp_path / "small", {**SMALL, "errors.json": notes}))["labels"][SPEED]
        == "400G"
    )


def test_notes_that_are_links_are_not_read(tmp_path: Path) -> None:
    """A link may point outside the snapshot."""
    (tmp_path / "secret.json").write_text('{"hostname": "secret"}')
    small = SMALL | {
        "host.json": "../secret.json",
        "errors.json": "/etc/passwd",
        "meta.json": "meta.json",
    }
    assert replay(lay(tmp_path / "small", small)).name is None


def copied(tmp_path: Path, machine: Snapshot, *how: str) -> str:
    """Return the result of `cp` of a machine's class folder; it warns about the loops of sysfs."""
    source = lay(tmp_path / "machine", machine)
    subprocess.run(
        ["cp", *how, f"{source}/{CLASS}", str(tmp_path / "copy")], check=False, capture_output=True
    )
    return str(tmp_path / "copy")


@pytest.mark.parametrize("uevent", [UEVENT, None])
def test_a_class_copied_with_its_devices_has_labels(tmp_path: Path, uevent: bytes | None) -> None:
    """`cp -rL` turns links into folders; what they said is in `device/uevent`, if that is there."""
    machine = SMALL | ({f"{FUNCTION}/uevent": uevent} if uevent else {})
    found = snapshots.report(copied(tmp_path, machine, "-rL"))
    assert found["labels"] == snapshots.report(str(tmp_path / "machine"))["labels"]
    assert [port["pci"] for port in found["ports"]] == ["0000:18:00.0" if uevent else None]


@pytest.mark.parametrize("machine", ["dgx-h100", "h200-roce", "hgx-b200-nvswitch"])
def test_a_real_class_copied_with_its_devices_has_its_labels(tmp_path: Path, machine: str) -> None:
    folder = snapshots.FIXTURES / machine
    subprocess.run(
        ["cp", "-rL", folder / CLASS, tmp_path / "copy"], check=False, capture_output=True
    )
    own = ("flavor", "speed.current")  # a class alone has no neighbors and no GPUs
    expected = {
        key: value
        for key, value in snapshots.report(str(folder))["labels"].items()
        if key.endswith(own)
    }
    assert expected
    assert snapshots.report(str(tmp_path / "copy"))["labels"] == expected


def test_a_class_copied_without_its_devices_is_refused(tmp_path: Path) -> None:
    """`cp -r` leaves dangling symlinks; the error names the flags to copy with."""
    with pytest.raises(Malformed, match=r"copy: .*cp -rL"):
        replay(copied(tmp_path, SMALL, "-r"))


def test_a_device_that_lost_its_link_is_named(tmp_path: Path) -> None:
    """In a tree that was copied in part the others count."""
    found = snapshots.report(
        lay(tmp_path / "part", SMALL | {f"{CLASS}/ibp1": "../../devices/nowhere/ibp1"})
    )
    assert found["labels"][SPEED] == "400G"
    (problem,) = found["problems"]
    assert problem["subject"] == f"/{CLASS}/ibp1/ports"
    assert "lost its links" in problem["text"]


@pytest.mark.parametrize("mount", ["", "infiniband/"])
def test_links_of_a_bare_tree_lead_nowhere(tmp_path: Path, mount: str) -> None:
    """Neither into the folder beside it nor above."""
    (tmp_path / "secret").write_bytes(b"4: SECRET\n")
    bare = {
        **BARE,
        "ibp0/ports/1/state": f"../../..{'/..' if mount else ''}/../secret",
        "ibp0/fw_ver": "/etc/hostname",
    }
    top = lay(
        tmp_path / "bare",
        {f"class/{mount}{path}" if mount else path: data for path, data in bare.items()},
    )
    (port,) = snapshots.report(top)["ports"]
    assert port["state"] is None


def test_what_stands_beside_bare_devices_is_no_note(tmp_path: Path) -> None:
    """Neither in a folder nor in a tar of it."""
    beside = BARE | {"errors.json": b"{"}
    tar = snapshots.tar(tmp_path / "bare.tar", snapshots.members(beside))
    for path in (lay(tmp_path / "bare", beside), tar):
        assert snapshots.report(path)["labels"][SPEED] == "400G"


def test_an_unreadable_snapshot_is_refused() -> None:
    with tempfile.TemporaryDirectory() as top:
        folder = Path(lay(Path(top) / "small", SMALL))
        Path(top).chmod(0o755)
        folder.chmod(0)
        with _as_nobody(), pytest.raises(Unavailable, match=f"{folder}: Permission denied"):
            replay(str(folder))


@contextmanager
def _as_nobody() -> Iterator[None]:
    """Root may read everything."""
    user = os.geteuid()
    os.seteuid(65534 if user == 0 else user)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("name", ["EOPNOTSUPP", "ENOTSUP", "EAGAIN", "EWOULDBLOCK"])
def test_an_errno_may_have_either_of_its_names(tmp_path: Path, name: str) -> None:
    """Errno.errorcode has one name for a number, other programs have the other."""
    notes = json.dumps({"errors": {f"{CLASS}/ibp0/hca_type": name}}).encode()
    host = replay(lay(tmp_path, SMALL | {"errors.json": notes}))
    with pytest.raises(OSError, match=os.strerror(getattr(errno, name))):
        host.root.read(f"{CLASS}/ibp0/hca_type", 10)
