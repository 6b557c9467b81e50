"""A folder from a stranger: nothing outside it is opened, nothing in it is waited for, every oddity
is named.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.snapshot.tree import DiskStore, MemoryStore, Tree
from tests.support import snapshots
from tests.support.snapshots import CLASS, DEVICE, FUNCTION, SMALL, SPEED, Snapshot, bwagent, lay

Grow = Callable[[Snapshot], Tree]


PORT = f"{DEVICE}/ports/1"
SECRET = b"root:x:0:0:secret\n"


@pytest.fixture(params=["disk", "memory"])
def grow(request: pytest.FixtureRequest, tmp_path: Path) -> Grow:
    """Make a tree over either store."""

    def grow(snapshot: Snapshot) -> Tree:
        if request.param == "memory":
            return Tree(MemoryStore(snapshot), {})
        return Tree(DiskStore(lay(tmp_path / "tree", snapshot)), {})

    return grow


def ask(tree: Tree, verb: str, path: str) -> bytes | list[str] | str:
    match verb:
        case "read":
            return tree.read(path, 9)
        case "names":
            return tree.names(path)
    return tree.link(path)


def test_links_are_followed_inside(grow: Grow) -> None:
    """Also by way of other links; `..` behind a link means the folder that it leads to."""
    links = {"sys/c": "a/b", "sys/d": "./c//../b", "sys/e": "c/../y"}
    tree = grow({"sys/a/b/x": b"1", "sys/a/y": b"2", **links})
    found = [tree.read(path, 9) for path in ("sys/a/b/x", "sys/c/x", "sys/d/x", "sys/e")]
    assert found == [b"1", b"1", b"1", b"2"]
    assert (tree.link("sys/d"), tree.names("sys/d")) == ("./c//../b", ["x"])


def test_a_file_is_read_up_to_the_limit(grow: Grow) -> None:
    assert grow({"sys/long": b"x" * 5000}).read("sys/long", 7) == b"x" * 7


WRONG: dict[str, tuple[str, str, int]] = {
    "nothing": ("read", "sys/nothing", errno.ENOENT),
    "below nothing": ("names", "sys/nothing/x", errno.ENOENT),
    "a folder is no file": ("read", "sys/folder", errno.EISDIR),
    "a file is no folder": ("names", "sys/file", errno.ENOTDIR),
    "a file is no link": ("link", "sys/file", errno.EINVAL),
    "no link": ("link", "sys/nothing", errno.ENOENT),
    "a dangling link": ("read", "sys/dangling", errno.ENOENT),
    "a loop": ("read", "sys/loop", errno.ELOOP),
    "a loop of two": ("names", "sys/ping/x", errno.ELOOP),
    "an absolute link": ("read", "sys/absolute", errno.EXDEV),
    "up and out": ("read", "sys/out", errno.EXDEV),
    "up and out by a path": ("read", "sys/../../etc/passwd", errno.EXDEV),
    "out by a folder": ("read", "sys/outside/passwd", errno.EXDEV),
    "a way without end": ("read", "sys/" + "folder/../" * 300 + "file", errno.ELOOP),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_read_fails_as_the_kernel_would(grow: Grow, wrong: str) -> None:
    """The errno is the kernel's, and EXDEV for a link that points outside."""
    tree = grow(
        {
            "sys/folder/x": b"",
            "sys/file": b"",
            "sys/dangling": "nowhere",
            "sys/loop": "loop",
            "sys/ping": "pong",
            "sys/pong": "ping",
            "sys/absolute": "/etc/passwd",
            "sys/out": "../../../../../../../../etc/passwd",
            "sys/outside": "../../../../../../../../etc",
        }
    )
    verb, path, number = WRONG[wrong]
    with pytest.raises(OSError, match=re.escape(os.strerror(number))) as caught:
        ask(tree, verb, path)
    assert caught.value.errno == number


def test_forty_links_are_followed_and_no_more(grow: Grow) -> None:
    """The limit is the kernel's."""
    links: Snapshot = {f"sys/{number}": f"{number + 1}" for number in range(41)}
    tree = grow(links | {"sys/41": b"end"})
    assert tree.read("sys/1", 9) == b"end"
    with pytest.raises(OSError, match="sys"):
        tree.read("sys/0", 9)


def test_what_the_capture_could_not_read_fails_again(tmp_path: Path) -> None:
    """Each kind of access fails; a folder that was empty lists as empty."""
    lay(tmp_path, {"sys/a/x": b"1", "sys/b": "a"})
    tree = Tree(DiskStore(str(tmp_path)), {"sys/b/x": errno.EIO}, ["sys/b/empty"])
    assert tree.names("sys/a/empty") == []
    for path in ("sys/a/x", "sys/b/x"):
        with pytest.raises(OSError, match="sys") as caught:
            tree.read(path, 9)
        assert caught.value.errno == errno.EIO


@pytest.mark.parametrize(
    "place", [f"{PORT}/state", f"{PORT}/phys_state", f"{DEVICE}/fw_ver", f"{FUNCTION}/numa_node"]
)
@pytest.mark.parametrize("target", ["absolute", "relative"])
def test_nothing_outside_is_opened(tmp_path: Path, place: str, target: str) -> None:
    """The content behind a link to a file outside is in no output."""
    (secret := tmp_path / "secret").write_bytes(SECRET)
    top = tmp_path / "snapshot"
    link = str(secret) if target == "absolute" else os.path.relpath(secret, (top / place).parent)
    folder = lay(top, {**SMALL, place: link})
    os.utime(secret, ns=(0, 0))
    found = snapshots.text(folder)
    assert "secret" not in found.replace(folder, "")
    shown = place.replace(DEVICE, f"{CLASS}/ibp0").replace(FUNCTION, f"{CLASS}/ibp0/device")
    assert f"/{shown}" in found
    assert secret.stat().st_atime_ns == 0 or _no_atime(tmp_path)


def _no_atime(folder: Path) -> bool:
    """Reading leaves no trace on this file system."""
    (probe := folder / "probe").write_bytes(b"x")
    os.utime(probe, ns=(0, 0))
    probe.read_bytes()
    return probe.stat().st_atime_ns == 0


def test_what_is_neither_file_nor_folder_is_not_there(tmp_path: Path) -> None:
    """A FIFO has no writer, a link to /dev/zero no end: neither is opened."""
    snapshot = {
        path: data for path, data in SMALL.items() if not path.endswith(("/rate", "/phys_state"))
    }
    folder = lay(tmp_path / "odd", {**snapshot, f"{PORT}/phys_state": "/dev/zero"})
    os.mkfifo(f"{folder}/{PORT}/rate")
    (port,) = snapshots.report(folder)["ports"]
    assert (port["rate_text"], port["phys_state"], port["state"]) == (None, None, "ACTIVE")
    assert bwagent("probe", "--replay", folder).returncode == 0


ODD: dict[str, tuple[bytes | str | None, str]] = {
    "a folder": (None, "Is a directory"),
    "an escape": (b"\x1b[2J\x1b[31m", "contains unprintable characters"),
    "10 MB": (b"4" * 10_000_000, "longer than 4096 bytes"),
    "infinite": (b"1e309 Gb/sec (4X NDR)", "'1e309 Gb/sec (4X NDR)' is not a rate in Gb/sec"),
    "a loop": ("rate", "Too many levels of symbolic links"),
    "outside": ("/etc/passwd", "Invalid cross-device link"),
}


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_attribute_costs_itself(tmp_path: Path, odd: str) -> None:
    """A rate that is none is reported, and no sum is made of it; all else is as it was."""
    content, text = ODD[odd]
    snapshot = {path: data for path, data in SMALL.items() if not path.endswith("/rate")}
    found = snapshots.report(lay(tmp_path / "odd", {**snapshot, f"{PORT}/rate": content}))
    (problem,) = found["problems"]
    assert problem["subject"] == f"/{CLASS}/ibp0/ports/1/rate"
    assert text in problem["text"]
    assert len(problem["text"]) < 200
    assert (found["ports"][0]["rate_gbps"], found["ports"][0]["state"]) == (None, "ACTIVE")
    assert SPEED not in found["labels"]  # 0G is said of ports that are not ACTIVE


@pytest.mark.parametrize("name", ["m" * 200, "two words", "*", "[x]", "%s{0}", "-o"])
def test_a_device_of_an_odd_but_printable_name_counts(tmp_path: Path, name: str) -> None:
    """Names are data: no glob, no format, no flag."""
    snapshot = {path: data for path, data in SMALL.items() if path != f"{CLASS}/ibp0"}
    folder = lay(tmp_path / "odd", snapshot | {f"{CLASS}/{name}": SMALL[f"{CLASS}/ibp0"]})
    assert snapshots.report(folder)["ports"][0]["device"] == name
    if name == "%s{0}":
        assert bwagent("probe", "--replay", folder).returncode == 0
