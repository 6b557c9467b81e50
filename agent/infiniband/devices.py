"""Query ports so that a device that blocks costs its own ports only.

libibumad opens devices one after another, so one umad_open_port() that blocks in the kernel holds
up all ports of the process that calls it.

Invariants:
- One process queries all ports as long as every device answers: its start costs more than a round.
- If that process is late or dies, each of its devices is queried in a process of its own, at most
  MAX_PROCESSES at a time.
- A device whose own process fails is suspect. It is left out of the common process and queried in
  its own until that answers, so the next round of the others is not late again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

from agent.errors import Malformed, Unavailable
from agent.reasons import NeighborReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Answer = dict[str, Any]
    Address = tuple[str, int]  # device, port
    Group = tuple[Address, ...]  # the ports that one process queries
    Entries = dict[Address, Answer]
    Outcome = Entries | Unavailable
    Outcomes = dict[Group, Outcome]
    Work = Callable[[], None]

MAX_PROCESSES = 4


class DeviceQueries:
    """Host.ask_smp over `query`, which runs one process for a group of ports."""

    def __init__(self, query: Callable[[Group], Answer]) -> None:
        self._query = query
        self._suspects: set[str] = set()

    def __call__(self, ports: Sequence[Address]) -> Answer:
        """Query ports; return {"ports": [ENTRY, ...], "failed": [[device, port], ...]}.

        An ENTRY is that of the SMP helper (agent/helper/main.py). "failed" lists the ports whose
        process was late or died; their entries are `unanswered`. Raises Unavailable if all
        processes failed.
        """
        outcomes = self._retried(self._run(self._groups(ports)))
        self._remember(outcomes)
        return _merged(ports, outcomes)

    def _groups(self, ports: Sequence[Address]) -> list[Group]:
        """Return the ports of the common process, and those of each suspect."""
        common = tuple(port for port in ports if port[0] not in self._suspects)
        suspects = _by_device(port for port in ports if port[0] in self._suspects)
        return [common, *suspects] if common else suspects

    def _retried(self, outcomes: Outcomes) -> Outcomes:
        """Replace the failure of several devices by the outcome of each."""
        for group in _failed_together(outcomes):
            del outcomes[group]
            outcomes |= self._run(_by_device(group))
        return outcomes

    def _run(self, groups: list[Group]) -> Outcomes:
        """Query groups, at most MAX_PROCESSES at a time."""
        waiting = deque(groups)
        outcomes: Outcomes = {}
        count = min(MAX_PROCESSES, len(groups))
        _run_in_threads(count, lambda: self._query_all(waiting, outcomes))
        return outcomes

    def _query_all(self, waiting: deque[Group], outcomes: Outcomes) -> None:
        for group in _taken(waiting):
            outcomes[group] = self._outcome(group)

    def _outcome(self, group: Group) -> Outcome:
        try:
            return by_port(self._query(group))
        except (Malformed, Unavailable) as error:
            return Unavailable(str(error))

    def _remember(self, outcomes: Outcomes) -> None:
        """Suspect the devices whose own process failed, and no other that was queried."""
        for group in outcomes:
            self._suspects -= _devices(group)
        for group in _failures(outcomes):
            self._suspects |= _devices(group)


def _taken(waiting: deque[Group]) -> Iterator[Group]:
    """Take groups until none is left; threads may do so at the same time."""
    with suppress(IndexError):
        while True:
            yield waiting.popleft()


def _run_in_threads(count: int, work: Work) -> None:
    """Run `work` in `count` threads at a time, or in fewer; the calling thread is one of them."""
    threads = [_started(work) for _ in range(count - 1)]
    work()
    for thread in filter(None, threads):
        thread.join()


def _started(work: Work) -> Thread | None:
    thread = Thread(target=work, name="smp", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no more threads: the others take its groups
        return None
    return thread


def by_port(answer: Answer) -> Entries:
    """Return the entries of an answer about ports; raises Malformed."""
    try:
        return {_address(entry): dict(entry) for entry in answer["ports"]}
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"malformed answer of the SMP helper: {error!r}") from error


def _address(entry: Answer) -> Address:
    return entry["device"], entry["port"]


def unanswered(port: Address, text: str | None = None) -> Answer:
    """Return the entry of a port that has not been queried, or whose process failed with `text`."""
    device, number = port
    return {
        "device": device,
        "port": number,
        "exchanges": [],
        "error": NeighborReason.NO_ANSWER,
        "text": text,
    }


def _devices(group: Group) -> set[str]:
    return {device for device, _ in group}


def _by_device(ports: Iterable[Address]) -> list[Group]:
    groups: defaultdict[str, list[Address]] = defaultdict(list)
    for port in ports:
        groups[port[0]].append(port)
    return [tuple(group) for group in groups.values()]


def _failures(outcomes: Outcomes) -> dict[Group, Unavailable]:
    return {group: error for group, error in outcomes.items() if isinstance(error, Unavailable)}


def _failed_together(outcomes: Outcomes) -> list[Group]:
    return [group for group in _failures(outcomes) if len(_devices(group)) > 1]


def _merged(ports: Sequence[Address], outcomes: Outcomes) -> Answer:
    failures = _failures(outcomes)
    if failures and len(failures) == len(outcomes):
        raise next(iter(failures.values()))
    entries = _entries(outcomes)
    failed = [list(port) for group in failures for port in group]
    return {"ports": [entries[port] for port in ports if port in entries], "failed": failed}


def _entries(outcomes: Outcomes) -> Entries:
    entries: Entries = {}
    for group, outcome in outcomes.items():
        entries |= _group_entries(group, outcome)
    return entries


def _group_entries(group: Group, outcome: Outcome) -> Entries:
    if isinstance(outcome, Unavailable):
        return {port: unanswered(port, str(outcome)) for port in group}
    return outcome
