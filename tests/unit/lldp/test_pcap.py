"""Capture files: what is written is read again, in all shapes that other tools write; nothing else
comes through.
"""

from __future__ import annotations

import io
import struct
import sys
import tracemalloc
import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.utils import RawPcapReader

from agent.errors import Malformed, Unavailable
from agent.lldp import pcap
from agent.lldp.frame import Frame
from tests.support.lldp_frames import CASES, END, MAC, ethernet, identity

NETDEV = "eth0"
LEAF = ethernet(identity(b"\x04" + MAC, b"\x05swp1") + END)
ARP = bytes.fromhex("ffffffffffff001c73aabbcc0806").ljust(60, b"\0")
MICRO, NANO = 0xA1B2C3D4, 0xA1B23C4D
Packet = tuple[int, bytes]  # nanoseconds since the epoch, octets
WHEN = 1_777_888_999_123_456_789


def pcap_file(
    packets: list[Packet], *, order: str = "<", nano: bool = False, link_type: int = 1
) -> bytes:
    out = struct.pack(f"{order}IHHiIII", NANO if nano else MICRO, 2, 4, 0, 0, 262144, link_type)
    for when, data in packets:
        seconds, fraction = divmod(when, 10**9)
        fraction //= 1 if nano else 1000
        out += struct.pack(f"{order}4I", seconds, fraction, len(data), len(data)) + data
    return out


def block(kind: int, body: bytes, order: str) -> bytes:
    body += bytes(-len(body) % 4)
    length = len(body) + 12
    return struct.pack(f"{order}II", kind, length) + body + struct.pack(f"{order}I", length)


def section(order: str) -> bytes:
    return block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(order: str, resolution: int | None = None, link_type: int = 1) -> bytes:
    option = b"" if resolution is None else struct.pack(f"{order}HHBxxxI", 9, 1, resolution, 0)
    return block(1, struct.pack(f"{order}HHI", link_type, 0, 262144) + option, order)


def pcapng(*blocks: bytes, order: str = "<", resolution: int | None = None) -> bytes:
    """A section with one interface and these blocks."""
    return section(order) + interface(order, resolution) + b"".join(blocks)


def enhanced(packet: Packet, order: str, ticks: int = 10**6, number: int = 0) -> bytes:
    when, data = packet
    time = when * ticks // 10**9
    head = struct.pack(f"{order}5I", number, time >> 32, time & 0xFFFFFFFF, len(data), len(data))
    return block(6, head + data, order)


def pcapng_file(
    packets: list[Packet], *, order: str = "<", nano: bool = False, link_type: int = 1
) -> bytes:
    """A section, an interface, packets, and statistics as dumpcap adds them."""
    head = section(order) + interface(order, 9 if nano else None, link_type)
    body = b"".join(enhanced(packet, order, 10**9 if nano else 10**6) for packet in packets)
    return head + body + block(5, bytes(12), order)


MAKERS = {"pcap": pcap_file, "pcapng": pcapng_file}
every_shape = pytest.mark.parametrize(
    ("kind", "order", "nano"),
    [(kind, order, nano) for kind in MAKERS for order in "<>" for nano in (False, True)],
    ids=str,
)


def read(data: bytes) -> list[Frame]:
    frames, fault = pcap.read(NETDEV, data)
    assert fault is None
    return frames


frames = st.builds(
    Frame,
    st.just(NETDEV),
    st.integers(0, (2**32 - 1) * 10**6).map(lambda micro: micro / 10**6),
    st.binary(max_size=300).map(lambda rest: LEAF[:14] + rest),
)


@given(st.lists(frames, max_size=8))
@settings(deadline=None)
def test_what_is_written_is_read_again(heard: list[Frame]) -> None:
    assert read(pcap.write(heard)) == sorted(heard, key=lambda frame: frame.time)


@every_shape
def test_every_shape_of_file(kind: str, order: str, nano: bool) -> None:
    """Both formats, both byte orders, both resolutions: the same frames at the same times."""
    packets = [(WHEN, LEAF), (WHEN + 1_500_000_000, CASES[0].data)]
    found = read(MAKERS[kind](packets, order=order, nano=nano))
    assert [frame.data for frame in found] == [LEAF, CASES[0].data]
    assert [frame.time for frame in found] == pytest.approx(
        [WHEN / 10**9, WHEN / 10**9 + 1.5], abs=2e-6, rel=0
    )


def test_other_traffic_is_left_out() -> None:
    """A capture file of a port has other frames than LLDP; runts do no harm."""
    others = [(WHEN, data) for data in (ARP, b"", b"\x88\xcc", LEAF[:13])]
    assert [frame.data for frame in read(pcap_file([*others, (WHEN, LEAF)]))] == [LEAF]


def test_frames_come_in_the_order_of_their_times() -> None:
    """Files that were merged need not be sorted."""
    found = read(pcap_file([(3 * 10**9, LEAF), (10**9, LEAF), (2 * 10**9, LEAF)]))
    assert [frame.time for frame in found] == [1, 2, 3]


@pytest.mark.parametrize(
    ("resolution", "ticks"), [(0, 1), (3, 10**3), (12, 10**12), (0x80 | 20, 2**20)]
)
def test_any_resolution_of_pcapng(resolution: int, ticks: int) -> None:
    """Powers of ten and of two."""
    data = pcapng(enhanced((5 * 10**9, LEAF), "<", ticks), resolution=resolution)
    assert [frame.time for frame in read(data)] == [5.0]


def test_packets_without_a_time() -> None:
    """A Simple Packet Block has none."""
    simple = block(3, struct.pack("<I", len(LEAF)) + LEAF, "<")
    assert read(pcapng(simple)) == [Frame(NETDEV, 0.0, LEAF)]


def test_blocks_that_nobody_knows_are_skipped() -> None:
    """Blocks of unknown types are skipped by their length, at any position."""
    unknown = block(0x0BAD, b"whatever", "<")
    parts = [section("<"), unknown, interface("<"), unknown, enhanced((0, LEAF), "<"), unknown]
    assert len(read(b"".join(parts))) == 1


def test_a_second_section_may_have_another_byte_order() -> None:
    """Files that were appended to each other."""
    parts = [pcapng(enhanced((WHEN, LEAF), order), order=order) for order in "<>"]
    assert len(read(b"".join(parts))) == 2


@pytest.mark.parametrize("link_type", [0, 113, 276, 127, 0xFFFF])
@pytest.mark.parametrize("kind", MAKERS)
def test_another_link_type_is_refused(kind: str, link_type: int) -> None:
    """A capture on "any" has no Ethernet headers; the message names its type."""
    with pytest.raises(Malformed, match=f"link type is {link_type}, not Ethernet"):
        read(MAKERS[kind]([(WHEN, LEAF)], link_type=link_type))


def test_a_frame_check_sequence_does_not_hide_the_link_type() -> None:
    """Its length stands in the upper bits of the field."""
    with_fcs = 0x50000001
    assert len(read(pcap_file([(WHEN, LEAF + b"\x01\x02\x03\x04")], link_type=with_fcs))) == 1


@every_shape
def test_a_file_that_was_cut_short_tells_what_came_before(
    kind: str, order: str, nano: bool
) -> None:
    """Whole frames only, and where it breaks off; a cut header is no file at all."""
    packets = [(WHEN, LEAF), (WHEN + 10**9, CASES[0].data)]
    parts = [MAKERS[kind](packets[:count], order=order, nano=nano) for count in range(3)]
    whole = parts[-1]
    statistics = 24 if kind == "pcapng" else 0
    ends = [len(part) - statistics for part in parts]
    for length in range(len(whole)):
        try:
            found, fault = pcap.read(NETDEV, whole[:length])
        except Malformed:
            assert length < (28 if kind == "pcapng" else 24)
            continue
        assert [frame.data for frame in found] == [
            packets[number][1] for number in (0, 1) if ends[number + 1] <= length
        ]
        assert (fault is None) == (length in {*ends, 28 if kind == "pcapng" else 24})
        assert fault is None or f"of {length}" in fault


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "it is empty"),
        (b"no capture", "it begins with 6e6f2063"),
        (b"\xa1\xb2", "it begins with a1b2"),
        (b"PK\x03\x04" + bytes(60), "it begins with 504b0304"),
        (
            struct.pack("<I", 0xA1B2CD34) + bytes(60),
            "it begins with 34cdb2a1",
        ),  # 24 octets a record
        (pcap_file([])[:4], "it ends in its header, at octet 4"),
        (pcap_file([])[:4] + struct.pack("<HH", 1, 7) + bytes(16), r"version 1\.7 instead of 2\.4"),
        (section("<")[:20], ""),
    ],
)
def test_what_is_no_capture_file_is_refused(data: bytes, fault: str) -> None:
    with pytest.raises(Malformed, match=f"^not a pcap or pcapng file: {fault}"):
        pcap.read(NETDEV, data)


def test_a_compressed_file_is_refused_before_it_is_unpacked() -> None:
    """16 MiB could become 16 GiB."""
    packer = zlib.compressobj(wbits=31)
    data = packer.compress(pcap_file([]) + bytes(1 << 24)) + packer.flush()
    tracemalloc.start()
    with pytest.raises(Malformed, match="gunzip"):
        pcap.read(NETDEV, data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("length", [0, 4, 11, 13, 0xFFFFFFFC])
@pytest.mark.parametrize("order", "<>")
def test_a_block_that_leads_nowhere_ends_the_file(length: int, order: str) -> None:
    """A block of no length would be read for ever, one of 4 GiB would have to be stored."""
    head = pcapng(enhanced((WHEN, LEAF), order), order=order)
    found, fault = pcap.read(NETDEV, head + struct.pack(f"{order}II", 6, length) * 4)
    assert len(found) == 1
    assert fault == f"truncated at octet {len(head)} of {len(head) + 32}"


def test_a_record_of_four_gibibytes_ends_the_file() -> None:
    """A record with an impossible length ends the file, whether the file has the octets or not."""
    head = pcap_file([(WHEN, LEAF)])
    for length, rest in ((0xFFFFFFFF, LEAF), (pcap.MAX_LENGTH + 1, bytes(1 << 19))):
        found, fault = pcap.read(NETDEV, head + struct.pack("<4I", 1, 1, length, length) + rest)
        assert len(found) == 1
        assert fault == f"no record at octet {len(head)}: its length is {length}"


@pytest.mark.parametrize("nano", [False, True])
def test_a_fraction_beyond_one_second_ends_the_file(nano: bool) -> None:
    """The octets before it are no record header."""
    head = pcap_file([(WHEN, LEAF)], nano=nano)
    fraction = 10**9 if nano else 10**6
    for beyond, count in ((fraction - 1, 2), (fraction, 1)):
        record = struct.pack("<4I", 1, beyond, len(LEAF), len(LEAF)) + LEAF
        found, fault = pcap.read(NETDEV, head + record)
        assert len(found) == count
        text = f"no record at octet {len(head)}: its time has a fraction beyond one second"
        assert fault == (text if count == 1 else None)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_frame_that_the_snap_length_has_cut_is_left_out(kind: str) -> None:
    """Cut before its System Name, it would name another neighbor; other traffic may be cut."""
    assert len(LEAF) == len(ARP)
    lengths, cut = (struct.pack("<II", len(LEAF), original) for original in (len(LEAF), 200))
    whole, *others = MAKERS[kind]([(WHEN, LEAF), (WHEN, LEAF), (WHEN, ARP)]).split(lengths)[1:]
    head = MAKERS[kind]([(WHEN, LEAF)]).partition(lengths)[0]
    data = head + lengths + whole + b"".join(cut + rest for rest in others)
    found, fault = pcap.read(NETDEV, data)
    assert [frame.data for frame in found] == [LEAF]
    assert fault == "LLDP frames cut by the snap length: 1 (use tcpdump -s 0)"


@given(heard=st.lists(frames, max_size=8), order=st.sampled_from("<>"), nano=st.booleans())
@settings(deadline=None)
def test_scapy_reads_the_same(heard: list[Frame], order: str, nano: bool) -> None:
    """Octets and times of both byte orders and resolutions, and of what is written here."""
    packets = [(round(frame.time * 10**6) * 1000, frame.data) for frame in heard]
    for data in (pcap_file(packets, order=order, nano=nano), pcap.write(heard)):
        file = RawPcapReader(io.BytesIO(data))  # type: ignore[arg-type]
        unit = pcap.NANOSECONDS if file.nano else pcap.MICROSECONDS
        theirs = [((meta.sec * unit + meta.usec) / unit, octets) for octets, meta in file]
        ours = [(frame.time, frame.data) for frame in read(data)]
        assert ours == sorted(theirs, key=lambda packet: packet[0])


def test_only_a_pcapng_file_needs_scapy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it pcap is written and read, and a pcapng file names what it needs."""
    monkeypatch.setitem(sys.modules, "scapy", None)
    assert read(pcap.write([Frame(NETDEV, 5.0, LEAF)])) == [Frame(NETDEV, 5.0, LEAF)]
    with pytest.raises(Unavailable, match=r"file needs scapy: pip install '\.\[pcap\]' in the ch"):
        pcap.read(NETDEV, pcapng_file([(WHEN, LEAF)]))


def test_a_packet_of_an_interface_that_is_not_there_is_left_out() -> None:
    packet = (WHEN, LEAF)
    assert len(read(pcapng(enhanced(packet, "<", number=7), enhanced(packet, "<")))) == 1


def test_a_block_that_scapy_cannot_follow_is_named() -> None:
    """The frames after it are lost, and a problem reports that."""
    packet = enhanced((WHEN, LEAF), "<")
    found, fault = pcap.read(NETDEV, pcapng(packet, block(6, b"\0" * 8, "<"), packet))
    assert len(found) == 1
    assert fault is not None


@pytest.mark.slow
def test_too_many_frames_are_refused() -> None:
    """A hundred thousand are enough for any snapshot."""
    one = struct.pack("<4I", 0, 0, 0, 0)
    assert read(pcap_file([]) + one * pcap.MAX_FRAMES) == []
    with pytest.raises(Malformed, match="more than 100000 frames"):
        pcap.read(NETDEV, pcap_file([]) + one * (pcap.MAX_FRAMES + 1))


@pytest.mark.slow
@given(
    kind=st.sampled_from(sorted(MAKERS)),
    order=st.sampled_from("<>"),
    changes=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), min_size=1, max_size=6),
)
@settings(deadline=None, max_examples=300)
def test_a_file_with_flipped_octets_is_read_or_refused(
    kind: str, order: str, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(MAKERS[kind]([(WHEN, LEAF), (WHEN, CASES[0].data)], order=order))
    for place, value in changes:
        data[place % len(data)] = value
    try:
        found, _ = pcap.read(NETDEV, bytes(data))
    except Malformed:
        return
    assert all(b"\x88\xcc" in frame.data[12:22] for frame in found)


@given(
    head=st.sampled_from((b"", pcap_file([])[:24], section("<"), section(">"))),
    rest=st.binary(max_size=200),
)
@settings(deadline=None)
def test_any_octets_are_read_or_refused(head: bytes, rest: bytes) -> None:
    with suppress(Malformed):
        pcap.read(NETDEV, head + rest)
