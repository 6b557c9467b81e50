"""Questions to the subnet administrator: what is sent, and what a reply may be."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import Malformed, Unavailable
from agent.infiniband import sa, smp
from agent.infiniband.sa import MAX_LENGTH, RecordType
from agent.infiniband.smp import Exchange, PortUnavailable
from agent.model import IbNeighbor
from tests.support.sas import (
    ASK_AGGREGATION,
    ASK_LINK,
    ASK_NODE,
    ASK_SWITCHES,
    LEAF,
    LEAF_LID,
    LID,
    LINKS,
    NAME,
    NODES,
    SEGMENTED,
    TID,
    aggregation_node,
    link,
    node,
    reply,
)

OTHER_GUID = 0xB0CF0E0300D66D00


def asked(
    links: list[bytes], nodes: Callable[[int], list[bytes]] = lambda lid: [node(lid)]
) -> IbNeighbor:
    """Return the far end by an SA with these LinkRecords, and these NodeRecords of a LID."""

    def answer(request: bytes) -> bytes:
        lid, _ = sa.require_get_table(request)
        return reply(request, *(links if request[17] == RecordType.LINK_RECORD else nodes(lid)))

    return smp.converse(sa.conversation(LID, TID), answer)


def reason(*links: bytes, nodes: Callable[[int], list[bytes]] = lambda lid: [node(lid)]) -> str:
    with pytest.raises(PortUnavailable) as refused:
        asked(list(links), nodes)
    return refused.value.reason


def test_a_request_has_the_layout_of_the_specification() -> None:
    """Class 3 version 2, SubnAdmGetTable, without SM_Key, by the one component."""
    head = "01030212 0000 0000 0000000000000001 0020 0000 00000000"
    rest = "00 00 00 00 00000000 00000000 0000000000000000 0000 0000 0000000000000001 0016"
    assert bytes.fromhex(head + rest).ljust(256, b"\0") == ASK_LINK
    assert ASK_NODE[16:18] == bytes.fromhex("0011")


@given(st.sampled_from(RecordType), st.integers(0, 0xFFFFFFFF), st.integers(1, 0xBFFF))
def test_every_request_is_accepted_by_its_own_check(
    attribute: RecordType, tid: int, lid: int
) -> None:
    """Both directions of the codec."""
    assert sa.require_get_table(sa.get_table(attribute, tid, lid)) == (lid, tid)


@pytest.mark.parametrize("lid", [0, 0xC000, 0xFFFF])
def test_only_a_unicast_lid_is_asked_for(lid: int) -> None:
    """Zero is no LID, the others are multicast LIDs and the permissive one."""
    with pytest.raises(Malformed, match="no unicast LID"):
        sa.get_table(RecordType.NODE_RECORD, 1, lid)


def test_the_requests_for_the_nodes_of_a_subnet() -> None:
    """NodeRecords by NodeType 2, and by DeviceID 0xcf09: the components 4 and 10."""
    head = "01030212 0000 0000 0000000000000001 0011 0000 00000000 00 00 00 00 00000000 00000000"
    by_type = "0000000000000000 0000 0000 0000000000000010" + "00" * 6 + "02"
    by_device = "0000000000000000 0000 0000 0000000000000400" + "00" * 34 + "cf09"
    assert bytes.fromhex(head + by_type).ljust(256, b"\0") == ASK_SWITCHES
    assert bytes.fromhex(head + by_device).ljust(256, b"\0") == ASK_AGGREGATION
    assert sa.require_get_table(ASK_SWITCHES) == sa.require_get_table(ASK_AGGREGATION) == (0, TID)


@given(
    st.sampled_from((ASK_LINK, ASK_SWITCHES, ASK_AGGREGATION)),
    st.integers(0, 255),
    st.integers(1, 255),
)
def test_any_other_request_is_rejected(request: bytes, place: int, change: int) -> None:
    """Whatever octet differs: class, method, attribute, SM_Key, mask, record."""
    free = {12, 13, 14, 15} | ({56, 57} if request == ASK_LINK else set())  # TransactionID and LID
    changed = bytearray(request)
    changed[place] ^= change
    if place in free or bytes(changed) == ASK_NODE:
        return
    if place == 17 and changed[17] == RecordType.NODE_RECORD:
        return
    with pytest.raises(Malformed):
        sa.require_get_table(bytes(changed))


def test_two_answers_name_the_far_end() -> None:
    """The port is that of the link: LocalPortNum of a NodeRecord is another one."""
    found = sa.replay([Exchange(ASK_LINK, LINKS), Exchange(ASK_NODE, NODES)])
    assert found == LEAF


@pytest.mark.parametrize("rmpp", [SEGMENTED, bytes.fromhex("000001000000000000000000"), bytes(12)])
def test_a_reply_may_be_padded_or_not_segmented(rmpp: bytes) -> None:
    """As long as a MAD with zeros, as opensm sends over ibsim, or without RMPP."""
    full = reply(ASK_LINK, link(), rmpp=rmpp).ljust(256, b"\0")
    assert list(sa.decode(full, ASK_LINK)) == [link()[:6]]


def test_a_cable_to_another_host() -> None:
    """A record that names a CA is the far end of a back-to-back cable."""
    found = asked([link()], lambda lid: [node(lid, b"node-7 mlx5_3", kind=1)])
    assert (found.node_type, found.node_description) == ("CA", "node-7 mlx5_3")


@pytest.mark.parametrize(
    ("links", "nodes", "word"),
    [
        ([], [node()], "sa-no-record"),
        ([link()], [], "sa-no-record"),
        ([link(lid=7)], [node()], "sa-foreign"),
        ([link()], [node(9)], "sa-foreign"),
        ([link()], [node(), node(guid=OTHER_GUID)], "sa-ambiguous"),
        ([link(), link(to_port=4)], [node()], "sa-ambiguous"),
    ],
)
def test_each_refusal_has_its_word(links: list[bytes], nodes: list[bytes], word: str) -> None:
    assert reason(*links, nodes=lambda _lid: nodes) == word


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (0x0001, "sa-busy"),
        (0x0100, "sa-busy"),
        (0x8001, "sa-busy"),
        (0x0700, "sa-refused"),
        (0x0200, "sa-refused"),
        (0x000C, "sa-refused"),
        (0x0002, "sa-refused"),
        (0x7F00, "sa-refused"),
    ],
)
def test_a_status_is_a_reason(status: int, word: str) -> None:
    """Busy is not refused; a status of a vendor is."""
    with pytest.raises(PortUnavailable, match=f"{status:#06x}") as refused:
        sa.decode(reply(ASK_LINK, status=status), ASK_LINK)
    assert refused.value.reason == word
    assert list(sa.decode(reply(ASK_LINK, status=0x0300), ASK_LINK)) == []


def test_a_lid_that_moves_is_asked_for_again() -> None:
    """The second round has the new LID; a third one is not made."""
    lids = iter((5, 6))

    def answer(request: bytes) -> bytes:
        lid, _ = sa.require_get_table(request)
        if request[17] == RecordType.LINK_RECORD:
            return reply(request, link(next(lids)))
        return reply(request, *([node(6)] if lid == 6 else []))

    assert smp.converse(sa.conversation(LID, TID), answer).node_guid == LEAF.node_guid


def test_two_rounds_are_the_last() -> None:
    """A LID that no node has, again and again, costs four questions."""
    sent = []

    def answer(request: bytes) -> bytes:
        sent.append(request)
        return reply(request, *([link()] if request[17] == RecordType.LINK_RECORD else []))

    with pytest.raises(PortUnavailable, match="no NodeRecord of LID 1"):
        smp.converse(sa.conversation(LID, TID), answer)
    assert len(sent) == len(set(sent)) == 4


def test_the_planes_of_one_switch_are_one_far_end() -> None:
    """A link record for each plane: the first is that of the SMI device; one node each, or one."""
    planes = [link(10 + plane, 7, port=plane) for plane in (3, 1, 2, 4)]
    each = {
        10 + plane: node(10 + plane, b"x%d" % plane, guid=OTHER_GUID + plane) for plane in range(5)
    }
    found = asked(planes, lambda lid: [each[lid]])
    assert (found.node_description, found.port) == ("x1", 7)
    assert asked(planes).port == 7


def test_planes_of_two_switches_are_ambiguous() -> None:
    """They have neither node GUID nor SystemImageGUID in common."""
    other = bytearray(node(11, guid=OTHER_GUID))
    other[8:16] = bytes(7) + b"\1"  # SystemImageGUID
    nodes = {10: [node(10)], 11: [bytes(other)]}
    assert reason(link(10, 1), link(11, 1, port=2), nodes=nodes.__getitem__) == "sa-ambiguous"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (reply(ASK_LINK, link(), offset=0), "AttributeOffset of 0 bytes"),
        (reply(ASK_NODE, node(), offset=13), "AttributeOffset of 104 bytes"),
        (reply(ASK_LINK, link(), link(5), offset=2), "AttributeOffset of 16 bytes"),
        (reply(ASK_LINK, link(), link(5), offset=65535), "AttributeOffset of 524280 bytes"),
        (reply(ASK_LINK, link())[:55], "55 bytes"),
        (reply(ASK_LINK, *[link()] * 8000), "64056 bytes"),
        (reply(ASK_LINK, link(), rmpp=b"\1\1\3\0" + b"\0\0\0\1" * 2), "one segment of a transfer"),
        (reply(ASK_LINK, link(), rmpp=b"\1\4\1\x79" + bytes(8)), "given up"),
        (NODES, "AttributeID"),
        (b"\2" + LINKS[1:], "BaseVersion"),
        (LINKS[:15] + b"\7" + LINKS[16:], "TransactionID"),
        (LINKS[:3] + b"\x81" + LINKS[4:], "Method"),
    ],
)
def test_a_strange_reply_is_malformed(answer: bytes, text: str) -> None:
    """The message names the field; no record of it is used."""
    asked_for = ASK_NODE if "104" in text else ASK_LINK
    with pytest.raises(Malformed, match=text):
        list(sa.decode(answer, asked_for))


@pytest.mark.parametrize(
    "strange", [link(0xC001), link(0), link(LID), link(to_port=0), link(to_port=66)]
)
def test_a_link_that_cannot_be_is_malformed(strange: bytes) -> None:
    """To a multicast LID, to none, to itself, to port 0, to a port that the switch has not."""
    with pytest.raises(Malformed):
        asked([strange])


def test_more_links_than_planes_are_malformed() -> None:
    """Each would cost a question."""
    with pytest.raises(Malformed, match="17 links"):
        asked([link(port=port) for port in range(1, 18)])


@given(st.binary(max_size=MAX_LENGTH + 8))
def test_any_reply_is_records_or_a_clean_error(rest: bytes) -> None:
    for answer in (rest, LINKS[:24] + rest, LINKS[:56] + rest, NODES[:60] + rest):
        for request in (ASK_LINK, ASK_NODE):
            with suppress(Malformed, PortUnavailable):
                sizes = {len(record) for record in sa.decode(answer, request)}
                assert sizes <= {6, 108}


@given(st.lists(st.binary(min_size=8, max_size=8), max_size=40), st.binary(max_size=200))
def test_any_records_are_a_neighbor_or_a_clean_error(links: list[bytes], of_node: bytes) -> None:
    """No answer is a label unless it is whole: a type, a GUID, a port of the node."""
    with suppress(Malformed, Unavailable):
        found = asked(
            [link()[:4] + one[4:] for one in links],
            lambda lid: [lid.to_bytes(2, "big") + of_node.ljust(110, b"\0")[:110]],
        )
        assert len(found.node_guid) == 16
        assert 1 <= found.port <= 254
        assert len(found.node_description or "") <= 64 * 4


@pytest.mark.parametrize("length", range(len(NODES)))
def test_a_truncated_reply_has_no_record(length: int) -> None:
    """Each truncation is Malformed, or a reply without records; the padding may be cut."""
    with suppress(Malformed):
        assert list(sa.decode(NODES[:length], ASK_NODE)) == [] or length >= 56 + 108


def test_the_name_is_text() -> None:
    """Unprintable octets are escaped, as those of an SMP are."""
    assert asked([link(LEAF_LID)], lambda lid: [node(lid, b"leaf\n")]).node_description == "leaf"
    assert asked([link()], lambda lid: [node(lid, NAME)]).node_description == NAME.decode()


def switches(*lids: int) -> list[bytes]:
    return [node(lid, b"leaf%d" % lid, guid=0xB0CF0E0300000000 + lid) for lid in lids]


def test_a_table_of_ten_thousand_switches_is_read() -> None:
    """Over a megabyte, as one packet of the kernel; the next record is too many."""
    table = switches(*range(1, sa.MAX_NODES + 1))
    answer = reply(ASK_SWITCHES, *table)
    *_, last = decoded = list(sa.nodes(answer, ASK_SWITCHES))
    assert (len(decoded), len(answer)) == (sa.MAX_NODES, sa.MAX_TABLE)
    assert (last.lid, last.info.ports, last.description) == (sa.MAX_NODES, 65, "leaf10000")
    with pytest.raises(Malformed, match=r"1120168 bytes instead of 56 to 1120056"):
        list(sa.nodes(reply(ASK_SWITCHES, *table, table[0]), ASK_SWITCHES))


def test_a_node_that_is_not_configured_has_no_lid() -> None:
    """It is in the table."""
    [one] = sa.nodes(reply(ASK_SWITCHES, *switches(0)), ASK_SWITCHES)
    assert one.lid == 0


@pytest.mark.parametrize(
    ("request_", "record", "text"),
    [
        (ASK_SWITCHES, node(kind=1), "of the CA d2f2 b0cf0e0300d66c81, not of a switch"),
        (ASK_SWITCHES, node(kind=3), "of the router"),
        (ASK_SWITCHES, node(kind=0), "NodeType 0"),
        (ASK_SWITCHES, node(guid=0), "NodeGUID is zero"),
        (ASK_SWITCHES, node(0xC000), "of LID 0xc000"),
        (ASK_AGGREGATION, node(), "of the switch d2f2"),
        (ASK_AGGREGATION, aggregation_node(4, device_id=0x1021), "of the CA 1021"),
        (ASK_AGGREGATION, aggregation_node(0xFFFF), "of LID 0xffff"),
    ],
)
def test_a_node_that_was_not_asked_for_is_malformed(
    request_: bytes, record: bytes, text: str
) -> None:
    """An SA that ignores the component sends all nodes."""
    with pytest.raises(Malformed, match=text):
        list(sa.nodes(reply(request_, record), request_))


SEGMENT = 200  # bytes of records in a segment of RMPP


@pytest.mark.parametrize(
    "damage",
    [
        lambda parts: parts[:3] + parts[4:],  # lost
        lambda parts: [*parts[:4], parts[3], *parts[4:]],  # doubled
        lambda parts: [parts[1], parts[0], *parts[2:]],  # out of order
        lambda parts: parts[:-1],  # without its end
    ],
)
def test_a_table_of_damaged_segments_is_malformed(
    damage: Callable[[list[bytes]], list[bytes]],
) -> None:
    """As a kernel would give it that did not look at their numbers."""
    answer = reply(ASK_SWITCHES, *switches(*range(1, 40)))
    head, data = answer[:56], answer[56:]
    parts = [data[at : at + SEGMENT] for at in range(0, len(data), SEGMENT)]
    assert len(list(sa.nodes(head + b"".join(parts), ASK_SWITCHES))) == 39
    with pytest.raises(Malformed):
        list(sa.nodes(head + b"".join(damage(parts)), ASK_SWITCHES))


@given(st.binary(max_size=MAX_LENGTH))
def test_any_table_is_nodes_or_a_clean_error(rest: bytes) -> None:
    for request in (ASK_SWITCHES, ASK_AGGREGATION):
        for answer in (rest, reply(request, node())[:60] + rest):
            with suppress(Malformed, PortUnavailable):
                assert all(len(one.info.node_guid) == 16 for one in sa.nodes(answer, request))
