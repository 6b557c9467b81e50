"""Requests of ports and their tries, answers about tiers and counters, over ports of the test."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from agent.infiniband import perf, smp
from agent.infiniband.devices import Address, CounterPort
from agent.infiniband.exploration import loaded
from agent.infiniband.perf import Counters, PerfAttribute
from agent.infiniband.query import CounterQueries, PortQuery, query_ports, query_tiers
from agent.infiniband.smp import Attribute, PortUnavailable, is_smp
from agent.infiniband.umad import SMPS, TIMEOUT_SLACK, Management
from agent.reasons import NeighborReason
from agent.text import Json
from tests.support import smps
from tests.support.perf import NONE, port_counters
from tests.support.perf import reply as perf_reply
from tests.support.routes import Routes
from tests.support.smps import AnsweringPort, node_info, reply
from tests.support.subnets import three_tiers

TIMEOUT_MS = 30
INFO, DESCRIPTION = (
    smp.get(attribute, tid, 1)
    for attribute, tid in ((Attribute.NODE_INFO, 1), (Attribute.NODE_DESCRIPTION, 2))
)
ANSWERS = {INFO: reply(INFO, node_info()), DESCRIPTION: reply(DESCRIPTION, b"leaf1")}
BUSY = reply(DESCRIPTION, b"", 0x8001)


class ScriptedPort(AnsweringPort):
    """A port that answers the NodeDescription as scripted: a reply, None for none, or an error."""

    def __init__(self, script: list[bytes | NeighborReason | None]) -> None:
        super().__init__(self.answer)
        self.script, self.sent = iter(script), list[tuple[float, bytes]]()

    def answer(self, request: bytes) -> bytes | None:
        self.sent.append((time.monotonic(), request))
        found = ANSWERS[INFO] if request == INFO else next(self.script)
        if isinstance(found, NeighborReason):
            raise PortUnavailable(found, "it is scripted")
        return found


def asked(script: list[bytes | NeighborReason | None]) -> tuple[PortQuery, ScriptedPort]:
    port = ScriptedPort(script)
    [query] = query_ports(lambda _device, _number: port, [("ibp0", 1)], TIMEOUT_MS, 2)
    return query, port


def gaps(port: ScriptedPort) -> Iterator[float]:
    """Yield the seconds between the requests for the NodeDescription."""
    times = [at for at, request in port.sent if request == DESCRIPTION]
    yield from (after - before for before, after in itertools.pairwise(times))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "sent", "name"),
    [
        ([ANSWERS[DESCRIPTION]], 1, "leaf1"),
        ([None, ANSWERS[DESCRIPTION]], 2, "leaf1"),
        ([BUSY, ANSWERS[DESCRIPTION]], 2, "leaf1"),
        ([BUSY, None, ANSWERS[DESCRIPTION]], 3, "leaf1"),
        ([None, None, None], 3, None),
        ([BUSY, BUSY, BUSY], 3, None),
        ([NeighborReason.SEND_FAILED] * 3, 3, None),
    ],
)
def test_a_description_has_three_tries(
    script: list[bytes | NeighborReason | None], sent: int, name: str | None
) -> None:
    """Each is sent when the time of the one before is over, whether that was refused or lost; the
    neighbor is known by NodeInfo, and one exchange has the last result.
    """
    query, port = asked(script)
    assert [request for _, request in port.sent] == [INFO, *[DESCRIPTION] * sent]
    assert all(gap >= TIMEOUT_MS / 1000 + TIMEOUT_SLACK for gap in gaps(port))
    assert [exchange.request for exchange in query.exchanges] == [INFO, DESCRIPTION]
    assert query.error is None
    assert smp.replay(query.exchanges).node_description == name


def port_of(routes: Routes, device: str, management: Management) -> AnsweringPort:
    """Return an open port that a subnet answers."""
    port = next(port for port, _ in routes.ports if port and port.device == device)

    def answered(request: bytes) -> bytes:
        management.require(request)
        return routes(port, request)

    return AnsweringPort(answered)


def test_a_busy_node_is_asked_once_more() -> None:
    """At the end of the try, by the same request; then the answer counts."""
    subnet = three_tiers(rails=1, units=1)
    routes, busy, sent = Routes(subnet, next(iter(subnet.pods))), list[bytes](), list[float]()

    def reply(request: bytes, data: bytes) -> bytes:
        if (request[7], request[17]) != (1, Attribute.NODE_INFO):
            return smps.reply(request, data)
        busy.append(request)
        return smps.reply(request, data, 0x8001 if len(busy) == 1 else 0x8000)

    def opened(device: str, _number: int, management: Management) -> AnsweringPort:
        port = port_of(routes, device, management)
        send = port.send

        def timed(request: bytes, _timeout_ms: int) -> None:
            if (request[7], request[17]) == (1, Attribute.NODE_INFO):
                sent.append(time.monotonic())
            send(request, _timeout_ms)

        port.send = timed  # type: ignore[method-assign]
        return port

    routes.reply = reply
    payload: dict[str, Any] = {"ports": routes.ports, "seconds": 60, "smp_timeout_ms": 30}
    found = loaded(query_tiers(opened, payload))
    assert found.tiers.label(1) == "p0-r0-spine0"
    before, after = sent
    # The try begins before the request is sent, on a busy machine some milliseconds.
    assert after - before >= TIMEOUT_SLACK
    assert routes.asked[0] == routes.asked[1]


def test_a_refused_port_sends_smps_and_stays_open() -> None:
    """For an exploration, which is recorded, and a look; what is not in time is one line."""
    subnet = three_tiers(rails=2, units=4)
    routes, opened = Routes(subnet, next(iter(subnet.pods))), list[Management]()

    def open_port(device: str, _number: int, management: Management) -> AnsweringPort:
        opened.append(management)
        return port_of(routes, device, management)

    payload: dict[str, Any] = {"ports": [*routes.ports, (None, "a" * 16)], "seconds": 60}
    told = query_tiers(open_port, payload | {"record": True})
    found = loaded(told)
    assert (found.tiers.label(1), found.tiers.label(2)) == ("p0-r0-spine0", "core00")
    assert [to.mgmt_class for to in opened] == [3, 0x81] * 2
    requests = [
        bytes.fromhex(row["request"]) for port in told["ports"] for row in port["exchanges"]
    ]
    assert sorted(filter(is_smp, requests)) == sorted(smp for _, smp in routes.asked)
    uplinks = {leaf: [*at.items()] for leaf, at in found.tiers.uplinks.items()}
    looked = query_tiers(open_port, payload | {"uplinks": uplinks, "lids": found.lids})
    assert looked["outcomes"].pop("smps") > 2
    assert (looked["agrees"], looked["outcomes"]) == (True, {"sa-refused": 2})
    late = query_tiers(open_port, payload | {"seconds": 0})
    assert late["error"].endswith(
        "no time is left to ask; by SMPs: ib0 port 1: no time is left to ask"
    )


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
        return perf_reply(request, data)

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
