"""The queries of InfiniBand ports by the helper (agent/helper/main.py), in one thread.

The far ends of ports are asked for by SMPs all at once, by the SA in turn; the switches above them
and the counters of links by one question after the other.

Invariant: a port whose SMPs are not answered delays no other. libibumad is not thread-safe, so the
ports share one poll loop: each has its own descriptor, conversation (agent/infiniband/smp.py),
deadline and number of tries, and a round takes as long as its slowest port. Every request and its
result is kept as an exchange, which the caller decodes; a recording has the same exchanges. A
request that the conversation repeats is sent at the deadline of the request before it.
Questions to the subnet administrator (SA) are not repeated: it has those of ten thousand nodes.
"""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agent.errors import Malformed, Unavailable
from agent.infiniband import smp
from agent.infiniband.devices import (
    SA_PORT_LIMIT,
    Address,
    CounterPort,
    Entries,
    SubnetPort,
    address_of,
)
from agent.infiniband.smp import PortUnavailable
from agent.infiniband.umad import ROUTED_SMPS, TIMEOUT_SLACK, Management, UmadPort
from agent.model import IbNeighbor
from agent.reasons import NeighborReason
from agent.text import Json

# a UmadPort of a device, a number and a `management` (SMPs without); raises PortUnavailable
OpenPort = Callable[..., Any]

# An open umad device is an agent of its own, so each conversation of SMPs counts from here, and two
# recordings of a port have equal requests. One with the subnet administrator begins at random: any
# node of the partition may send to QP1, and the kernel matches a response by its TransactionID.
FIRST_TID = 1
TABLE_TIMEOUT_MS = 5000  # of a subnet's switches, hundreds of segments
SMP_TIMEOUT_MS, SMP_TRIES = 500, 2


@dataclass
class PortQuery:
    """The conversation over one port; it has ended when `request` is None."""

    device: str
    number: int
    timeout_ms: int
    tries: int
    conversation: smp.Conversation[Any]
    end: float = math.inf  # by the monotonic clock, of the whole conversation
    request: bytes | None = None
    deadline: float = 0.0
    exchanges: list[smp.Exchange] = field(default_factory=list)
    error: NeighborReason | None = None  # why there is no neighbor
    text: str | None = None  # the same in words
    result: Any = None  # of the conversation
    _tries_left: int = 0
    _port: UmadPort | None = None

    def start(self, open_port: OpenPort) -> None:
        """Open the port and send the first request."""
        try:
            self._port = open_port(self.device, self.number)
        except PortUnavailable as error:
            self._end(error.reason, error)
        else:
            self._advance(lambda: next(self.conversation))

    def last_reply(self) -> bytes:
        """Return the last reply of a conversation that has ended; raises PortUnavailable."""
        if self.error is not None:
            raise PortUnavailable(self.error, self.text or self.error)
        return self.exchanges[-1].reply or b""

    def close(self) -> None:
        """Close the port."""
        if self._port:
            self._port.close()

    def fileno(self) -> int:
        """Return the descriptor to poll; -1 if the port is not open."""
        return self._port.fileno() if self._port else -1

    def receive(self) -> None:
        """Receive a MAD; if it is the reply, send the next request."""
        if self._port is None or self.request is None:
            return
        try:
            reply = self._port.receive(self.request)
        except PortUnavailable as error:
            self._unanswered(error)
        else:
            if reply is not None:
                self._record(reply, None)
                self._advance(lambda: self.conversation.send(reply))

    def expire(self, now: float) -> None:
        """End the try if its deadline has passed; `now` is of the monotonic clock."""
        if self.request is None or now < self.deadline:
            return
        text = f"{self.device} port {self.number}: no answer in {self.timeout_ms} ms"
        self._unanswered(PortUnavailable(NeighborReason.NO_ANSWER, text))

    def as_json(self) -> dict[str, Any]:
        """Return the entry of the port in the SMP helper's answer (agent/helper/main.py)."""
        return {
            "device": self.device,
            "port": self.number,
            "exchanges": [exchange.as_json() for exchange in self.exchanges],
            "error": self.error,
            "text": self.text,
        }

    def _advance(self, resume: Callable[[], bytes]) -> None:
        """Resume the conversation; send the next request, or end.

        Only the first request has several tries of its own: the conversation repeats others. One
        that it repeats is sent at the end of the try before.
        """
        before = self.request
        try:
            self.request = resume()
        except StopIteration as end:
            self.request, self.result = None, end.value
        except Malformed as error:
            self._end(NeighborReason.MALFORMED, error)
        except PortUnavailable as error:
            self._end(error.reason, error)
        else:
            self._tries_left = 1 if before else self.tries
            if self.request != before:
                self._send()

    def _send(self) -> None:
        if self._port is None or self.request is None:
            return
        self._tries_left -= 1
        after = time.monotonic() + self.timeout_ms / 1000 + TIMEOUT_SLACK
        self.deadline = min(after, self.end)
        try:
            self._port.send(self.request, self.timeout_ms)
        except PortUnavailable as error:
            self._unanswered(error)

    def _unanswered(self, error: PortUnavailable) -> None:
        if error.reason is NeighborReason.NO_ANSWER and self._tries_left > 0:
            self._send()
        else:
            self._record(None, error.reason)
            self._advance(lambda: self.conversation.throw(error))

    def _record(self, reply: bytes | None, error: NeighborReason | None) -> None:
        """Record the result of a request, instead of that of its last try."""
        if self.request is None:
            return
        if self.exchanges and self.exchanges[-1].request == self.request:
            self.exchanges.pop()
        self.exchanges.append(smp.Exchange(self.request, reply, error))

    def _end(self, reason: NeighborReason, error: Exception) -> None:
        self.request, self.error, self.text = None, reason, str(error)


def query_ports(
    open_port: OpenPort, ports: Iterable[tuple[str, int]], timeout_ms: int, tries: int
) -> list[PortQuery]:
    """Query the far end of each (device, port) at the same time, each request up to `tries` times.

    Returns the ended conversations, in the order of `ports`.
    """
    queries = [
        PortQuery(device, number, timeout_ms, tries, smp.conversation(number, FIRST_TID))
        for device, number in ports
    ]
    return run_all(queries, open_port)


def query_sa(
    open_port: OpenPort,
    ports: Iterable[SubnetPort],
    timeout_ms: int,
    limit: float = SA_PORT_LIMIT,
) -> list[PortQuery]:
    """Ask the subnet administrator for the far ends of ports, one question at a time.

    A port has `limit` seconds for all its questions, so that a slow answer takes no other's time.
    """
    from agent.infiniband import sa  # a helper that sends SMPs does not load it

    def query(port: SubnetPort) -> PortQuery:
        def questions() -> smp.Conversation[IbNeighbor]:
            return sa.conversation(port.lid, int.from_bytes(os.urandom(4)))

        return queries.query(port, questions, time.monotonic() + limit, sa.MAX_LENGTH)

    queries = SaQueries(open_port, timeout_ms)
    return [query(port) for port in ports]


class SaQueries:
    """Conversations with subnet administrators, one at a time.

    A port with a `subnet_prefix` may be a virtual port: if nothing comes back, it asks once more,
    with a global route, and later on only by the way that was answered.
    """

    def __init__(self, open_port: OpenPort, timeout_ms: int) -> None:
        self._open_port, self._timeout_ms = open_port, timeout_ms
        self._prefixes: dict[SubnetPort, int | None] = {}  # of the ports that were answered

    def ask(self, port: SubnetPort, request: bytes, end: float) -> bytes:
        """Return the reply to one request, until `end` of the monotonic clock.

        Raises PortUnavailable.
        """
        from agent.infiniband import sa

        require_time(port, end)

        def question() -> smp.Conversation[None]:
            yield request

        return self.query(port, question, end, sa.max_length(request)).last_reply()

    def query(
        self,
        port: SubnetPort,
        conversation: Callable[[], smp.Conversation[Any]],
        end: float,
        max_length: int,
    ) -> PortQuery:
        """Have a conversation over a port, begun anew for each way; return the last one.

        `max_length` is that of its replies in bytes.
        """
        from agent.infiniband import sa

        ways = [self._prefixes[port]] if port in self._prefixes else [None, port.subnet_prefix]
        for subnet_prefix in dict.fromkeys(ways):
            to = Management(
                sa.CLASS,
                sa.CLASS_VERSION,
                port.sm_lid,
                sa.require_get_table,
                rmpp=1,
                max_length=max_length,
                sl=port.sm_sl,
                pkey_index=port.pkey_index,
                subnet_prefix=subnet_prefix,
            )
            query = PortQuery(*port.address, self._timeout_ms, 1, conversation(), end)
            run_all([query], partial(self._open_port, management=to))
            if query.error is None:
                self._prefixes[port] = subnet_prefix
            if query.error is not NeighborReason.NO_ANSWER or len(query.exchanges) > 1:
                break
        return query


def require_time(port: SubnetPort, end: float) -> None:
    """Raise PortUnavailable after `end` of the monotonic clock."""
    if time.monotonic() >= end:
        raise PortUnavailable(NeighborReason.NO_ANSWER, f"{port.name}: no time is left to ask")


def run_all(queries: list[PortQuery], open_port: OpenPort) -> list[PortQuery]:
    """Have these conversations at the same time, and return them as they ended."""
    try:
        for query in queries:
            query.start(open_port)
        while waiting := [query for query in queries if query.request is not None]:
            poll, by_fd = select.poll(), {query.fileno(): query for query in waiting}
            for fd in by_fd:
                poll.register(fd, select.POLLIN)
            left = min(query.deadline for query in waiting) - time.monotonic()
            for fd, _ in poll.poll(max(0.0, left) * 1000):
                by_fd[fd].receive()
            for query in waiting:
                query.expire(time.monotonic())
    finally:
        for query in queries:
            query.close()
    return queries


def query_tiers(open_port: OpenPort, payload: Json) -> Json:
    """Explore the switches above the leaves of ports, one question at a time.

    The payload is {"ports": [[PORT, leaf], ...], "seconds": for all questions, "record": bool,
    "known": {GUID: name}, "timeout_ms": 5000, "smp_timeout_ms": 500, "library": "libibumad.so.3"}.
    A PORT is as for the verb sa, with [device, number] of what sends its SMPs, or null if it cannot
    ask; `leaf` is the node GUID of its leaf. For a look at the leaves alone also "lids" and
    "uplinks", {leaf: [[port, GUID]]}.

    The answer is `as_json` of agent/infiniband/exploration.py, or the fields of its LeafLook, or
    {"error": one line}; with them {"outcomes": {word: number of questions}}, and if it records
    {"ports": [...]} as that of the verb sa.
    """
    from agent.infiniband.exploration import as_json, counting, explore, look, recording

    administrators = SaQueries(open_port, payload.get("timeout_ms", TABLE_TIMEOUT_MS))
    smps = SmpQueries(open_port, payload.get("smp_timeout_ms", SMP_TIMEOUT_MS))
    end = time.monotonic() + payload["seconds"]
    entries: Entries = {}
    outcomes: dict[str, int] = {}

    def ask(port: SubnetPort, request: bytes) -> bytes:
        return (smps if smp.is_smp(request) else administrators).ask(port, request, end)

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

        def question() -> smp.Conversation[None]:
            with suppress(Malformed):  # of the reply: whoever asks decodes it, too
                try:
                    smp.decode((yield request), request)
                except smp.Busy:
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
        from agent.infiniband.bad_link import is_worth_another

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
        from agent.infiniband import perf

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
