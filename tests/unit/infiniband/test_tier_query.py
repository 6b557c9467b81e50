"""The helper's answer about the switches above, over ports of the test."""

from __future__ import annotations

import time
from typing import Any

from agent.infiniband.exploration import loaded
from agent.infiniband.smp import Attribute, is_smp
from agent.infiniband.tier_query import answer
from agent.infiniband.umad import TIMEOUT_SLACK, Management
from tests.support import smps
from tests.support.routes import Routes
from tests.support.subnets import three_tiers
from tests.support.umad_ports import AnsweringPort


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
    routes, sent = Routes(subnet, next(iter(subnet.pods))), list[float]()

    def reply(request: bytes, data: bytes) -> bytes:
        if (request[7], request[17]) != (1, Attribute.NODE_INFO):
            return smps.reply(request, data)
        sent.append(time.monotonic())
        return smps.reply(request, data, 0x8001 if len(sent) == 1 else 0x8000)

    routes.reply = reply
    payload: dict[str, Any] = {"ports": routes.ports, "seconds": 60, "smp_timeout_ms": 30}
    found = loaded(
        answer(payload, lambda device, _number, management: port_of(routes, device, management))
    )
    assert found.tiers.label(1) == "p0-r0-spine0"
    before, after = sent
    assert after - before >= 0.03 + TIMEOUT_SLACK
    assert routes.asked[0] == routes.asked[1]


def test_a_refused_port_sends_smps_and_stays_open() -> None:
    """For an exploration, which is recorded, and a look; what is not in time is one line."""
    subnet = three_tiers(rails=2, units=4)
    routes, opened = Routes(subnet, next(iter(subnet.pods))), list[Management]()

    def open_port(device: str, _number: int, management: Management) -> AnsweringPort:
        opened.append(management)
        return port_of(routes, device, management)

    payload: dict[str, Any] = {"ports": [*routes.ports, (None, "a" * 16)], "seconds": 60}
    told = answer(payload | {"record": True}, open_port)
    found = loaded(told)
    assert (found.tiers.label(1), found.tiers.label(2)) == ("p0-r0-spine0", "core00")
    assert [to.mgmt_class for to in opened] == [3, 0x81] * 2
    requests = [
        bytes.fromhex(row["request"]) for port in told["ports"] for row in port["exchanges"]
    ]
    assert sorted(filter(is_smp, requests)) == sorted(smp for _, smp in routes.asked)
    uplinks = {leaf: [*at.items()] for leaf, at in found.tiers.uplinks.items()}
    looked = answer(payload | {"uplinks": uplinks, "lids": found.lids}, open_port)
    assert looked["outcomes"].pop("smps") > 2
    assert (looked["agrees"], looked["outcomes"]) == (True, {"sa-refused": 2})
    late = answer(payload | {"seconds": 0}, open_port)
    assert late["error"].endswith(
        "no time is left to ask; by SMPs: ib0 port 1: no time is left to ask"
    )
