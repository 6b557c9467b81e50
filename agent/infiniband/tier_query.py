"""Explore the switches above the leaves of InfiniBand ports, one question at a time.

The payload is {"ports": [[PORT, leaf], ...], "seconds": for all questions, "record": bool, "known":
{GUID: name}, "timeout_ms": 5000, "smp_timeout_ms": 500, "library": "libibumad.so.3"}. A PORT is as
for the verb sa, with [device, number] of what sends its SMPs, or null if it cannot ask; `leaf` is
the node GUID of its leaf. For a look at the leaves alone also "lids" and "uplinks", {leaf: [[port,
GUID]]}.

The answer is `as_json` of agent/infiniband/exploration.py, or the fields of its LeafLook, or
{"error": one line}; with them {"outcomes": {word: number of questions}}, and if it records
{"ports": [...]} as that of the verb sa.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from agent.errors import Malformed, Unavailable
from agent.infiniband.devices import Address, Entries, SubnetPort
from agent.infiniband.exploration import as_json, counting, explore, look, recording
from agent.infiniband.query import OpenPort, PortQuery, SaQueries, require_time, run_all
from agent.infiniband.smp import Busy, Conversation, decode, is_smp
from agent.infiniband.umad import ROUTED_SMPS, UmadPort
from agent.text import Json

TABLE_TIMEOUT_MS = 5000  # of a subnet's switches, hundreds of segments
SMP_TIMEOUT_MS, SMP_TRIES = 500, 2


def answer(payload: Json, open_port: OpenPort) -> Json:
    """Return the answer to a payload."""
    administrators = SaQueries(open_port, payload.get("timeout_ms", TABLE_TIMEOUT_MS))
    smps = SmpQueries(open_port, payload.get("smp_timeout_ms", SMP_TIMEOUT_MS))
    end = time.monotonic() + payload["seconds"]
    entries: Entries = {}
    outcomes: dict[str, int] = {}

    def ask(port: SubnetPort, request: bytes) -> bytes:
        return (smps if is_smp(request) else administrators).ask(port, request, end)

    told: Json
    try:
        ports = [(port and SubnetPort.of(port), leaf) for port, leaf in payload["ports"]]
        tid = int.from_bytes(os.urandom(4))
        asking = counting(recording(ask, entries) if payload.get("record") else ask, outcomes)
        if uplinks := payload.get("uplinks"):
            known = {leaf: dict(at) for leaf, at in uplinks.items()}
            told = look(ports, asking, tid, known, payload["lids"])._asdict()
        else:
            told = as_json(explore(ports, asking, tid, payload.get("known", {})))
    except Unavailable as error:
        told = {"error": str(error)}
    return told | {"outcomes": outcomes, "ports": [*entries.values()]}


class SmpQueries:
    """Questions by SMPs over directed routes, one at a time; a busy node is asked once more.

    A port is opened once, and stays open until the process ends: there are thousands.
    """

    def __init__(self, open_port: OpenPort, timeout_ms: int) -> None:
        self._open_port, self._limits = open_port, (timeout_ms, SMP_TRIES)
        self._ports: dict[Address, KeptPort] = {}

    def ask(self, port: SubnetPort, request: bytes, end: float) -> bytes:
        """Return the reply to one request of a port's sender, as `SaQueries.ask` does."""
        require_time(port, end)

        def question() -> Conversation[None]:
            with suppress(Malformed):  # of the reply: whoever asks decodes it, too
                try:
                    decode((yield request), request)
                except Busy:
                    yield request  # once more, at the end of the try

        query = PortQuery(*(port.sender or port.address), *self._limits, question(), end)
        run_all([query], self._open)
        return query.last_reply()

    def _open(self, device: str, number: int) -> KeptPort:
        if (device, number) not in self._ports:
            port = self._open_port(device, number, management=ROUTED_SMPS)
            self._ports[device, number] = KeptPort(port)
        return self._ports[device, number]


class KeptPort:
    """An open port that `close` does not close."""

    def __init__(self, port: UmadPort) -> None:
        self.fileno, self.send, self.receive = port.fileno, port.send, port.receive

    def close(self) -> None:
        """Do nothing."""
