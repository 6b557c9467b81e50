"""Polls the far ends of InfiniBand ports by SMPs; an observation reads the cached answers.

A port is queried when it is new or has come up, after a link event, and once in REFRESH_INTERVAL. A
far end that does not answer (an M_Key can silence a switch) is queried again with exponential
back-off, until an event resets it. A port that is down sends no packet, and its cached answer is
dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from agent.errors import Unavailable
from agent.model import NeighborReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.daemon.background import BackgroundTask
    from agent.host import Host
    from agent.model import Observation

    Answer = dict[str, Any]
    Address = tuple[str, int]  # device, port

MIN_QUERY_INTERVAL = 5.0  # seconds between two queries of a port, however many events happen
REFRESH_INTERVAL = 3600.0  # seconds until an answered port is queried again: switches get renamed
RETRY_INTERVAL = 10.0  # seconds, doubled with each try
MAX_RETRY_INTERVAL = 4 * 3600.0  # seconds, for a far end that does not answer
MAX_FAILURE_INTERVAL = 300.0  # seconds, for a helper process that fails: the switch may be fine


@dataclass(slots=True)
class _Port:
    """The last answer of one port, and the time of its next query."""

    answer: Answer
    due: float = -math.inf
    queried: float = -math.inf
    tries: int = 0


class SmpPoller:
    """Host.ask_smp with a cache: calling it returns the last answers or raises Unavailable.

    `ask` queries ports and may block for seconds.
    """

    source: ClassVar[str] = "ib"

    def __init__(
        self,
        ask: Callable[[Sequence[Address]], Answer],
        aside: BackgroundTask[Answer],
    ) -> None:
        self.aside = aside
        self._ask = ask
        self._ports: dict[Address, _Port] = {}
        self._previous: dict[Address, _Port] = {}  # those of the observation before
        self._queried: list[Address] = []  # the poll under way
        self._failure: str | None = None  # the error of the last poll

    def __call__(self, addresses: Sequence[Address]) -> Answer:
        self._ports = {
            address: self._previous.get(address) or _Port(_unanswered(address))
            for address in addresses
        }
        if self._failure:
            raise Unavailable(self._failure)
        return {"ports": [port.answer for port in self._ports.values()]}

    @property
    def busy(self) -> bool:
        return self.aside.busy

    @property
    def took(self) -> float:
        return self.aside.took

    def begin_cycle(self) -> None:
        self._previous, self._ports = self._ports, {}

    def observed(self, observation: Observation) -> None:
        """Keep the times: they depend on the answers alone."""

    def trigger(self, now: float) -> None:
        for port in self._ports.values():
            earliest = max(now, port.queried + MIN_QUERY_INTERVAL)
            port.due, port.tries = min(port.due, earliest), 0

    def start_due(self, now: float) -> None:
        if self.next_due() > now:
            return
        self._queried = sorted(address for address, port in self._ports.items() if port.due <= now)
        addresses = tuple(self._queried)
        for address in addresses:
            self._ports[address].queried = now
        self.aside.start(lambda: self._ask(addresses))

    def collect(self, now: float) -> bool:
        answer = self.aside.take()
        if answer is None:
            return False
        answers = _by_address(answer)
        failed = isinstance(answers, Exception)
        self._failure = str(answers) if failed else None
        for address in self._queried:
            if port := self._ports.get(address):
                _update(port, None if isinstance(answers, Exception) else answers.get(address), now)
        return True

    def next_due(self) -> float:
        if self.aside.busy:
            return math.inf
        return min((port.due for port in self._ports.values()), default=math.inf)


def _unanswered(address: Address) -> Answer:
    device, port = address
    return {
        "device": device,
        "port": port,
        "exchanges": [],
        "error": NeighborReason.NO_ANSWER,
        "text": None,
    }


def _by_address(answer: Answer | Exception) -> dict[Address, Answer] | Exception:
    if isinstance(answer, Exception):
        return answer
    try:
        return {(one["device"], one["port"]): one for one in answer["ports"]}
    except (KeyError, TypeError) as error:
        return Unavailable(f"malformed answer of the SMP helper: {error!r}")


def _update(port: _Port, answer: Answer | None, now: float) -> None:
    """Cache the answer, or keep the last one if there is none; set the time of the next query."""
    port.answer = answer or port.answer
    if answer and not answer.get("error"):
        port.due, port.tries = now + REFRESH_INTERVAL, 0
        return
    longest = MAX_RETRY_INTERVAL if answer else MAX_FAILURE_INTERVAL
    port.due = now + min(RETRY_INTERVAL * 2.0 ** min(port.tries, 16), longest)
    port.tries += 1


def make(
    host: Host, _options: Mapping[str, Any], task: BackgroundTask[Answer]
) -> tuple[SmpPoller, dict[str, Any]]:
    """Return the poller, and the fields of a Host that read its cache."""
    poller = SmpPoller(host.ask_smp, task)
    return poller, {"ask_smp": poller}
