"""Subnet management packets: requests, replies, and malformed bytes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.errors import Malformed, Unavailable
from agent.infiniband import smp
from agent.infiniband.smp import Attribute, Exchange
from tests.support.smps import (
    ASK_DESCRIPTION,
    ASK_INFO,
    DESCRIPTION,
    INFO,
    LEAF,
    RECORDED,
    RECORDED_0_1_0,
    TID,
    mad,
    node_info,
    reply,
)


def test_a_request_is_byte_for_byte_what_smpquery_sends() -> None:
    """NodeInfo over directed route 0,1, as infiniband-diags 44 put it on the (simulated) wire."""
    sent = mad(
        "0181 0101 0000 0001 0000 0000 69ab 1f3f",
        "0011 0000 0000 0000 0000 0000 0000 0000",
        "ffff ffff" + "0000" * 46,
        "0001",
    )
    assert sent[128:130] == b"\0\1"
    assert sent == ASK_INFO


@pytest.mark.parametrize("attribute", list(Attribute))
def test_every_request_passes_the_gate_and_tells_its_transaction_and_port(
    attribute: Attribute,
) -> None:
    assert smp.require_get(smp.get(attribute, TID, 254, modifier=7)) == ((254,), TID)


@pytest.mark.parametrize("port", [-1, 0, 255, 256])
def test_a_port_that_no_cable_can_hang_on_is_refused(port: int) -> None:
    with pytest.raises(Malformed, match="no port number"):
        smp.get(Attribute.NODE_INFO, TID, port)


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        (0, b"\x02", "not a plain Get over one hop$"),  # BaseVersion
        (1, b"\x01", "MgmtClass is 0x1 instead of 0x81$"),  # LID-routed SMPs go anywhere
        (1, b"\x03", "MgmtClass is 0x3 instead of 0x81$"),  # subnet administration
        (1, b"\x04", "MgmtClass is 0x4 instead of 0x81$"),  # performance, which a Set clears
        (3, b"\x02", "Method is 0x2 instead of 0x1$"),  # Set
        (3, b"\x05", "Method is 0x5 instead of 0x1$"),  # Trap
        (3, b"\x81", "Method is 0x81 instead of 0x1$"),  # GetResp
        (6, b"\x01", "not a plain Get over one hop$"),  # HopPointer
        (7, b"\x02", "not a plain Get over one hop$"),  # HopCount
        (17, b"\x20", "AttributeID 0x0020 is not allowed$"),  # SMInfo
        (30, b"\x01", "not a plain Get over one hop$"),  # M_Key
        (32, b"\x00", "not a plain Get over one hop$"),  # DrSLID
        (100, b"\x01", "not a plain Get over one hop$"),  # data
        (129, b"\x00", "0 is no port number"),
        (130, b"\x01", "not a plain Get over one hop$"),  # a second hop
        (200, b"\x01", "not a plain Get over one hop$"),  # ReturnPath
    ],
)
def test_nothing_but_a_plain_get_passes_the_gate(place: int, value: bytes, complaint: str) -> None:
    changed = ASK_INFO[:place] + value + ASK_INFO[place + 1 :]
    with pytest.raises(Malformed, match=f"^SMP request: {complaint}"):
        smp.require_get(changed)


def test_a_request_of_another_length_is_malformed() -> None:
    """One that is about to be sent, and one that a reply is compared with."""
    with pytest.raises(Malformed, match=r"^SMP request: 255 bytes instead of 256$"):
        smp.require_get(ASK_INFO[:255])
    with pytest.raises(Malformed, match=r"^SMP request: 255 bytes instead of 256$"):
        smp.decode(INFO, ASK_INFO[:255])


@given(place=st.integers(0, 255), value=st.integers(0, 255))
def test_a_request_with_any_byte_changed_still_asks_or_is_refused(place: int, value: int) -> None:
    """There is no one-byte way from a Get to something else."""
    changed = bytearray(ASK_INFO)
    changed[place] = value
    try:
        smp.require_get(bytes(changed))
    except Malformed:
        return
    assert (changed[1], changed[3], changed[7]) == (0x81, 0x01, 1)


def test_a_conversation_has_two_requests() -> None:
    """NodeInfo identifies the neighbor, NodeDescription names it."""
    steps = smp.conversation(1, TID)
    assert next(steps) == ASK_INFO
    assert steps.send(INFO) == ASK_DESCRIPTION
    with pytest.raises(StopIteration) as end:
        steps.send(DESCRIPTION)
    assert end.value.value == LEAF


BUSY = reply(ASK_DESCRIPTION, b"", 0x8001)


@pytest.mark.parametrize(
    ("replies", "description"),
    [
        ([INFO, BUSY, None, DESCRIPTION], LEAF.node_description),
        ([INFO, None, None, None], None),
        ([INFO, None, BUSY, BUSY], None),
    ],
)
def test_a_description_is_requested_three_times(
    replies: list[bytes | None], description: str | None
) -> None:
    """A busy switch refuses or drops the request; the same request is repeated."""
    asked, left = [], iter(replies)

    def ask(request: bytes) -> bytes:
        asked.append(request)
        if (found := next(left)) is None:
            raise Unavailable("no-answer")
        return found

    assert smp.converse(smp.conversation(1, TID), ask) == LEAF._replace(
        node_description=description
    )
    assert asked == [ASK_INFO, *[ASK_DESCRIPTION] * 3]


@pytest.mark.parametrize("recorded", [RECORDED, RECORDED_0_1_0])
def test_a_recorded_conversation_gives_the_same_neighbor(recorded: tuple[Exchange, ...]) -> None:
    """A replay needs nothing but the exchanges; it ignores PortInfo, which 0.1.0 recorded."""
    assert smp.replay(recorded) == LEAF


def test_an_exchange_as_json() -> None:
    """Both packets are in hex; a reply that is missing is null, with the reason."""
    found = Exchange(b"\x01\x81", b"\xff").as_json()
    assert found == {"request": "0181", "reply": "ff", "error": None}
    found = Exchange(b"\x01\x81", None, "no-answer").as_json()
    assert found == {"request": "0181", "reply": None, "error": "no-answer"}


@pytest.mark.parametrize(("kind", "name"), [(1, "CA"), (2, "switch"), (3, "router")])
def test_the_far_end_may_be_any_node(kind: int, name: str) -> None:
    """Hosts cabled back to back see each other."""
    steps = smp.conversation(1, TID)
    next(steps)
    steps.send(reply(ASK_INFO, node_info(kind)))
    with pytest.raises(StopIteration) as end:
        steps.send(DESCRIPTION)
    assert end.value.value.node_type == name


@pytest.mark.parametrize("answer", [None, b"\xff" * 256])
def test_an_unanswered_or_malformed_description_is_unknown(answer: bytes | None) -> None:
    """It does not cost the neighbor."""
    error = "no-answer" if answer is None else None
    exchanges = (RECORDED[0], Exchange(ASK_DESCRIPTION, answer, error))
    assert smp.replay(exchanges) == LEAF._replace(node_description=None)


def test_node_info_has_the_number_of_ports_and_the_device() -> None:
    """NumPorts and DeviceID, of which an observation keeps neither."""
    info = smp.node_info(smp.decode(INFO, ASK_INFO))
    assert (info.ports, info.device_id, info.local_port) == (65, 0xD2F2, 3)


@pytest.mark.parametrize(
    ("exchanges", "word"),
    [
        ([], "not-recorded"),
        ([Exchange(ASK_INFO, None)], "not-recorded"),
        ([Exchange(ASK_INFO, None, "no-answer")], "no-answer"),
        ([Exchange(ASK_DESCRIPTION, DESCRIPTION)], "not-recorded"),
    ],
)
def test_without_nodeinfo_there_is_no_neighbor(exchanges: list[Exchange], word: str) -> None:
    with pytest.raises(Unavailable, match=f"^{word}$"):
        smp.replay(exchanges)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, b"\x80", "SMP reply: BaseVersion is 0x80 instead of 0x1"),
        (1, b"\x01", "SMP reply: MgmtClass is 0x1 instead of 0x81"),
        (2, b"\x02", "SMP reply: ClassVersion is 0x2 instead of 0x1"),
        (3, b"\x01", "SMP reply: Method is 0x1 instead of 0x81"),
        (4, b"\x00", "SMP reply: D bit is 0x0 instead of 0x8000"),
        (5, b"\x01", "SMP reply: Status is 0x0001 (busy)"),
        (5, b"\x0c", "SMP reply: Status is 0x000c (attribute not supported)"),
        (5, b"\x1c", "SMP reply: Status is 0x001c (invalid attribute value)"),
        (5, b"\xe0", "SMP reply: Status is 0x00e0 (unknown)"),
        (15, b"\x00", "SMP reply: TransactionID is 0x69ab1f00 instead of 0x69ab1f3f"),
        (17, b"\x10", "SMP reply: AttributeID is 0x10 instead of 0x11"),
        (64 + 2, b"\x00", "NodeInfo: NodeType 0 does not exist"),
        (64 + 2, b"\x04", "NodeInfo: NodeType 4 does not exist"),
        (64 + 12, bytes(8), "NodeInfo: NodeGUID is zero"),
        (64 + 36, b"\x00", "NodeInfo: LocalPortNum is zero"),
    ],
)
def test_a_wrong_field_is_malformed_and_named(place: int, value: bytes, message: str) -> None:
    wrong = INFO[:place] + value + INFO[place + len(value) :]
    with pytest.raises(Malformed) as caught:
        smp.replay([Exchange(ASK_INFO, wrong)])
    assert str(caught.value) == message


def test_the_upper_half_of_the_transaction_is_the_kernels() -> None:
    """Two agents on one host differ there, and both replies are good."""
    assert INFO[8:16] != ASK_INFO[8:16]
    assert smp.decode(INFO, ASK_INFO)[:40] == node_info()


@pytest.mark.parametrize("length", [*range(256), 257, 512])
def test_a_reply_of_another_length_is_malformed(length: int) -> None:
    with pytest.raises(Malformed, match=rf"^SMP reply: {length} bytes instead of 256$"):
        smp.decode(INFO.ljust(length, b"\0")[:length], ASK_INFO)


def test_a_zero_system_image_guid_is_unknown() -> None:
    unset = INFO[: 64 + 4] + bytes(8) + INFO[64 + 12 :]
    assert smp.replay([Exchange(ASK_INFO, unset)]).sys_image_guid is None


@given(data=st.binary(max_size=300))
@example(data=bytes(256))
@example(data=b"\xff" * 256)
def test_any_bytes_are_a_reply_or_malformed(data: bytes) -> None:
    with contextlib.suppress(Malformed):
        smp.replay([Exchange(ASK_INFO, data)])


@given(info=st.binary(max_size=64), description=st.binary(max_size=64))
def test_any_attribute_data_is_a_neighbor_or_malformed(info: bytes, description: bytes) -> None:
    """Good headers around arbitrary data: the text is printable, the port is a port."""
    answers = {Attribute.NODE_INFO: info, Attribute.NODE_DESCRIPTION: description}
    try:
        found = smp.converse(
            smp.conversation(1, TID), lambda asked: reply(asked, answers[Attribute(asked[17])])
        )
    except Malformed:
        return
    assert found.port > 0
    assert (found.node_description or "").isprintable()
