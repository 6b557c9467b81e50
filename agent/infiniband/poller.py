"""Polls the far ends of InfiniBand ports by SMPs, or the subnet administrator (SA).

An observation reads the cached answers. By SMPs a port is queried when it is new or has come up,
after a link event, and once in REFRESH_INTERVAL. A far end that does not answer (an M_Key can
silence a switch), or without a name, is queried again with exponential back-off, until an
event resets it. A port that is down sends no packet, and its cached answer is dropped.

The SA has the questions of ten thousand nodes, so it is asked about a port when that is new, has
come up or has another LID or SM LID, at a random time within a minute (more in a subnet of more
than 5,000 LIDs), since all nodes may see that at the same time; once a day; and after a refusal or
a timeout with back-off up to hours. Changes that follow each other, as of a link that flaps, back
off up to an hour. One question is under way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from agent.errors import Malformed, Unavailable
from agent.infiniband.devices import SA_SPREAD, Address, SubnetPort, by_port, unanswered
from agent.infiniband.switch_names import Answered, SwitchNames
from agent.model import Observation, Seen
from agent.pace import doubled
from agent.reasons import NeighborReason
from agent.text import Json

if TYPE_CHECKING:  # packages that import this one
    from agent.daemon.background import BackgroundTask

MIN_QUERY_INTERVAL = 5.0  # seconds between two queries of a port, however many events happen
# Seconds until an answered port is queried again. No event reports a renamed switch, so this
# bounds the age of a name; a round of queries costs 61 ms of CPU (docs/benchmarks.md).
REFRESH_INTERVAL = 1200.0
RETRY_INTERVAL = 10.0  # seconds, doubled with each try
MAX_RETRY_INTERVAL = 4 * 3600.0  # seconds, for a far end that does not answer
MAX_MISSING_INTERVAL = 600.0  # seconds, where libibumad or a umad device is missing
MAX_FAILURE_INTERVAL = 300.0  # seconds, for a helper process that fails: the switch may be fine

SA_JITTER = 60.0  # seconds: the time in which the nodes of a cluster ask after a power-on, at least
# opensm looks at every node of the subnet for one NodeRecord (docs/scale.md), so the time in which
# all may ask grows with the square of their number, estimated by the highest LID that a node knows.
SA_JITTER_OF_LID = 2e-6  # seconds, by the square of the LID: 200 s in a subnet of 10,000 LIDs
# Seconds between two questions that changes of a port cause, doubled with each up to an hour: a
# link that flaps costs about 30 questions a day.
SA_MIN_INTERVAL, SA_MAX_INTERVAL = 60.0, 3600.0
SA_QUIET = 2 * SA_MAX_INTERVAL  # seconds without such a question, after which it begins again
SA_REFRESH_INTERVAL = 24 * 3600.0  # seconds until an answered port is asked about again
SA_RETRY_INTERVAL = 60.0  # seconds, doubled up to MAX_RETRY_INTERVAL; half of it is random
SA_NAME_INTERVAL = 600.0  # seconds, doubled with each answer that has no name


@dataclass(slots=True)
class _SmpPort:
    """The last answer of one port, and the time of its next query."""

    answer: Json
    failure: str | None = None  # why the last poll could not query it
    due: float = -math.inf
    queried: float = -math.inf
    answered: float = -math.inf
    tries: int = 0
    # The time of the query for a trigger that came after the last query had begun.
    triggered: float = math.inf

    def update(self, answer: Json, failure: str | None, now: float) -> None:
        """Cache an answer and set the time of the next query.

        A trigger while the query was under way stands: the answer may be of before.
        """
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
        self.due = min(self.due, self.triggered)


class SmpPoller:
    """Host.ask_smp with a cache: calling it returns the last answers.

    It raises Unavailable if no port could be queried. `ask` queries ports and may block for
    seconds; a poll that fails, as a whole or for a device, leaves the answers of other ports.
    """

    source: ClassVar[str] = "ib"

    def __init__(
        self,
        ask: Callable[[Sequence[Address]], Json],
        task: BackgroundTask[Json],
        names: SwitchNames,
    ) -> None:
        self.task = task
        self._ask = ask
        self._names = names  # as the observations derive them
        self._ports: dict[Address, _SmpPort] = {}
        self._previous: dict[Address, _SmpPort] = {}  # those of the observation before
        self._queried: tuple[Address, ...] = ()  # the poll under way

    def __call__(self, addresses: Sequence[Address]) -> Json:
        self._ports = {
            address: self._previous.get(address) or _SmpPort(unanswered(address))
            for address in addresses
        }
        ports = list(self._ports.values())
        if ports and all(port.failure for port in ports):
            raise Unavailable(str(ports[0].failure))
        return {"ports": [{**port.answer, "answered": port.answered} for port in ports]}

    def begin_cycle(self) -> None:
        self._previous, self._ports = self._ports, {}

    def observed(self, observation: Observation) -> None:  # noqa: ARG002 - it has read the names
        """Query the ports again soon whose answers have no name."""
        for address, port in self._ports.items():
            retries = self._names.retry(Answered(address, port.answered))
            if retries is not None:
                wait = doubled(RETRY_INTERVAL, REFRESH_INTERVAL, retries)
                port.due = min(port.due, port.answered + wait)

    def trigger(self, now: float, event: tuple[str, str]) -> None:  # noqa: ARG002 - any may be a new link
        self._names.trigger()
        for port in self._ports.values():  # at once, or at the end of MIN_QUERY_INTERVAL
            port.triggered = min(port.triggered, max(now, port.queried + MIN_QUERY_INTERVAL))
            port.due, port.tries = min(port.due, port.triggered), 0

    def start_due(self, now: float) -> None:
        if self.next_due() > now:
            return
        due = sorted(address for address, port in self._ports.items() if port.due <= now)
        self._queried = addresses = tuple(due)
        for address in addresses:  # the query serves all triggers so far
            port = self._ports[address]
            port.queried, port.triggered = now, math.inf
        self.task.start(lambda: self._ask(addresses))

    def collect(self, now: float) -> bool:
        answer = self.task.take()
        if answer is None:
            return False
        entries, missing = entries_of(answer)
        failed = answer.get("failed", []) if isinstance(answer, dict) else []
        for address in self._queried:
            port = self._ports.get(address)
            if port is None or math.isinf(port.queried):  # it was down meanwhile: it is new
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


def jitter(ports: Iterable[SubnetPort]) -> float:
    """Return the seconds in which all agents may ask after the same event, by their LIDs.

    The larger the fabric, the more agents ask at once.
    """
    highest = max((max(port.lid, port.sm_lid) for port in ports), default=0)
    return min(max(SA_JITTER, SA_JITTER_OF_LID * highest**2), SA_SPREAD)


@dataclass(slots=True)
class _Asked:
    """The last question about a port, and how many in a row a change has caused."""

    time: float = -math.inf
    changes: int = 0

    def earliest(self) -> float:
        """Return the earliest time of a question that a change causes."""
        wait = doubled(SA_MIN_INTERVAL, SA_MAX_INTERVAL, max(self.changes - 1, 0))
        return self.time + wait


@dataclass(slots=True)
class _SaPort:
    """The last answer about one port, and the time of the next question."""

    subnet_port: SubnetPort
    answer: Json | None = None
    is_new: bool = False  # present at the start, or seen for the first time
    due: float | None = None  # None: at a random time from now on
    has_changed: bool = False  # the next question is because of that
    answered: float = -math.inf
    tries: int = 0
    unnamed: int = 0  # answers in a row that have no name


class SaPoller:
    """Host.ask_sa with a cache: calling it returns the last answers, of the ports that have one.

    A port that has not been asked about since the start, and has not changed, has an unasked entry.
    `ask` asks the SA and may block for seconds; `random` returns a number from 0 to 1.
    """

    source: ClassVar[str] = "ib"

    def __init__(
        self,
        ask: Callable[[Sequence[SubnetPort]], Json],
        task: BackgroundTask[Json],
        names: SwitchNames,
        random: Callable[[], float],
    ) -> None:
        self.task = task
        self._ask, self._names, self._random = ask, names, random
        self._ports: dict[Address, _SaPort] = {}
        self._unread: dict[Address, _SaPort] = {}  # those that it could not ask for, and are up
        self._previous: dict[Address, _SaPort] = {}  # those of the observation before
        self._queried: tuple[Address, ...] = ()  # the poll under way
        self._asked: dict[Address, _Asked] = {}  # of ports that are down too

    def __call__(self, subnet_ports: Sequence[SubnetPort]) -> Json:
        for subnet_port in subnet_ports:
            address = subnet_port.device, subnet_port.number
            port = self._previous.get(address) or _SaPort(
                subnet_port, is_new=address not in self._asked
            )
            self._ports[address] = port
            self._asked.setdefault(address, _Asked())
            if port.subnet_port != subnet_port:
                port.subnet_port, port.due, port.tries, port.is_new = subnet_port, None, 0, False
        entries = [
            {**port.answer, "answered": port.answered} if port.answer else unanswered(address)
            for address, port in self._ports.items()
            if port.answer or port.is_new
        ]
        return {"ports": entries}

    def begin_cycle(self) -> None:
        self._previous, self._ports = self._ports | self._unread, {}

    def observed(self, observation: Observation) -> None:
        """Keep the answers about ports that are up, but whose SMPs or LIDs could not be read.

        Ask again, with back-off from SA_NAME_INTERVAL on, about ports whose far end has no name.
        The retries are counted here: SwitchNames restarts its count with each event, of which a
        node that starts Pods has hundreds a day, and an unmanaged switch never has a name.
        """
        links = observation.ib.value if isinstance(observation.ib, Seen) else ()
        by_smps = {link.interface for link in links if link.neighbors}
        up = {
            (role.device.name, role.port.number)
            for role in observation.ports
            if role.port.state in ("ACTIVE", None) and role.interface not in by_smps
        }
        self._unread = {
            address: port
            for address, port in self._previous.items()
            if address in up and address not in self._ports
        }
        for address, port in self._ports.items():
            if port.answer is None or port.answer.get("error"):
                continue
            if self._names.retry(Answered(address, port.answered)) is None:
                port.unnamed = 0
            elif port.due is not None:
                wait = doubled(SA_NAME_INTERVAL, SA_REFRESH_INTERVAL, max(port.unnamed - 1, 0))
                port.due = min(port.due, port.answered + wait)

    def trigger(self, now: float, event: tuple[str, str]) -> None:  # noqa: ARG002 - jitter needs none
        """Ask again, after SIGHUP, about the ports without a far end; about all after a freeze."""
        woke = event == ("resync", "clock")
        if event != ("signal", "SIGHUP") and not woke:
            return
        under_way = self._queried if self.task.busy else ()  # the answer may be of before
        for address, port in (self._ports | self._unread).items():
            asked = self._asked[address]
            is_answered = port.answer is not None and not port.answer.get("error")
            if woke and (is_answered or address in under_way):
                port.due, port.tries = None, 0
                continue
            if port.answer is None and asked.changes < 2:  # it is asked about soon
                continue
            if port.answer is None or port.answer.get("error"):
                port.due, port.tries, asked.changes = None, 0, 0

    def start_due(self, now: float) -> None:
        if self.next_due() > now:
            return
        start = now + jitter(port.subnet_port for port in self._ports.values()) * self._random()
        for address, port in self._ports.items():
            if port.due is None:
                port.due, port.has_changed = max(start, self._asked[address].earliest()), True
        due = {
            address: port
            for address, port in self._ports.items()
            if port.due is not None and port.due <= now
        }
        if due:
            self._queried = tuple(due)
            for address, port in due.items():
                asked = self._asked[address]
                if port.has_changed:
                    is_quiet = now >= asked.time + SA_QUIET
                    asked.changes, port.has_changed = 1 if is_quiet else asked.changes + 1, False
                asked.time = now
            subnet_ports = [port.subnet_port for port in due.values()]
            self.task.start(lambda: self._ask(subnet_ports))

    def collect(self, now: float) -> bool:
        answer = self.task.take()
        if answer is None:
            return False
        entries, missing = entries_of(answer)
        for address in self._queried:
            if (port := self._ports.get(address) or self._unread.get(address)) is None:
                continue
            port.answer = entries.get(address) or unanswered(address, missing)
            port.answered = now
            if port.due is None:  # it has another LID, or SIGHUP came meanwhile
                continue
            if port.answer.get("error"):
                wait = doubled(SA_RETRY_INTERVAL, MAX_RETRY_INTERVAL, port.tries)
                port.due = now + wait * (0.5 + 0.5 * self._random())
                if self._asked[address].changes > 1:
                    port.due = max(port.due, self._asked[address].earliest())
                port.tries += 1
            else:
                port.due = now + SA_REFRESH_INTERVAL * (0.9 + 0.1 * self._random())
                port.tries, port.unnamed = 0, port.unnamed + 1
        return True

    def next_due(self) -> float:
        if self.task.busy:
            return math.inf
        times = [-math.inf if port.due is None else port.due for port in self._ports.values()]
        return min(times, default=math.inf)


def entries_of(answer: Json | Exception) -> tuple[dict[Address, Json], str]:
    """Return the entries of a helper's answer, and why a port has none."""
    try:
        if isinstance(answer, Exception):
            return {}, str(answer)
        return by_port(answer), "the helper's answer has no entry for this port"
    except Malformed as error:
        return {}, str(error)
