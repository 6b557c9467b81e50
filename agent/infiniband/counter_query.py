"""Read the error counters of both ends of InfiniBand links (agent/infiniband/perf.py)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from agent.infiniband import perf, smp
from agent.infiniband.bad_link import is_worth_another
from agent.infiniband.devices import Address, CounterPort, address_of
from agent.infiniband.query import FIRST_TID, OpenPort, PortQuery, run_all
from agent.infiniband.umad import Management
from agent.reasons import NeighborReason
from agent.text import Json


class CounterQueries:
    """Readings of the error counters of links, one after the other, each at both ends.

    `lid_of` returns the LID of a local port. A far end that is asked for its LID is so by an SMP
    over the cable, so its counters cannot be those of a node that got its LID.
    """

    def __init__(
        self,
        open_port: OpenPort,
        lid_of: Callable[[Address], int | None],
        timeout_ms: int,
        tries: int,
    ) -> None:
        self._open_port, self._lid_of = open_port, lid_of
        self._timeout_ms, self._tries = timeout_ms, tries

    def links(self, ports: Iterable[list[Any]]) -> list[Json]:
        """Read the links of ports (each a CounterPort as JSON has it), those with errors once more.

        Returns the entries of the helper's answer.
        """
        entries: list[Json] = []
        again: list[tuple[CounterPort, list[Json]]] = []
        for device, number, sender, *far in ports:
            port = CounterPort(device, number, tuple(sender), *far)
            reading, is_worth = self.read(port)
            entry = {"device": device, "port": number, "far_port": port.far_port, "error": None}
            entries.append(entry | {"text": None, "readings": [reading]})
            if is_worth and port.again:
                again.append((port, entries[-1]["readings"]))
        if again:
            time.sleep(max(port.again for port, _ in again))
        for port, readings in again:
            readings.append(self.read(port)[0])
        return entries

    def read(self, port: CounterPort) -> tuple[Json, bool]:
        """Return a reading as the helper writes it, and True if it is worth another."""
        near = self._counters(port, self._lid_of(address_of(port)), port.number)
        lid, far = port.far_lid, None
        if lid is None:
            far = self._ask(port.sender, smp.far_lid(port.sender[1], FIRST_TID), self._open_port)
            lid = far.result
        if lid is not None:
            far = self._counters(port, lid, port.far_port)
        sides = {"near": _side(near), "far": _side(far)}
        results = [query.result for query in (near, far) if query and query.exchanges]
        is_worth = any(result and is_worth_another(result) for result in results)
        return {"time": time.clock_gettime(time.CLOCK_BOOTTIME), **sides}, is_worth

    def _counters(self, port: CounterPort, lid: int | None, number: int) -> PortQuery | None:
        if not lid:
            return None
        to = Management(perf.CLASS, perf.CLASS_VERSION, lid, perf.require_get)
        steps = perf.conversation(number, int.from_bytes(os.urandom(4)))
        return self._ask(address_of(port), steps, partial(self._open_port, management=to))

    def _ask(
        self, address: Address, steps: smp.Conversation[Any], open_port: OpenPort
    ) -> PortQuery:
        query = PortQuery(*address, self._timeout_ms, self._tries, steps)
        return run_all([query], open_port)[0]


def _side(query: PortQuery | None) -> Json:
    """Return one end of a reading: the exchanges about its counters, or why there are none."""
    if query is None:
        return {"exchanges": [], "error": NeighborReason.NO_LID, "text": "it has no LID"}
    is_read = query.error is None
    exchanges = [exchange.as_json() for exchange in query.exchanges] if is_read else []
    return {"exchanges": exchanges, "error": query.error, "text": query.text}
