"""Anonymized machines: the same labels, and no name or address of the original.

The originals are collected independently of the code under test: everything that has the form of an
address in any file or name of a machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.lldp.snapshot import RecordedLldp
from agent.snapshot import archive
from agent.snapshot.anonymize import anonymize
from agent.snapshot.capture import Record, entries, record, write_folder, write_tar
from agent.snapshot.replay import replay
from agent.snapshot.tree import Contents
from tests.support import snapshots
from tests.support.recordings import lldp_of
from tests.support.snapshots import CLASS, DEVICE, FUNCTION, SMALL, Snapshot, lay

KINDS = ("via", "selected", "ambiguous", "node_type", "age_s", "ttl", "port_id_subtype")
SERIAL = re.compile(rb"(?:SN|V[0-9A-Z])[\x04-\x20]([A-Z0-9]{6,})")
MAC = "0c:42:a1:aa:bb:cc"
GUID = "0c42:a103:00aa:bbcc"
OWNED: Snapshot = SMALL | {
    f"{DEVICE}/node_guid": f"{GUID}\n".encode(),
    f"{DEVICE}/sys_image_guid": f"{GUID}\n".encode(),
    f"{DEVICE}/ports/1/gids/0": f"fe80:0000:0000:0000:{GUID}\n".encode(),
    f"{FUNCTION}/net/enx0c42a1aabbcc/dev_port": b"0\n",
    "sys/class/net/enx0c42a1aabbcc": f"../../{FUNCTION.removeprefix('sys/')}/net/enx0c42a1aabbcc",
    f"{FUNCTION}/vpd": b"\x82\x05\x00CX-7 \x90\x10\x00SN\x0dMT2314X04212V0\x00\x78",
    "proc/net/route": (
        b"Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        b"enx0c42a1aabbcc\t00000000\tFEFF8D0A\t0003\t0\t0\t100\t00000000\t0\t0\t0  \n"
        b"enx0c42a1aabbcc\t00008D0A\t00000000\t0001\t0\t0\t100\t0000FFFF\t0\t0\t0  \n"
    ),
    "proc/net/ipv6_route": (
        b"00000000000000000000000000000000 00 20010db8000100000000000000000000 40 "
        b"fe800000000000000e42a1fffeaabbcc 00000400 00000001 00000000 00000003 enx0c42a1aabbcc\n"
        b"20010db8000100000000000000000000 40 00000000000000000000000000000000 00 "
        b"00000000000000000000000000000000 00000100 00000001 00000000 00000001 enx0c42a1aabbcc\n"
    ),
}


def anonymized(snapshot: str, folder: Path) -> str:
    """Capture a replayed snapshot under other names; the path of what was written."""
    captured, _ = record(replay(snapshot))
    write_folder(entries(anonymize(captured)), str(folder))
    return str(folder)


def everything(folder: Path) -> bytes:
    """All names, link targets and contents below a folder, in lower case."""
    return b"\n".join(_pieces(folder)).lower()


def everything_in(capture: Contents) -> bytes:
    """The same of a capture, but for its README."""
    found = {path: content for path, content in capture.items() if path != "README.md"}
    contents = [one.encode() if isinstance(one, str) else one or b"" for one in found.values()]
    return b"\n".join([*map(str.encode, found), *contents]).lower()


def _pieces(folder: Path) -> Iterator[bytes]:
    for path in folder.rglob("*"):
        yield str(path.relative_to(folder)).encode()
        if path.is_symlink():
            yield str(path.readlink()).encode()
        elif path.is_file() and path.name not in {
            "README.md",
            "expected.labels",
            "expected.evidence",
        }:
            yield path.read_bytes()


def originals(folder: Path) -> set[str]:
    """The digits of every GUID and MAC, and the other names of a machine, in lower case."""
    facts, meta = (json.loads((folder / name).read_bytes()) for name in ("host.json", "meta.json"))
    found = {
        facts["hostname"].lower(),
        meta["boot_id"].lower(),
        *_gateways(folder),
        *_gpus(folder / "nvml.json"),
    }
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            found |= (
                {serial.decode().lower() for serial in SERIAL.findall(data)}
                if path.name == "vpd"
                else set()
            )
            found |= _addresses(path.name, data.decode("utf-8", "replace").strip().replace(":", ""))
    return {name for name in found if name.strip("0") and name.strip("f")}


def _gpus(answer: Path) -> set[str]:
    gpus = json.loads(answer.read_bytes())["gpus"] if answer.exists() else []
    clusters = {(gpu["fabric"] or {}).get("cluster_uuid", "") for gpu in gpus}
    serials = {gpu["platform"]["chassis_serial_number"] for gpu in gpus if "platform" in gpu}
    return clusters | serials | {gpu["uuid"].removeprefix("GPU-") for gpu in gpus if gpu["uuid"]}


def _addresses(name: str, digits: str) -> set[str]:
    if name in {"node_guid", "sys_image_guid"}:
        return {digits}
    if name.isdecimal() and len(digits) == 32:  # a GID
        return {digits[16:]}
    return (
        {digits}
        if name == "address" and len(digits) == 12
        else {digits[-16:]}
        if name == "address"
        else set()
    )


def _gateways(folder: Path) -> set[str]:
    rows = [row.split() for row in (folder / "proc/net/route").read_text().splitlines()[1:]]
    rows6 = [row.split() for row in (folder / "proc/net/ipv6_route").read_text().splitlines()]
    return {row[2].lower() for row in rows} | {row[4] for row in rows6}


def spellings(name: str) -> Iterator[bytes]:
    """The ways to write the digits of an address; other names have one."""
    yield name.encode()
    if len(name) in {12, 16} and re.fullmatch("[0-9a-f]+", name):
        for width in (2, 4):
            groups = [name[at : at + width] for at in range(0, len(name), width)]
            yield from (mark.join(groups).encode() for mark in ":-.")


def unnamed(labels: dict[str, str]) -> dict[str, str]:
    named = ("neighbors.current.", "leaves.current", "leafgroup.current", "/accelerator")
    return {key: value for key, value in labels.items() if not any(part in key for part in named)}


@pytest.mark.slow
@pytest.mark.parametrize("machine", snapshots.MACHINES)
def test_a_machine_keeps_its_labels_and_loses_its_names(tmp_path: Path, machine: str) -> None:
    """Nothing of the originals is left, however spelled; all else is as it was."""
    folder, other = snapshots.FIXTURES / machine, str(tmp_path / "other.tar")
    with Path(other).open("wb") as file:  # one file instead of a thousand
        write_tar(entries(anonymize(snapshots.captured(machine)[0])), file, 0.0)
    written = archive.entries(other)
    found = everything_in(written)
    left = [name for name in originals(folder) for form in spellings(name) if form in found]
    assert left == []
    before, after = json.loads(snapshots.told(machine)), snapshots.report(other)
    check_guids(before, after)
    check_neighbors(before, after)
    assert after["labels"].keys() == before["labels"].keys()
    assert unnamed(after["labels"]) == unnamed(before["labels"])
    renamed = {"interface", "device", "leg", "netdev", "reason"}
    renamed |= {"node_guid", "port_guid", "sys_image_guid"}
    host, renamed_host = (
        json.loads(text)["hostname"]
        for text in ((folder / "host.json").read_bytes(), written["host.json"] or b"")
    )
    for port in before["ports"]:  # ionic prints the node description, which has the host's name
        port["hca_type"] = port["hca_type"] and port["hca_type"].replace(host, renamed_host)
    for key in set(before["ports"][0] if before["ports"] else ()) - renamed:
        assert [port[key] for port in after["ports"]] == [port[key] for port in before["ports"]]
    assert [port["role"] for port in after["ports"]] == [port["role"] for port in before["ports"]]


def check_guids(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Which ports belong to one card must still be seen; unknown stays unknown."""
    for kind in ("node_guid", "port_guid", "sys_image_guid"):
        pairs = {
            (old[kind], new[kind]) for old, new in zip(before["ports"], after["ports"], strict=True)
        }
        assert len(pairs) == len({old for old, _ in pairs}) == len({new for _, new in pairs})
        assert all(old != new for old, new in pairs if old)
        assert all(new is None for old, new in pairs if old is None)


def check_neighbors(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Each is at its port, of its kind; equal names are equal still, others are others."""
    assert after["missing_neighbors"] == before["missing_neighbors"]
    devices = set()
    for old, new in zip(before["neighbors"], after["neighbors"], strict=True):
        assert [new[key] for key in KINDS] == [old[key] for key in KINDS]
        assert (new["port_name"] is None) == (old["port_name"] is None)
        devices.add((old["device"], new["device"]))
    names = {old for old, _ in devices}
    assert len(devices) == len(names) == len({new for _, new in devices})
    text = json.dumps(after)
    assert not [one for one in names if re.search(rf"(?<![\w.-]){re.escape(one)}(?![\w.-])", text)]


def test_the_collection_of_originals_finds_them() -> None:
    """Or else the tests above could not fail."""
    found = originals(snapshots.FIXTURES / "dgx-h100")
    assert {"dgx-01", "09c0d450-a817-5b41-bda4-395f8521fcaf", "feff8d0a"} <= found
    assert len([name for name in found if len(name) == 16]) >= 12
    names = everything(snapshots.FIXTURES / "dgx-h100")
    assert all(any(form in names for form in spellings(name)) for name in found)


@pytest.mark.slow
def test_two_machines_of_a_cluster_hide_each_others_names(tmp_path: Path) -> None:
    """Neither capture holds a name of the other."""
    machines = [snapshots.FIXTURES / name for name in ("dgx-h100", "sick-hca")]
    for number, folder in enumerate(machines):
        found = everything(Path(anonymized(str(folder), tmp_path / str(number))))
        names = {name for machine in machines for name in originals(machine)}
        assert [name for name in names for form in spellings(name) if form in found] == []


def test_names_in_paths_links_and_routes_go(tmp_path: Path) -> None:
    """Of interfaces, gateways, sources and serial numbers; the default route stays."""
    found = everything(Path(anonymized(lay(tmp_path / "node", OWNED), tmp_path / "other")))
    names = (b"0c42a1", b"0c:42:a1", b"0c42:a1", b"aabbcc", b"feff8d0a", b"00008d0a", b"2001")
    assert [name for name in (*names, b"0e42a1", b"mt2314", b"node-17") if name in found] == []
    assert re.search(rb"\nenx02[0-9a-f]{10}\t00000000\t00000000\t0003", found)


def test_the_netdevs_of_the_namespace_go_with_their_counters(tmp_path: Path) -> None:
    """Of /proc/net/dev the names stay, as they are called elsewhere: the front end is known.

    It is all that a node without GPU has, so there is no backend.
    """
    node = OWNED | {
        f"{DEVICE}/ports/1/link_layer": b"Ethernet\n",
        "proc/net/dev": (
            b"Inter-|   Receive\n face |bytes\n"
            b"    lo:  987654321       1\nenx0c42a1aabbcc: 987654321       1\n"
        ),
    }
    other = anonymized(lay(tmp_path / "node", node), tmp_path / "other")
    found = everything(Path(other))
    assert b"987654321" not in found
    assert re.search(rb"\n    lo:\nenx02[0-9a-f]{10}:\n", found)
    assert snapshots.report(other)["labels"] == {"backend.coreweave.cloud/speed.current": "0G"}


SPELLED = [
    "0x0c42a10300aabbcc",
    "0C42A10300AABBCC",
    "0c-42-a1-03-00-aa-bb-cc",
    "0c42.a103.00aa.bbcc",
    GUID.upper(),
]


@pytest.mark.parametrize("spelled", SPELLED)
def test_a_guid_goes_in_any_spelling(tmp_path: Path, spelled: str) -> None:
    """And is the same GUID still."""
    node = lay(tmp_path / "node", OWNED | {f"{DEVICE}/fw_ver": f"28.39 ({spelled})\n".encode()})
    (port,) = snapshots.report(anonymized(node, tmp_path / "other"))["ports"]
    assert port["node_guid"] in re.sub(
        "[^0-9a-f]", "", port["fw_ver"].lower().partition("(")[2].removeprefix("0x")
    )


def test_a_link_to_a_netdev_named_after_its_mac_goes_with_it(tmp_path: Path) -> None:
    """`upper_enx...` holds the MAC as well, and so do the paths that could not be read."""
    upper: Snapshot = {
        f"{DEVICE}/ports/1/link_layer": b"Ethernet\n",
        f"{FUNCTION}/net/enx0c42a1aabbcc/upper_enx0c42a1aabbce": (
            "../../../../virtual/net/enx0c42a1aabbce"
        ),
        "errors.json": b'{"errors": {"sys/class/net/enx0c42a1aabbcc/speed": "EIO"}}',
    }
    found = everything(Path(anonymized(lay(tmp_path / "node", OWNED | upper), tmp_path / "other")))
    assert b"0c42a1" not in found
    assert re.search(rb"net/enx02[0-9a-f]{10}/upper_enx02[0-9a-f]{10}\n", found)
    assert re.search(rb'"sys/class/net/enx02[0-9a-f]{10}/speed": "eio"', found)


def test_a_mac_goes_also_where_an_infiniband_address_holds_a_gid(tmp_path: Path) -> None:
    """An IPoIB address is a queue pair and a GID; the prefix means something and stays."""
    text = f"{MAC.upper()} 00:00:10:29:fe:80:00:00:00:00:00:00:0c:42:a1:03:00:aa:bb:cc"
    node = lay(
        tmp_path / "node",
        SMALL | {f"{DEVICE}/fw_ver": text.encode(), f"{DEVICE}/node_guid": GUID.encode()},
    )
    (port,) = snapshots.report(anonymized(node, tmp_path / "other"))["ports"]
    mac, address = port["fw_ver"].split()
    assert re.fullmatch("02(:[0-9a-f]{2}){5}", mac)
    assert address.replace(":", "") == f"00001029fe80000000000000{port['node_guid']}"


@pytest.mark.parametrize(
    "host", ["1", "node", "sys", "net", "active", "up", "backup", "ports", "infiniband", "x.node"]
)
def test_a_host_named_like_a_word_of_the_kernel_keeps_its_labels(tmp_path: Path, host: str) -> None:
    """Its name is removed from host.json, and the kernel's words stay."""
    node = lay(tmp_path / "node", SMALL | {"host.json": json.dumps({"hostname": host}).encode()})
    after = snapshots.report(anonymized(node, tmp_path / "other"))
    assert (after["labels"], after["problems"]) == (snapshots.report(node)["labels"], [])
    assert after["node"] == "host-1"


@pytest.mark.parametrize("name", ["node-17", "NODE-17", "node-17.example.com"])
def test_the_host_name_goes_wherever_it_stands(tmp_path: Path, name: str) -> None:
    """The full one and its first part, in either case."""
    facts = {
        "host.json": b'{"hostname": "node-17.example.com"}',
        f"{DEVICE}/board_id": f"{name} HCA-1\n".encode(),
    }
    (port,) = snapshots.report(
        anonymized(lay(tmp_path / "node", SMALL | facts), tmp_path / "other")
    )["ports"]
    assert port["board_id"] == "host-1 HCA-1"


def test_what_was_anonymized_is_written_down_and_stays(tmp_path: Path) -> None:
    """A second time changes nothing."""
    once = anonymized(lay(tmp_path / "node", OWNED), tmp_path / "once")
    twice = anonymized(once, tmp_path / "twice")
    assert json.loads(Path(once, "meta.json").read_text())["anonymized"]
    assert sorted(_pieces(Path(once))) == sorted(_pieces(Path(twice)))
    assert {path.name for path in Path(once, CLASS).iterdir()} == {"ibp0"}


def test_bytes_that_are_no_text_survive(tmp_path: Path) -> None:
    """Bytes that are no text stay, since a bug report may be about them."""
    odd = b"\xff\xfe 0c42:a103:00aa:bbcc \x80"
    node = lay(tmp_path / "node", OWNED | {f"{DEVICE}/fw_ver": odd})
    data = Path(anonymized(node, tmp_path / "other"), DEVICE, "fw_ver").read_bytes()
    assert (data[:3], data[-2:], b"0c42" in data) == (odd[:3], odd[-2:], False)


def test_the_order_of_the_reads_changes_no_replacement() -> None:
    """Threads read the devices, and neighbors send when they like."""
    captured, _ = snapshots.captured("h200-roce")
    lldp = lldp_of(captured.io)
    received = RecordedLldp(dict(reversed(lldp.received.items())), flags=lldp.flags, listening=True)
    backwards = replace(
        captured,
        files=dict(reversed(captured.files.items())),
        links=dict(reversed(captured.links.items())),
        io=captured.io | {"lldp": received},
    )
    assert entries(anonymize(backwards)) == entries(anonymize(captured))


def test_names_of_folders_are_replaced_in_their_order() -> None:
    """And not in that of a set, which differs from run to run."""
    folders = {f"sys/{digit}/enx0c42a1aabbc{digit}" for digit in range(8)}
    replaced = anonymize(Record(folders=folders)).folders
    assert sorted(replaced) == [f"sys/{digit}/enx02bead{digit + 1:06x}" for digit in range(8)]
