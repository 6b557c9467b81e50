"""Performance management datagrams, and the helper's record of them."""

from __future__ import annotations

import math
import struct
from random import Random
from typing import Any

from agent.infiniband import perf
from agent.infiniband.bad_link import EndReadings
from agent.infiniband.perf import MAXIMA, Counters, PerfAttribute, PortReading
from agent.infiniband.smp import Exchange

TID = 0x5EED0001
KERNEL_TID = 0x0000_0012_0000_0000
NONE = Counters(*[0] * 7)


def port_counters(port: int, counters: Counters = NONE) -> bytes:
    """The attribute PortCounters; every other counter of it is 1."""
    symbol, recovery, downed, received, remote, integrity, overrun = counters
    shared = integrity << 4 | overrun
    row = (0, port, 0, symbol, recovery, downed, received, remote, 1, 1, 1, 1, 0, shared)
    return struct.pack(">BBHHBBHHHHBBBB", *row) + struct.pack(">HHIIIII", 0, 1, 1, 1, 1, 1, 1)


def port_counters_extended(port: int, counters: Counters = NONE) -> bytes:
    """The attribute PortCountersExtended; every other counter of it is 1."""
    *first, integrity, overrun = counters
    row = (*[1] * 8, *first, *[1] * 4, integrity, overrun, 1, 1, 1)
    return struct.pack(f">BBHI{len(row)}Q", 0, port, 0, 0, *row)


def class_port_info(*, has_errors: bool = True) -> bytes:
    """The attribute ClassPortInfo."""
    return struct.pack(">BBHI", 1, 1, 0x1300, (0x2 if has_errors else 0) << 5 | 18)


def reply(request: bytes, data: bytes, status: int = 0) -> bytes:
    """Return the reply to a request, as the kernel hands it over."""
    tid = int.from_bytes(request[8:16], "big") | KERNEL_TID
    head = request[:3] + struct.pack(">BHHQ", 0x81, status, 0, tid) + request[16:64]
    return head + data.ljust(192, b"\0")


def exchange(counters: Counters = NONE, port: int = 1, tid: int = TID) -> Exchange:
    """The exchange of a port whose counters are below their maxima."""
    request = perf.get(PerfAttribute.PORT_COUNTERS, tid, port)
    return Exchange(request, reply(request, port_counters(port, counters)))


def side(counters: Counters = NONE, port: int = 1) -> dict[str, Any]:
    """One end of a reading in the helper's answer."""
    return {"exchanges": [exchange(counters, port).as_json()], "error": None, "text": None}


def refused(error: str = "no-answer") -> dict[str, Any]:
    """One end of a reading that was not answered."""
    return {"exchanges": [], "error": error, "text": "ibp0 port 1: no answer in 500 ms"}


def entry(*readings: tuple[float, Any, Any], **changes: Any) -> dict[str, Any]:
    """The helper's entry of ibp0 port 1, whose far end has port 3."""
    rows = [{"time": time, "near": near, "far": far} for time, near, far in readings]
    facts = {"device": "ibp0", "port": 1, "far_port": 3, "error": None, "text": None}
    return facts | {"readings": rows} | changes


def poisson(random: Random, mean: float) -> int:
    """A number of events, for a mean below 500."""
    limit, product, events = math.exp(-mean), random.random(), 0
    while product > limit:
        product, events = product * random.random(), events + 1
    return events


def end(before: Counters = NONE, **rose: int) -> EndReadings:
    """Two readings of an end, between which these counters rose."""
    after = before._replace(**{name: getattr(before, name) + by for name, by in rose.items()})
    return (PortReading(before), PortReading(after))


def modeled(random: Random, mean: float) -> EndReadings:
    """An end after an hour: `mean` errors, some of them in other counters, totals of before."""
    before = Counters(*(random.randrange(int(most * 0.7) + 1) for most in MAXIMA))
    errors = poisson(random, mean)
    return end(before, symbol_error=errors, port_rcv_errors=errors // 5)
