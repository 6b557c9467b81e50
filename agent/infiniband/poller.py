"""Polls the far ends of InfiniBand ports by SMPs; an observation reads the cached answers.

A port is queried when it is new or has come up, after a link event, and once in REFRESH_INTERVAL. A
far end that does not answer (an M_Key can silence a switch), or not with its known name, is queried
again with exponential back-off, until an event resets it. A port that is down sends no packet, and
its cached answer is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from agent.errors import Malformed, Unavailable
from agent.infiniband.devices import Address, Answer, by_port, unanswered
from agent.infiniband.switch_names import Answered, Retry, SwitchNames
from agent.pace import doubled
from agent.reasons import NeighborReason

if TYPE_CHECKING:  # packages that import this one
    from agent.daemon.background import BackgroundTask
    from agent.host import Host
    from agent.model import Observation

MIN_QUERY_INTERVAL = 5.0  # seconds between two queries of a port, however many events happen
REFRESH_INTERVAL = 3600.0  # seconds until an answered port is queried again: switches get renamed
RETRY_INTERVAL = 10.0  # seconds, doubled with each try
MAX_RETRY_INTERVAL = 4 * 3600.0  # seconds, for a far end that does not answer
MAX_MISSING_INTERVAL = 600.0  # seconds, where libibumad or a umad device is missing
MAX_FAILURE_INTERVAL = 300.0  # seconds, for a helper process that fails: the switch may be fine


@dataclass(slots=True)
class _Port:
    """The last answer of one port, and the time of its next query."""

    answer: Answer
    failure: str | None = None  # why the last poll could not query it
    due: float = -math.inf
    queried: float = -math.inf
    answered: float = -math.inf
    tries: int = 0

    def trigger(self, now: float) -> None:
        """Query at once, or at the end of MIN_QUERY_INTERVAL."""
        earliest = max(now, self.queried + MIN_QUERY_INTERVAL)
        self.due, self.tries = min(self.due, earliest), 0

    def update(self, answer: Answer, failure: str | None, now: float) -> None:
        """Cache an answer and set the time of the next query."""
        self.answer, self.failure, self.answered = answer, failure, now
        if self.answer.get("error"):
            longest = MAX_RETRY_INTERVAL
            if self.failure:
                longest = MAX_FAILURE_INTERVAL
            elif self.answer["error"] == NeighborReason.NO_UMAD:
                longest = MAX_MISSING_INTERVAL
            self.due = now + doubled(RETRY_INTERVAL, longest, self.tries)
            self.tries += 1
        else:
            self.due, self.tries = now + REFRESH_INTERVAL, 0

    def retry(self, retry: Retry) -> None:
        """Query again earlier, since the last answer lacks the known name."""
        by = retry.by if retry.by > self.answered else math.inf
        wait = min(doubled(RETRY_INTERVAL, REFRESH_INTERVAL, retry.number), by - self.answered)
        self.due = min(self.due, self.answered + max(wait, RETRY_INTERVAL))


class SmpPoller:
    """Host.ask_smp with a cache: calling it returns the last answers.

    It raises Unavailable if no port could be queried. `ask` queries ports and may block for
    seconds; a poll that fails, as a whole or for a device, leaves the answers of other ports.
    """

    source: ClassVar[str] = "ib"

    def __init__(
        self,
        ask: Callable[[Sequence[Address]], Answer],
        task: BackgroundTask[Answer],
        names: SwitchNames | None = None,
    ) -> None:
        self.task = task
        self._ask = ask
        self._names = names or SwitchNames()  # as the observations derive them
        self._ports: dict[Address, _Port] = {}
        self._previous: dict[Address, _Port] = {}  # those of the observation before
        self._queried: tuple[Address, ...] = ()  # the poll under way

    def __call__(self, addresses: Sequence[Address]) -> Answer:
        self._ports = {
            address: self._previous.get(address) or _Port(unanswered(address))
            for address in addresses
        }
        ports = list(self._ports.values())
        if ports and all(port.failure for port in ports):
            raise Unavailable(str(ports[0].failure))
        return {"ports": [{**port.answer, "answered": port.answered} for port in ports]}

    def begin_cycle(self) -> None:
        self._previous, self._ports = self._ports, {}

    def observed(self, observation: Observation) -> None:  # noqa: ARG002 - it has read the names
        """Query the ports again soon whose answers lack the known name."""
        for address, port in self._ports.items():
            if retry := self._names.retry(Answered(address, port.answered)):
                port.retry(retry)

    def trigger(self, now: float, event: tuple[str, str]) -> None:  # noqa: ARG002 - any may be a new link
        self._names.trigger()
        for port in self._ports.values():
            port.trigger(now)

    def start_due(self, now: float) -> None:
        if self.next_due() > now:
            return
        due = sorted(address for address, port in self._ports.items() if port.due <= now)
        self._queried = addresses = tuple(due)
        for address in addresses:
            self._ports[address].queried = now
        self.task.start(lambda: self._ask(addresses))

    def collect(self, now: float) -> bool:
        answer = self.task.take()
        if answer is None:
            return False
        entries, failed = {}, []
        missing = "the SMP helper's answer has no entry for this port"
        try:
            if isinstance(answer, Exception):
                missing = str(answer)
            else:
                entries, failed = by_port(answer), answer.get("failed", [])
        except Malformed as error:
            missing = str(error)
        for address in self._queried:
            port = self._ports.get(address)
            if port is None:
                continue
            if entry := entries.get(address):
                failure = str(entry.get("text")) if list(address) in failed else None
                port.update(entry, failure, now)
            else:
                port.update(unanswered(address, missing), missing, now)
        return True

    def next_due(self) -> float:
        if self.task.busy:
            return math.inf
        return min((port.due for port in self._ports.values()), default=math.inf)


def make(
    host: Host, _options: Mapping[str, Any], task: BackgroundTask[Answer]
) -> tuple[SmpPoller, dict[str, Any]]:
    """Return the poller, and the fields of a Host that read its cache."""
    poller = SmpPoller(host.ask_smp, task, host.switch_names)
    return poller, {"ask_smp": poller}
