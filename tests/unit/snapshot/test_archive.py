"""Tars from strangers: accepted where they hold a snapshot, refused as a whole, early and in one
line, where not.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from agent.errors import Malformed, Unavailable
from agent.snapshot.archive import entries
from agent.snapshot.replay import replay
from tests.support import snapshots
from tests.support.snapshots import (
    BARE,
    CLASS,
    DEVICE,
    SMALL,
    SPEED,
    Member,
    bwagent,
    complaint,
    lay,
    member,
    members,
    packed,
    tar,
)

Members = Iterator[tuple[tarfile.TarInfo, bytes]]


GOOD = members(SMALL)
BLOCK = tarfile.BLOCKSIZE
FORMS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gz": partial(snapshots.compressed, form="gz"),
    "zst": partial(snapshots.compressed, form="zst"),
}


@pytest.fixture
def whole(tmp_path: Path) -> str:
    return snapshots.text(lay(tmp_path / "whole", SMALL))


def outcome(path: Path, data: bytes) -> str | None:
    """The report on these bytes; None: refused in one line that names the file."""
    path.write_bytes(data)
    try:
        return snapshots.text(str(path))
    except Malformed as error:
        refusal = str(error)
    assert refusal.startswith(f"{path}: ")
    assert len(refusal.splitlines()) == 1
    return None


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_tar_says_what_the_folder_says(
    tmp_path: Path, whole: str, form: str
) -> None:
    """Plain, gzip and zstd are recognized by their content, not by their name."""
    assert outcome(tmp_path / "snapshot", FORMS[form](packed(SMALL))) == whole


def test_without_zstd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error says how to install it: it is in no registry as an extra of the agent."""
    path = tmp_path / "snapshot"
    path.write_bytes(FORMS["zst"](packed(SMALL)))
    monkeypatch.setitem(sys.modules, "backports", None)
    with pytest.raises(Unavailable, match=r"backports\.zstd: pip install '\.\[zstd\]'"):
        snapshots.text(str(path))


def test_a_tar_cut_at_any_block_is_refused_until_nothing_is_missing(
    tmp_path: Path, whole: str
) -> None:
    """A tar is complete with its trailing zero blocks; data of zeros does not count as those."""
    data = packed(SMALL | {f"{DEVICE}/zeros": bytes(4 * BLOCK), "zeros": bytes(4 * BLOCK)})
    end = len(data.rstrip(b"\0"))
    end = -(-end // BLOCK) * BLOCK + 4 * BLOCK  # the last member is zeros
    found = [outcome(tmp_path / "cut.tar", data[:cut]) for cut in range(0, len(data) + 1, BLOCK)]
    assert found == [None if cut <= end else whole for cut in range(0, len(data) + 1, BLOCK)]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_tar_cut_at_an_odd_place_is_refused(tmp_path: Path, whole: str, form: str) -> None:
    """However little is missing, of whatever layer; only a plain tar's last zeros may go."""
    data = FORMS[form](packed(SMALL))
    needed = -(-len(data.rstrip(b"\0")) // BLOCK) * BLOCK + BLOCK if form == "plain" else len(data)
    for cut in [*range(1, len(data) - 1, 97), needed - 1, needed, len(data) - 1]:
        assert outcome(tmp_path / "cut", data[:cut]) == (whole if cut >= needed else None)


def test_a_broken_header_in_the_middle_is_refused(tmp_path: Path) -> None:
    """Each has a checksum: what goes on behind a broken one is no shorter tar."""
    data = packed(SMALL)
    headers = [at for at in range(0, len(data), BLOCK) if data[at + 257 : at + 262] == b"ustar"]
    assert len(headers) == len(SMALL)
    for at in headers:
        broken = data[: at + 1] + bytes([data[at + 1] ^ 0x20]) + data[at + 2 :]
        assert outcome(tmp_path / "broken.tar", broken) is None


@pytest.mark.slow
@pytest.mark.parametrize("form", ["gz", "zst"])
def test_a_flipped_bit_under_compression_is_no_traceback(
    tmp_path: Path, whole: str, form: str
) -> None:
    """It is refused, or the bit has no meaning (some of gzip's header have none)."""
    data = FORMS[form](packed(SMALL))
    found = [
        outcome(tmp_path / "flipped", data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        for at in range(0, len(data), 13)
    ]
    assert {*found} <= {None, whole}
    assert None in found


LINK = tarfile.LNKTYPE
BAD: dict[str, tuple[Member, str]] = {
    "a name with ..": (member("sys/../../etc/passwd"), "etc/passwd"),
    "an absolute name": (member("/etc/passwd"), "etc/passwd"),
    "a link with ..": (member("sys/bad", "../../etc"), "sys/bad"),
    "an absolute link": (member("sys/bad", "/etc/passwd"), "sys/bad"),
    "a hard link outside": (member("sys/bad", type=LINK, linkname="../x"), "sys/bad"),
    "a hard link to /": (member("sys/bad", type=LINK, linkname="/etc/passwd"), "sys/bad"),
    "a hard link to nothing": (member("sys/bad", type=LINK, linkname="sys/no"), "sys/bad"),
    "a FIFO": (member("sys/bad", type=tarfile.FIFOTYPE), "sys/bad"),
    "a character device": (member("sys/bad", type=tarfile.CHRTYPE), "sys/bad"),
    "a block device": (member("sys/bad", type=tarfile.BLKTYPE), "sys/bad"),
    "a member of gigabytes": (member("sys/bad", size=8 << 30), "sys/bad"),
    "a member of a negative size": (member("sys/bad", size=-1), "sys/bad"),
    "gigabytes by a pax header": (member("sys/bad", pax_headers={"size": str(1 << 40)}), "sys/bad"),
}


@pytest.mark.parametrize(("bad", "named"), BAD.values(), ids=BAD)
def test_a_bad_member_refuses_the_archive(tmp_path: Path, bad: Member, named: str) -> None:
    """In a text that names the member, sound members beside it or not."""
    path = tar(tmp_path / "bad.tar", [*GOOD, bad, *members({"sys/last": b""})])
    with pytest.raises(Malformed, match=re.escape(named)):
        entries(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "count", "named"),
    [
        (member("sys/x"), 60_000, "50000 members"),
        (member("sys/" + "a/" * 2_000), 200, "64 MiB"),
    ],
    ids=["members", "folders"],
)
def test_a_large_archive_is_refused(tmp_path: Path, one: Member, count: int, named: str) -> None:
    info, data = one
    path = tmp_path / "large.tar"
    path.write_bytes((info.tobuf() + data) * count)
    assert named in complaint(bwagent("probe", "--replay", str(path)))


@pytest.mark.slow
def test_a_gzip_bomb_costs_no_more_than_what_is_allowed(tmp_path: Path) -> None:
    """8 GiB of zeros in 8 MB: refused when it has given what a snapshot may hold."""
    path = tmp_path / "bomb.tar.gz"
    one = io.BytesIO()
    with gzip.GzipFile(fileobj=one, mode="wb", compresslevel=1) as file:
        for _ in range(16):
            file.write(bytes(1 << 20))
    header = gzip.compress(member("sys/bomb", size=1 << 20)[0].tobuf())
    path.write_bytes(header + one.getvalue() * 512)
    assert "64 MiB" in complaint(bwagent("probe", "--replay", str(path)))


@pytest.mark.slow
def test_a_zstd_bomb_costs_no_more_than_what_is_allowed(tmp_path: Path) -> None:
    """A zstd bomb is refused within the same limits; its zeros need few bytes."""
    path = tmp_path / "bomb.tar.zst"
    path.write_bytes(snapshots.compressed(packed(SMALL)[:-1024] + bytes(256 << 20), "zst"))
    assert "64 MiB" in complaint(bwagent("probe", "--replay", str(path)))


LAYOUTS: dict[str, list[tuple[tarfile.TarInfo, bytes]]] = {
    "a snapshot": members(SMALL),
    "a snapshot in a folder": [member("node-17", None), *members(SMALL, "node-17/")],
    "with ./": [member("./", None), *members(SMALL, "./")],
    "a folder with ./": members(SMALL, "./node-17/"),
    "folders after their files": [*members(SMALL), member("sys", None), member(CLASS, None)],
    "class/infiniband": members(BARE, "class/infiniband/"),
    "infiniband": members(BARE, "infiniband/"),
    "devices": members(BARE | {"ibp1/hca_type": b"MT4129"}),
    "a device": members(BARE),
    "a device in a folder, with ./": members(BARE, "./infiniband/"),
    "a hard link": [
        *members({path: data for path, data in BARE.items() if not path.endswith("/rate")}),
        member("ibp0/speed", b"400 Gb/sec (4X NDR)\n"),
        member("ibp0/ports/1/rate", type=tarfile.LNKTYPE, linkname="ibp0/speed"),
    ],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_a_tar_may_be_made_in_several_ways(
    tmp_path: Path, layout: str, form: Literal[1, 2]
) -> None:
    """The tar may have a top folder or none, and hold the class or one device only."""
    found = snapshots.report(tar(tmp_path / "made.tar", LAYOUTS[layout], form))
    assert found["labels"][SPEED] == "400G"


@pytest.mark.parametrize(
    "options", [["-C", "{}", "."], ["-C", "{}/..", "infiniband"], ["-C", "{}", "-h", "ibp0"]]
)
def test_gnu_tar_of_a_copied_class_is_accepted(tmp_path: Path, options: list[str]) -> None:
    """`tar -h` follows the links to the devices, so its archive is complete."""
    folder = tmp_path / "infiniband"
    lay(tmp_path / "devices", BARE)
    lay(folder, {"ibp0": "../devices/ibp0"})
    path = str(tmp_path / "class.tar.gz")
    subprocess.run(
        ["tar", "-chzf", path, *(option.format(folder) for option in options)], check=True
    )
    assert snapshots.report(path)["labels"][SPEED] == "400G"


def test_a_class_without_its_devices_is_refused(tmp_path: Path) -> None:
    """`tar` without -h stores dangling symlinks; the error names one."""
    with pytest.raises(Malformed, match=r"links.tar: member 'infiniband/ibp0' leads outside"):
        replay(tar(tmp_path / "links.tar", members({"infiniband/ibp0": "../../devices/ibp0"})))


@pytest.mark.parametrize(
    "content",
    [b"", bytes(10240), b"PK\x03\x04zip", bytes(range(256)) * 16, b"\x1f\x8b", b"\x28\xb5\x2f\xfd"],
)
def test_what_is_no_tar_is_refused(tmp_path: Path, content: bytes) -> None:
    """Empty, all zeros, another format, noise, only a magic number."""
    assert outcome(tmp_path / "none.tar", content) is None


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    """A snapshot is a folder or a file."""
    os.mkfifo(path := tmp_path / "fifo")
    assert "neither a folder nor a file" in complaint(bwagent("probe", "--replay", str(path)))


def test_links_that_lead_astray_by_other_links_are_not_followed(tmp_path: Path) -> None:
    """Each link for itself stays inside; both together leave the folder that is left out on top."""
    astray: Any = SMALL | {
        "sys/up": "..",
        f"{DEVICE}/fw_ver": "../../../../../up/../../../../../etc/passwd",
    }
    with pytest.raises(Malformed, match="fw_ver"):
        replay(tar(tmp_path / "astray.tar", members(astray, "top/")))
