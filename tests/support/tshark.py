"""tshark as a second decoder of LLDP frames."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agent.lldp.frame import decode
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
    read = tshark(folder, frames)
    assert len(read) == len(frames)
    for frame, layers in zip(frames, read, strict=True):
        ours = decode(frame)._asdict()
        theirs = {
            name: as_ours(name, [value for field in fields for value in layers.get(field, [])])
            for name, fields in TSHARK.items()
        }
        if octets := layers.get("lldp.chassis.id"):  # which Wireshark 4 prints as hex digits
            theirs["chassis_id"] = bytes.fromhex(octets[0]).decode()
        assert ours == theirs
