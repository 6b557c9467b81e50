"""Which node is asked for the counters of a link, over ports of the test."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from agent.infiniband import perf, smp
from agent.infiniband.counter_query import CounterQueries
from agent.infiniband.devices import Address, CounterPort
from agent.infiniband.perf import Counters, PerfAttribute
from agent.infiniband.smp import PortUnavailable
from agent.infiniband.umad import SMPS, Management
from agent.reasons import NeighborReason
from agent.text import Json
from tests.support import smps
from tests.support.perf import NONE, port_counters, reply
from tests.support.umad_ports import AnsweringPort

LINK = CounterPort("ibp0", 1, ("smi0", 2), 3)


class Subnet:
    """The nodes of a subnet by LID, and a far end with an SMA at LID 7."""

    def __init__(self, far: Counters = NONE, lid: int = 7) -> None:
        self.counters, self.lid = {(22, 1): NONE, (7, 3): far}, lid
        self.opened = list[tuple[str, int, int]]()
        self.is_silent = False

    def open(self, device: str, number: int, management: Management = SMPS) -> Any:
        self.opened.append((device, number, management.lid))
        return AnsweringPort(partial(self.answer, management))

    def answer(self, to: Management, request: bytes) -> bytes:
        to.require(request)
        if self.is_silent:
            raise PortUnavailable(NeighborReason.NO_ANSWER, "nobody answers")
        if to is SMPS:
            assert smp.require_get(request)[0] == (LINK.sender[1],)
            return smps.reply(request, bytes(16) + self.lid.to_bytes(2, "big"))
        port, _ = perf.require_get(request)
        data = bytes(8)  # ClassPortInfo, without 64 bits
        if request[17] == PerfAttribute.PORT_COUNTERS:
            data = port_counters(port, self.counters[to.lid, port])
        return reply(request, data)

    def read(self, own_lid: int | None = 22, port: CounterPort = LINK) -> tuple[Json, bool]:
        def lid_of(address: Address) -> int | None:
            assert address == ("ibp0", 1)
            return own_lid

        return CounterQueries(self.open, lid_of, 30, 1).read(port)


def errors(reading: Json) -> list[str | None]:
    return [reading[end]["error"] for end in ("near", "far")]


def test_the_far_end_gives_its_lid_over_the_cable() -> None:
    """The device that sends SMPs may be another one; the counters are asked for by the port."""
    subnet = Subnet()
    reading, is_worth_another = subnet.read()
    assert subnet.opened == [("ibp0", 1, 22), ("smi0", 2, 0xFFFF), ("ibp0", 1, 7)]
    assert (errors(reading), is_worth_another) == ([None, None], False)
    [exchange] = reading["far"]["exchanges"]
    assert perf.require_get(bytes.fromhex(exchange["request"]))[0] == 3


def test_a_lid_that_the_subnet_administrator_gave_is_taken() -> None:
    subnet = Subnet()
    subnet.read(port=LINK._replace(far_lid=7))
    assert subnet.opened == [("ibp0", 1, 22), ("ibp0", 1, 7)]


@pytest.mark.parametrize("far", [NONE._replace(symbol_error=10), Counters(*perf.MAXIMA)])
def test_a_port_with_errors_is_worth_another_reading(far: Counters) -> None:
    assert Subnet(far).read()[1]


def test_an_end_without_lid_or_answer_has_its_reason() -> None:
    """The other end is read all the same."""
    reading, is_worth_another = Subnet(NONE._replace(symbol_error=99)).read(own_lid=None)
    assert (errors(reading), is_worth_another) == (["no-lid", None], True)
    assert errors(Subnet(lid=0xC000).read()[0]) == [None, "malformed"]
    subnet = Subnet()
    subnet.is_silent = True
    reading, is_worth_another = subnet.read()
    assert (errors(reading), is_worth_another) == (["no-answer", "no-answer"], False)
    assert reading["far"] == {"exchanges": [], "error": "no-answer", "text": "nobody answers"}


def test_a_link_with_errors_is_read_once_more() -> None:
    """After the time that its port has, if it has one."""
    for counters, again, count in (
        (NONE, 0.01, 1),
        (NONE._replace(symbol_error=10), 0.01, 2),
        (NONE._replace(symbol_error=10), 0.0, 1),
    ):
        asked = json.loads(json.dumps([LINK._replace(again=again)]))
        queries = CounterQueries(Subnet(counters).open, {("ibp0", 1): 22}.get, 30, 1)
        [entry] = queries.links(asked)
        times = [reading["time"] for reading in entry.pop("readings")]
        assert (len(times), times) == (count, sorted(times))
        expected = {"device": "ibp0", "port": 1, "far_port": 3, "error": None, "text": None}
        assert entry == expected
