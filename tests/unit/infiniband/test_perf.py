"""Performance management datagrams: requests, replies, and malformed bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import Malformed, Unavailable
from agent.infiniband import perf, smp
from agent.infiniband.perf import Counters, PerfAttribute, PortReading
from agent.infiniband.smp import Exchange
from tests.support.perf import (
    NONE,
    TID,
    class_port_info,
    exchange,
    port_counters,
    port_counters_extended,
    reply,
)

ASK = perf.get(PerfAttribute.PORT_COUNTERS, TID, 3)
ANSWER = reply(ASK, port_counters(3, Counters(700, 2, 3, 40, 5, 6, 7)))


def values(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


@pytest.mark.parametrize("attribute", list(PerfAttribute))
def test_every_request_passes_the_gate(attribute: PerfAttribute) -> None:
    port = 0 if attribute is PerfAttribute.CLASS_PORT_INFO else 254
    assert perf.require_get(perf.get(attribute, TID, 254)) == (port, TID)


@pytest.mark.parametrize("port", [-1, 0, 255])
def test_a_number_of_no_port_is_refused(port: int) -> None:
    """255 would be all ports at once, 0 the management port of the switch."""
    with pytest.raises(Malformed, match=r"^PerfMgt request: -?\d+ is no port number"):
        perf.get(PerfAttribute.PORT_COUNTERS, TID, port)


@given(place=st.integers(0, 255), value=st.integers(0, 255))
def test_a_request_with_any_byte_changed_still_asks_or_is_refused(place: int, value: int) -> None:
    """There is no way from a Get to a Set, which resets counters."""
    changed = bytearray(ASK)
    changed[place] = value
    try:
        perf.require_get(bytes(changed))
    except Malformed:
        return
    assert (changed[1], changed[3]) == (0x04, 0x01)
    assert place in {*range(8, 16), 17, 65} or bytes(changed) == ASK


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        (0, b"\x02", "BaseVersion is 0x2 instead of 0x1"),
        (1, b"\x03", "MgmtClass is 0x3 instead of 0x4"),
        (2, b"\x02", "ClassVersion is 0x2 instead of 0x1"),
        (3, b"\x01", "Method is 0x1 instead of 0x81"),
        (5, b"\x0c", r"Status is 0x000c \(attribute not supported\)"),
        (15, b"\x02", "TransactionID is 0x5eed0002 instead of 0x5eed0001"),
        (17, b"\x1d", "AttributeID is 0x1d instead of 0x12"),
        (65, b"\x04", "PortSelect is 0x4 instead of 0x3"),
    ],
)
def test_a_reply_that_does_not_match_is_one_line(place: int, value: bytes, complaint: str) -> None:
    """A far end that answers for another port is refused, too."""
    changed = ANSWER[:place] + value + ANSWER[place + 1 :]
    with pytest.raises(Malformed, match=f"^PerfMgt reply: {complaint}$"):
        perf.decode(changed, ASK)


@given(
    st.builds(
        Counters, values(16), values(8), values(8), values(16), values(16), values(4), values(4)
    )
)
def test_port_counters_both_ways(counters: Counters) -> None:
    reading = perf.port_counters(perf.decode(reply(ASK, port_counters(3, counters)), ASK))
    assert reading == PortReading(counters)
    assert all(
        (name in reading.saturated) == (value == most)
        for name, value, most in zip(Counters._fields, counters, perf.MAXIMA, strict=True)
    )


@given(st.builds(Counters, *[values(64)] * 7))
def test_port_counters_extended_both_ways(counters: Counters) -> None:
    request = perf.get(PerfAttribute.PORT_COUNTERS_EXTENDED, TID, 3)
    data = perf.decode(reply(request, port_counters_extended(3, counters)), request)
    reading = perf.port_counters_extended(data)
    assert (reading.counters, reading.saturated) == (counters, ())


@given(st.binary(max_size=300))
def test_other_bytes_raise_malformed_only(mad: bytes) -> None:
    with pytest.raises(Malformed):
        perf.decode(mad, ASK)


def read(*answers: tuple[PerfAttribute, bytes]) -> PortReading:
    """Return what a conversation reads from a node with these attributes."""
    known = dict(answers)

    def ask(request: bytes) -> bytes:
        asked.append(PerfAttribute(request[17]))
        return reply(request, known[asked[-1]])

    asked: list[PerfAttribute] = []
    reading = smp.converse(perf.conversation(3, TID), ask)
    assert asked == [attribute for attribute, _ in answers]
    return reading


def test_a_port_below_its_maxima_is_asked_once() -> None:
    counters = Counters(65534, 254, 254, 65534, 65534, 14, 14)
    reading = read((PerfAttribute.PORT_COUNTERS, port_counters(3, counters)))
    assert reading == PortReading(counters)


def test_a_counter_at_its_maximum_is_read_in_64_bits_where_the_node_has_them() -> None:
    full, wide = NONE._replace(local_link_integrity_errors=15), NONE._replace(symbol_error=2**40)
    plain = PerfAttribute.PORT_COUNTERS, port_counters(3, full)
    about = PerfAttribute.CLASS_PORT_INFO
    extended = PerfAttribute.PORT_COUNTERS_EXTENDED, port_counters_extended(3, wide)
    assert read(plain, (about, class_port_info()), extended) == PortReading(wide, is_extended=True)
    reading = read(plain, (about, class_port_info(has_errors=False)))
    assert reading.saturated == ("local_link_integrity_errors",)


def test_a_recording_replays() -> None:
    counters = NONE._replace(symbol_error=77)
    assert perf.replay([exchange(counters)], 1).counters == counters
    with pytest.raises(Malformed, match="PortSelect is 0x1 instead of 0x2"):
        perf.replay([exchange(counters)], 2)
    with pytest.raises(Unavailable, match=r"^no-answer$"):
        perf.replay([Exchange(ASK, None, "no-answer")], 3)
