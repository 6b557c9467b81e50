"""tshark reads the frames of the table, of scapy and of the machine folders as the agent does."""

from __future__ import annotations

from pathlib import Path

from agent.errors import Malformed
from agent.lldp import pcap
from agent.lldp.frame import decode
from tests.support.lldp_frames import TAGGED, VENDORS
from tests.support.machines import MACHINES
from tests.support.scapy_frames import scapy_frames
from tests.support.tshark import check_against_tshark


def frames() -> list[bytes]:
    """Every frame of every machine."""
    files = [path for machine in MACHINES for path in sorted(machine.glob("lldp/*.pcap*"))]
    return [frame.data for path in files for frame in pcap.read(path.stem, path.read_bytes())[0]]


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
