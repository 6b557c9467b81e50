"""The LLDP decoder against a table, against every way to spoil a frame, and against scapy."""

from __future__ import annotations

from ipaddress import IPv6Address

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agent.errors import Malformed
from agent.lldp.frame import MAX_LLDPDU, decode, drop_reason, encode, is_lldp
from agent.model import LldpNeighbor
from tests.support.lldp_frames import (
    CASES,
    DOT3_MTU,
    END,
    IPV4,
    IPV6,
    MAC,
    Case,
    capabilities,
    ethernet,
    identity,
    management,
    scapy_frames,
    tlv,
)

CHASSIS, PORT, TTL = tlv(1, b"\x04" + MAC), tlv(2, b"\x05swp1"), tlv(3, b"\0\x78")
PLAIN = CHASSIS + PORT + TTL
NAMED = PLAIN + tlv(5, b"leaf-1")
TEXTS = ("chassis_id", "port_id", "port_description", "system_name")
every_case = pytest.mark.parametrize(
    "case", CASES, ids=[case.name.encode("unicode_escape").decode() for case in CASES]
)


def lldpdu(case: Case) -> tuple[int, int]:
    """Where the LLDPDU of a frame begins, and where it ends, behind its End TLV."""
    begin = at = case.data.index(b"\x88\xcc") + 2
    while header := int.from_bytes(case.data[at : at + 2], "big"):
        at += 2 + (header & 0x1FF)
    return begin, at + 2


def boundaries(case: Case) -> set[int]:
    """Where TLVs begin, past the three mandatory ones."""
    at, end = lldpdu(case)
    found = []
    while at < end:
        found.append(at)
        at += 2 + (int.from_bytes(case.data[at : at + 2], "big") & 0x1FF)
    return set(found[3:])


@every_case
def test_a_neighbor_is_read_again_from_its_frame(case: Case) -> None:
    """But for octets that no text has: a network address is its text then."""
    frame = encode(case.value)
    assert decode(frame) == case.value
    assert encode(decode(frame)) == frame


@every_case
def test_a_frame_has_its_value(case: Case) -> None:
    assert is_lldp(case.data)
    assert decode(case.data) == case.value


@every_case
def test_nothing_behind_the_end_is_looked_at(case: Case) -> None:
    """Padding, junk or another TLV behind the End TLV changes nothing."""
    _, end = lldpdu(case)
    for padding in (b"", b"\0" * 46, b"\xff", tlv(5, b"another"), case.data):
        assert decode(case.data[:end] + padding) == case.value


@every_case
def test_a_frame_that_is_cut_has_no_other_value(case: Case) -> None:
    """Inside a TLV it is malformed; between two, which 802.1AB allows, it has fewer fields."""
    _, end = lldpdu(case)
    between = boundaries(case)
    for cut in range(end):
        if cut in between:
            assert is_part(decode(case.data[:cut]), case.value)
        else:
            with pytest.raises(Malformed, match=r"\bat octet \d+|ends before it"):
                decode(case.data[:cut])


def is_part(part: LldpNeighbor, whole: LldpNeighbor) -> bool:
    """Return True if each field of a neighbor is as in the whole one, or None."""
    return all(value in {None, getattr(whole, name)} for name, value in part._asdict().items())


ENDS = "missing, the LLDPDU ends before it"
CUT = "length 40 exceeds the 6 octets left"


@pytest.mark.parametrize(
    ("lldpdu", "message"),
    [
        (b"", f"Chassis ID TLV: {ENDS}"),
        (END, f"Chassis ID TLV: {ENDS}"),
        (PORT + CHASSIS, "Port ID TLV at octet 14: in place of the Chassis ID TLV"),
        (CHASSIS + TTL, "Time To Live TLV at octet 23: in place of the Port ID TLV"),
        (CHASSIS + PORT + END, f"Time To Live TLV: {ENDS}"),
        (
            CHASSIS + PORT + tlv(5, b"leaf-1"),
            "System Name TLV at octet 30: in place of the Time To Live TLV",
        ),
        (tlv(9, b"") + PLAIN, "type 9 TLV at octet 14: in place of the Chassis ID TLV"),
        (tlv(1, b"\x04") + PORT + TTL, "Chassis ID TLV at octet 14: length 1, expected 2 to 256"),
        (
            tlv(1, b"\x07" * 257) + PORT + TTL,
            "Chassis ID TLV at octet 14: length 257, expected 2 to 256",
        ),
        (CHASSIS + tlv(2, b"") + TTL, "Port ID TLV at octet 23: length 0, expected 2 to 256"),
        (tlv(1, b"\x00abc") + PORT + TTL, "Chassis ID TLV at octet 14: subtype 0 is reserved"),
        (CHASSIS + tlv(2, b"\x08abc") + TTL, "Port ID TLV at octet 23: subtype 8 is reserved"),
        (
            CHASSIS + PORT + tlv(3, b"\x78"),
            "Time To Live TLV at octet 30: length 1, expected 2 to 511",
        ),
        (PLAIN + CHASSIS + END, "Chassis ID TLV at octet 34: duplicate"),
        (PLAIN + tlv(2, b"\x05swp2") + END, "Port ID TLV at octet 34: duplicate"),
        (PLAIN + TTL + END, "Time To Live TLV at octet 34: duplicate"),
        (NAMED + tlv(5, b"leaf-2") + END, "System Name TLV at octet 42: duplicate"),
        (PLAIN + tlv(5, b"x" * 256), "System Name TLV at octet 34: length 256, expected 0 to 255"),
        (PLAIN + tlv(127, bytes(40))[:8], f"type 127 TLV at octet 34: {CUT}"),
        (PLAIN + tlv(8, bytes(40))[:8], f"Management Address TLV at octet 34: {CUT}"),
        (PLAIN + tlv(5, b"leaf-1" + bytes(34))[:8], f"System Name TLV at octet 34: {CUT}"),
        (PLAIN + tlv(60, b"leaf-1" + bytes(34))[:8], f"type 60 TLV at octet 34: {CUT}"),
        (NAMED + tlv(0, b"junk"), "End Of LLDPDU TLV at octet 42: length 4, expected 0 to 0"),
        (
            PLAIN + tlv(0, b"junk") + b"and more of it" + END,
            "End Of LLDPDU TLV at octet 34: length 4, expected 0 to 0",
        ),
    ],
)
def test_a_wrong_lldpdu_is_refused_with_its_tlv_and_octet(lldpdu: bytes, message: str) -> None:
    with pytest.raises(Malformed) as refused:
        decode(ethernet(b"")[:14] + lldpdu)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "header", ["", "0800", "88cb", "8100", "81000001", "810000010800", "81000001" * 3 + "88cc"]
)
def test_only_lldp_behind_at_most_two_tags_is_lldp(header: str) -> None:
    frame = ethernet(b"")[:12] + bytes.fromhex(header) + NAMED + END
    assert not is_lldp(frame)
    with pytest.raises(Malformed, match="no LLDP ethertype at octet"):
        decode(frame)


def test_all_sixteen_capabilities_are_read() -> None:
    """Above the lower eight are C-VLAN, S-VLAN and two-port MAC relay (Table 8-4)."""
    assert decode(ethernet(PLAIN + capabilities(0x0701) + END)).capabilities == 0x0701


@pytest.mark.parametrize(
    "extra",
    [
        tlv(127, DOT3_MTU) * 40,
        IPV4 + IPV6 + management(MAC, 6) + management(b"leaf-1.example", 16),
        tlv(4, b""),
        tlv(4, b"x" * 256),
        *(tlv(7, value) for value in (b"", b"\0\4\0", bytes(5), bytes(511))),
    ],
)
def test_what_names_nobody_is_passed_over(extra: bytes) -> None:
    """TLVs that are not decoded, and descriptions and capabilities of another length.

    The names of the frame count, which is what an operator looks for.
    """
    assert decode(ethernet(PLAIN + extra + tlv(5, b"leaf-1") + END)) == decode(
        ethernet(NAMED + END)
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (tlv(4, b"one"), tlv(4, b"two")),
        *(
            (capabilities(4), other)
            for other in (capabilities(0x10), tlv(7, b""), tlv(7, bytes(9)))
        ),
    ],
)
def test_a_second_tlv_that_names_nobody_is_passed_over(first: bytes, second: bytes) -> None:
    """By 802.1AB there "should" be one only, so the first counts, whatever is in another."""
    frame = ethernet(NAMED + first + second + tlv(6, b"a") * 2 + END)
    assert decode(frame) == decode(ethernet(NAMED + first + END))


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (bytes.fromhex("0ac0de9d0a74"), "0x0ac0de9d0a74"),
        (b"leaf\xff", "0x6c656166ff"),
        (b"leaf\x1b", "0x6c6561661b"),
        (b"le\0af", "0x6c65006166"),
        (b"leaf\xff\0", "0x6c656166ff00"),
        ("leaf\u202e".encode(), "0x6c656166e280ae"),
        (b"\0", "0x00"),
        (b"leaf\0\0", "leaf"),
        ("叶-é".encode(), "叶-é"),
        (b"   ", "   "),
    ],
)
def test_an_identifier_is_text_or_hex(octets: bytes, text: str) -> None:
    """As a whole: in half an identifier nobody recognizes a binary one."""
    neighbor = decode(ethernet(identity(b"\x07" + octets, b"\x05" + octets) + END))
    assert (neighbor.chassis_id, neighbor.port_id) == (text, text)


def test_a_ttl_may_be_longer_than_it_needs_to_be() -> None:
    """Only the first two octets count (9.2.7.7.1 c)."""
    long = CHASSIS + PORT + tlv(3, b"\0\x78\xff\xff") + tlv(5, b"leaf-1")
    assert decode(ethernet(long + END)) == decode(ethernet(NAMED + END))


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (b"\x01\xc0\0\2\x11", "192.0.2.17"),
        (b"\x06" + MAC, "00:1c:73:aa:bb:cc"),
        (b"\x10leaf-1.example", "0x106c6561662d312e6578616d706c65"),
        (b"\x02abc", "0x02616263"),
    ],
)
def test_network_addresses_of_any_family_are_text(octets: bytes, text: str) -> None:
    """IPv4 and MAC addresses have their usual form; the others are identifiers like any."""
    lldpdu = identity(b"\x05" + octets, b"\x04" + octets) + END
    neighbor = decode(ethernet(lldpdu))
    assert (neighbor.chassis_id, neighbor.port_id) == (text, text)


groups = st.sampled_from([b"\0\0", b"\0\0", b"\0\x01", b"\x10\0", b"\xff\xff", b"\x0a\xbc"])


@given(st.lists(groups, min_size=8, max_size=8).map(b"".join))
def test_ipv6_addresses_are_as_rfc_5952_has_them(address: bytes) -> None:
    """As Python's ipaddress, but for IPv4-mapped addresses, where its versions differ."""
    found = decode(ethernet(identity(b"\x05\x02" + address, b"\x05swp1") + END)).chassis_id
    assume(not IPv6Address(address).ipv4_mapped)
    assert found == str(IPv6Address(address))


def test_ipv4_mapped_addresses() -> None:
    address = bytes(10) + b"\xff\xff\x01\x02\0\0"
    found = decode(ethernet(identity(b"\x05\x02" + address, b"\x05swp1") + END))
    assert found.chassis_id == "::ffff:102:0"


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (ethernet(NAMED), None),
        (ethernet(NAMED, destination="0180c2000003"), None),
        (ethernet(NAMED, destination="0180c2000000"), None),
        (ethernet(NAMED, destination="0180c2000001"), "destination"),
        (ethernet(NAMED, destination="ffffffffffff"), "destination"),
        (ethernet(NAMED, destination="02000000cafe"), "destination"),
        (ethernet(NAMED, source="02000000cafe"), "own"),
        (b"", "destination"),
    ],
)
def test_a_frame_that_bridges_forward_is_dropped(frame: bytes, reason: str | None) -> None:
    """So are those of the netdev itself."""
    assert drop_reason(frame, bytes.fromhex("02000000cafe")) == reason


VLANS = b"".join(
    tlv(127, bytes.fromhex("0080c203") + vlan.to_bytes(2, "big") + b"\7VLAN123")
    for vlan in range(1, 381)
)


@pytest.mark.parametrize("tags", ["", "81000001", "88a8000181000002"])
def test_a_frame_is_as_long_as_the_link_carries(tags: str) -> None:
    """The leaf's name comes behind 380 VLANs; one octet more than 9,216 is refused."""
    lldpdu = PLAIN + VLANS + tlv(5, b"leaf-1") + END
    assert len(lldpdu) > 5000
    assert decode(ethernet(lldpdu, tags=tags)).system_name == "leaf-1"
    full = ethernet(lldpdu.ljust(MAX_LLDPDU, b"\0"), tags=tags)
    assert decode(full).system_name == "leaf-1"
    with pytest.raises(Malformed, match="LLDPDU of more than 9216 octets"):
        decode(full + b"\0")


@given(
    st.sampled_from(CASES), st.sampled_from([6, 8, 9, 126, 127]), st.binary(max_size=511), st.data()
)
def test_a_tlv_that_is_not_decoded_changes_nothing(
    case: Case, kind: int, value: bytes, data: st.DataObject
) -> None:
    """Whatever is in it, and wherever it is behind the mandatory ones."""
    at = data.draw(st.sampled_from(sorted(boundaries(case))))
    assert decode(case.data[:at] + tlv(kind, value) + case.data[at:]) == case.value


def value_of(frame: bytes) -> LldpNeighbor | None:
    try:
        return decode(frame)
    except Malformed:
        return None


def check_printable(neighbor: LldpNeighbor | None) -> None:
    """No text of a neighbor has a character that a terminal or a log would interpret."""
    if neighbor is None:
        return
    texts = [getattr(neighbor, name) for name in TEXTS]
    assert all(text is None or (text and text.isprintable()) for text in texts)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_neighbor_or_malformed(data: bytes) -> None:
    check_printable(value_of(data))
    check_printable(value_of(ethernet(data)))


tlvs = st.builds(tlv, st.integers(0, 12) | st.just(127), st.binary(max_size=300))


@given(st.binary(min_size=1, max_size=255), st.integers(1, 7), st.lists(tlvs, max_size=8))
def test_any_tlvs_are_a_neighbor_or_malformed(
    octets: bytes, subtype: int, rest: list[bytes]
) -> None:
    """Nor on a well-framed LLDPDU of any content, and each text is printable."""
    check_printable(
        value_of(ethernet(identity(bytes([subtype]) + octets, b"\x07" + octets) + b"".join(rest)))
    )


@given(st.sampled_from(CASES), st.data())
def test_a_frame_with_a_wrong_octet_is_a_neighbor_or_malformed(
    case: Case, data: st.DataObject
) -> None:
    """Nor on a real frame of which one octet was changed."""
    frame = bytearray(case.data)
    frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    check_printable(value_of(bytes(frame)))


def scapy_fields(frame: bytes) -> dict[str, object]:
    """Decode a frame with scapy; return the fields by the agent's names."""
    from scapy.contrib import lldp as scapy
    from scapy.layers.l2 import Ether

    packet = Ether(frame)
    octets = {
        "port_description": (scapy.LLDPDUPortDescription, "description"),
        "system_name": (scapy.LLDPDUSystemName, "system_name"),
    }
    chassis, port = packet[scapy.LLDPDUChassisID], packet[scapy.LLDPDUPortID]
    return {
        "source_mac": packet.src,
        "chassis_id": chassis.id.decode() if isinstance(chassis.id, bytes) else chassis.id,
        "chassis_subtype": chassis.subtype,
        "port_id": port.id.decode() if isinstance(port.id, bytes) else port.id,
        "port_id_subtype": port.subtype,
        "ttl": packet[scapy.LLDPDUTimeToLive].ttl,
        "capabilities": 4 if packet.haslayer(scapy.LLDPDUSystemCapabilities) else None,
    } | {
        name: getattr(packet[kind], field).decode()
        for name, (kind, field) in octets.items()
        if packet.haslayer(kind)
    }


@pytest.mark.slow
def test_scapy_reads_the_same() -> None:
    """Over frames that scapy built, scapy and we agree on every field."""
    for frame in scapy_frames():
        ours = decode(frame)._asdict()
        assert {name: ours[name] for name in scapy_fields(frame)} == scapy_fields(frame)


def test_a_name_that_runs_past_its_frame_is_no_name() -> None:
    """Where scapy takes what is there for the whole name, we refuse the frame."""
    cut = ethernet(PLAIN + tlv(5, b"leaf-1.pod-7.example.net"))[:50]
    assert scapy_fields(cut)["system_name"] == "leaf-1.pod-7.e"
    with pytest.raises(Malformed, match="System Name TLV at octet 34: length"):
        decode(cut)


def test_a_reserved_tlv_hides_nothing() -> None:
    """Where scapy takes all that follows a reserved TLV for payload, we skip that TLV."""
    frame = ethernet(PLAIN + tlv(42, b"future") + tlv(5, b"leaf-1") + END)
    assert "system_name" not in scapy_fields(frame)
    assert decode(frame).system_name == "leaf-1"
