"""Names that a stranger gave to files and folders: `probe --replay` prints none unescaped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.snapshots import (
    CLASS,
    DEVICE,
    FUNCTION,
    SMALL,
    Finished,
    Snapshot,
    bwagent,
    lay,
    members,
    tar,
)

STRANGE = "\x1b[31mred\x07\n\u202e\x9b2J\r"  # escape sequences, a line end, a change of direction
NO_TEXT = "\udcff\udcfe"  # bytes that are not UTF-8

SHOWN: Snapshot = SMALL | {
    f"lldp/{STRANGE}.pcap": b"junk",
    f"lldp/{NO_TEXT}.pcap": b"junk",
    f"{CLASS}/{STRANGE}": "../../devices/pci0000:16",
    f"{CLASS}/{STRANGE}-file": b"x",
    f"{CLASS}/{NO_TEXT}": "x",
    f"{CLASS}/odd": f"../../{STRANGE}",
    f"sys/{STRANGE}/ports": None,
    f"{DEVICE}/ports/{STRANGE}/state": b"4: ACTIVE\n",
    f"{DEVICE}/fw_ver": STRANGE.encode(),
    f"{DEVICE}/board_id": STRANGE.encode(),
    f"{FUNCTION}/net/{STRANGE}/speed": b"1\n",
    f"{FUNCTION}/driver": f"../drivers/{STRANGE}",
}
REFUSED: dict[str, Snapshot] = {
    "an answer": {f"smp/{STRANGE}.json": b"{"},
    "an errno": {"errors.json": b'{"errors": {"sys/\\u001b[31m\\u009b": "E"}}'},
    "a link outside": {f"sys/{STRANGE}": "/etc/passwd"},
}


def check_printable(finished: Finished) -> None:
    """Standard output has printable lines, standard error one at most."""
    for stream in (finished.stdout, finished.stderr):
        assert all(line.isprintable() for line in stream.decode().split("\n"))
    assert finished.stderr.count(b"\n") <= 1
    assert finished.returncode in {0, 1}


@pytest.mark.parametrize("output", ["table", "labels", "json", "yaml"])
def test_a_strange_name_is_printed_as_an_escape(tmp_path: Path, output: str) -> None:
    """In each format, of folders and of tars."""
    path = lay(tmp_path / "snapshot", SHOWN)
    if output == "table":
        path = tar(tmp_path / "snapshot.tar", members(SHOWN))
    found = bwagent("probe", "--replay", path, "-o", output)
    check_printable(found)
    assert (found.returncode, b"400" in found.stdout) == (0, True)


@pytest.mark.parametrize("name", REFUSED)
def test_a_message_has_a_strange_name_as_an_escape(tmp_path: Path, name: str) -> None:
    folder = lay(tmp_path / "snapshot", SMALL | REFUSED[name])
    check_printable(bwagent("probe", "--replay", folder))


@pytest.mark.slow
@pytest.mark.parametrize("content", [{}, {"errors.json": b"{"}, SMALL])
def test_the_snapshot_itself_may_have_a_strange_name(tmp_path: Path, content: Snapshot) -> None:
    """A file that somebody sent has the name that he gave it."""
    folder = lay(tmp_path / STRANGE, content)
    packed = tar(tmp_path / f"{STRANGE}.tar", members(content, f"{STRANGE}/"))
    for path in (folder, packed, f"{folder}/nothing", f"{folder}\udcff"):
        check_printable(bwagent("probe", "--replay", path))
