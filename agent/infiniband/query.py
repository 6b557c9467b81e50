"""All InfiniBand ports asked at once, in one thread.

The law of this module: a silent port costs its own time and nobody else's. libibumad is not thread-safe, so the ports
take turns in a poll loop: each has its own descriptor, its own conversation (agent/infiniband/smp.py), its own deadline and
its own tries, and a round takes as long as its slowest port. Every question and what came of it is kept as an exchange,
because whoever asked reads the answers out of those, live or recorded.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

from agent.errors import Malformed
from agent.infiniband import smp
from agent.infiniband.umad import GRACE, PortUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agent.infiniband.umad import Port

# Every open umad device is an agent of its own, so each conversation may count from here: recordings are comparable.
FIRST_TID = 1


class PortQuery:
    """The conversation over one port; over when `request` is None."""

    def __init__(self, device: str, number: int, timeout_ms: int, tries: int) -> None:
        self.device, self.number = device, number
        self.request: bytes | None = None
        self.deadline = 0.0
        self.exchanges: list[smp.Exchange] = []
        self.error: str | None = None  # the word why there is no neighbour
        self.text: str | None = None  # the same in words
        self._timeout_ms, self._tries, self._left = timeout_ms, tries, 0
        self._port: Port | None = None

    def start(self, open_port: Callable[[str, int], Port]) -> None:
        """Open the port and send the first request."""
        try:
            self._port = open_port(self.device, self.number)
            self._conversation = smp.conversation(self.number, FIRST_TID)
        except PortUnavailable as shut:
            self._end(shut.reason, shut)
        else:
            self._go_on(lambda: next(self._conversation))

    def close(self) -> None:
        """Close the port."""
        if self._port:
            self._port.close()

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._port.fileno() if self._port else -1

    def receive(self) -> None:
        """Take what has come, and go on if it was the reply."""
        if self._port is None or self.request is None:
            return
        try:
            reply = self._port.receive(self.request)
        except PortUnavailable as shut:
            self._unanswered(shut)
        else:
            if reply is not None:
                self._answered(reply)

    def expire(self, now: float) -> None:
        """Give up waiting when it is time to."""
        if self.request is not None and now >= self.deadline:
            self._unanswered(
                PortUnavailable(
                    "no-answer",
                    f"{self.device} port {self.number}: no answer in {self._timeout_ms} ms",
                )
            )

    def _go_on(self, resume: Callable[[], bytes]) -> None:
        try:
            self.request, self._left = resume(), self._tries
        except StopIteration:
            self.request = None
        except Malformed as error:
            self._end("malformed", error)
        except PortUnavailable as shut:
            self._end(shut.reason, shut)
        else:
            self._send()

    def _send(self) -> None:
        if self._port is None or self.request is None:
            return
        self._left -= 1
        self.deadline = time.monotonic() + self._timeout_ms / 1000 + GRACE
        try:
            self._port.send(self.request, self._timeout_ms)
        except PortUnavailable as shut:
            self._unanswered(shut)

    def _answered(self, reply: bytes) -> None:
        self._record(reply, None)
        self._go_on(lambda: self._conversation.send(reply))

    def _unanswered(self, shut: PortUnavailable) -> None:
        if shut.reason == "no-answer" and self._left > 0:
            self._send()
        else:
            self._record(None, shut.reason)
            self._go_on(lambda: self._conversation.throw(shut))

    def _record(self, reply: bytes | None, error: str | None) -> None:
        if self.request is not None:
            self.exchanges.append(smp.Exchange(self.request, reply, error))

    def _end(self, reason: str, error: Exception) -> None:
        self.request, self.error, self.text = None, reason, str(error)


def sweep(
    open_port: Callable[[str, int], Port],
    ports: Iterable[tuple[str, int]],
    timeout_ms: int,
    tries: int,
) -> list[PortQuery]:
    """Ask who is at the far end of each (device, port), all at the same time, each request up to `tries` times."""
    talks = [PortQuery(device, number, timeout_ms, tries) for device, number in ports]
    try:
        for talk in talks:
            talk.start(open_port)
        while waiting := [talk for talk in talks if talk.request is not None]:
            for talk in _readable(waiting):
                talk.receive()
            for talk in waiting:
                talk.expire(time.monotonic())
    finally:
        for talk in talks:
            talk.close()
    return talks


def _readable(talks: list[PortQuery]) -> list[PortQuery]:
    poll, by_fd = select.poll(), {talk.fileno(): talk for talk in talks}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    patience = min(talk.deadline for talk in talks) - time.monotonic()
    return [by_fd[fd] for fd, _ in poll.poll(max(0.0, patience) * 1000)]
