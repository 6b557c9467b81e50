"""Query the far ends of InfiniBand ports, in one thread: by SMPs all at once, by the SA in turn.

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
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agent.errors import Malformed
from agent.infiniband import smp
from agent.infiniband.devices import SA_PORT_LIMIT, SubnetPort
from agent.infiniband.smp import PortUnavailable
from agent.infiniband.umad import TIMEOUT_SLACK, Management, UmadPort
from agent.model import IbNeighbor
from agent.reasons import NeighborReason

# a UmadPort of a device, a number and a `management` (SMPs without); raises PortUnavailable
OpenPort = Callable[..., Any]

# An open umad device is an agent of its own, so each conversation of SMPs counts from here, and two
# recordings of a port have equal requests. One with the subnet administrator begins at random: any
# node of the partition may send to QP1, and the kernel matches a response by its TransactionID.
FIRST_TID = 1


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
