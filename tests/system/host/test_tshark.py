"""tshark reads the frames of the table, of scapy and of the machine folders as the agent does."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agent.errors import Malformed
from agent.lldp.frame import decode
from agent.lldp.pcap import read
from tests.support.lldp_frames import TAGGED, VENDORS, scapy_frames
from tests.support.machines import MACHINES
from tests.support.real_parts import lacks, require

TSHARK = {
    "source_mac": ("eth.src",),
    "destination_mac": ("eth.dst",),
    "chassis_id": (
        "lldp.chassis.id",
        "lldp.chassis.id.mac",
        "lldp.chassis.id.ip4",
        "lldp.chassis.id.ip6",
    ),
    "chassis_subtype": ("lldp.chassis.subtype",),
    "port_id": ("lldp.port.id", "lldp.port.id.mac", "lldp.port.id.ip4", "lldp.port.id.ip6"),
    "port_id_subtype": ("lldp.port.subtype",),
    "ttl": ("lldp.time_to_live",),
    "port_description": ("lldp.port.desc",),
    "system_name": ("lldp.tlv.system.name",),
    "capabilities": ("lldp.tlv.enable_system_cap",),
}


def pcap(frames: Iterable[bytes]) -> bytes:
    """A classic pcap file of Ethernet frames (draft-ietf-opsawg-pcap)."""
    header = b"\xd4\xc3\xb2\xa1\x02\0\x04\0" + bytes(8) + b"\xff\xff\0\0" + b"\x01\0\0\0"
    return header + b"".join(
        bytes(8) + len(frame).to_bytes(4, "little") * 2 + frame for frame in frames
    )


def tshark(folder: Path, frames: list[bytes]) -> list[dict[str, list[str]]]:
    """Decode frames with tshark: values by field name, for each frame; one run for all, since it
    starts slowly.
    """
    require(lacks("tshark"))
    capture = folder / "frames.pcap"
    capture.write_bytes(pcap(frames))
    fields = [part for names in TSHARK.values() for name in names for part in ("-e", name)]
    command = ["tshark", "-n", "-r", str(capture), "-T", "json", *fields]
    run = subprocess.run(command, check=True, capture_output=True, timeout=60)
    packets: list[dict[str, Any]] = json.loads(run.stdout)
    return [packet["_source"]["layers"] for packet in packets]


def as_ours(name: str, values: list[str]) -> object:
    """Return a field in our form, from tshark's texts."""
    if not values or not values[0]:
        return None
    if name in {"ttl", "chassis_subtype", "port_id_subtype", "capabilities"}:
        return int(values[0], 0)
    return values[0].replace("\n", r"\x0a")


def check_against_tshark(folder: Path, frames: list[bytes]) -> None:
    """Compare every field of every frame with tshark's."""
    packets = tshark(folder, frames)
    assert len(packets) == len(frames)
    for frame, layers in zip(frames, packets, strict=True):
        ours = decode(frame)._asdict()
        theirs = {
            name: as_ours(name, [value for field in fields for value in layers.get(field, [])])
            for name, fields in TSHARK.items()
        }
        if octets := layers.get("lldp.chassis.id"):  # which Wireshark 4 prints as hex digits
            theirs["chassis_id"] = bytes.fromhex(octets[0]).decode()
        assert ours == theirs


def frames() -> list[bytes]:
    """Every frame of every machine."""
    files = [path for machine in MACHINES for path in sorted(machine.glob("lldp/*.pcap*"))]
    return [frame.data for path in files for frame in read(path.stem, path.read_bytes())[0]]


def is_plain(frame: bytes) -> bool:
    """It makes sense, and we spell nothing in it otherwise than tshark does."""
    try:
        return not any("\\x" in str(field) for field in decode(frame))
    except Malformed:
        return False


def test_tshark_reads_every_machines_frames_the_same(tmp_path: Path) -> None:
    """Tshark and we agree on every field of what the machines' switches send."""
    plain = [frame for frame in frames() if is_plain(frame)]
    assert len(plain) >= 60
    check_against_tshark(tmp_path, plain)


def test_tshark_reads_the_vendors_frames_the_same(tmp_path: Path) -> None:
    """Tshark and we agree on every field of the frames of the table, tagged ones too."""
    check_against_tshark(tmp_path, [case.data for case in VENDORS + TAGGED])


def test_tshark_reads_scapys_frames_the_same(tmp_path: Path) -> None:
    """Tshark and we agree on every field of frames that scapy built."""
    check_against_tshark(tmp_path, scapy_frames())
