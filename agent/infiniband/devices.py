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

import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent.errors import Malformed, Unavailable
from agent.model import NeighborReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Answer = dict[str, Any]
    Address = tuple[str, int]  # device, port
    Group = tuple[Address, ...]  # the ports that one process queries
    Outcome = dict[Address, Answer] | Unavailable

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
        common = tuple(port for port in ports if port[0] not in self._suspects)
        groups = _by_device(port for port in ports if port[0] in self._suspects)
        outcomes = self._run([common, *groups] if common else groups)
        devices = _by_device(common)
        if len(devices) > 1 and isinstance(outcomes[common], Unavailable):
            del outcomes[common]
            outcomes |= self._run(devices)
        self._remember(outcomes)
        return _merged(ports, outcomes)

    def _run(self, groups: list[Group]) -> dict[Group, Outcome]:
        """Query groups, at most MAX_PROCESSES at a time; the calling thread takes part."""
        waiting = deque(groups)
        outcomes: dict[Group, Outcome] = {}

        def work() -> None:
            with suppress(IndexError):  # nothing is left
                while True:
                    group = waiting.popleft()
                    outcomes[group] = self._outcome(group)

        threads = []
        for _ in range(min(MAX_PROCESSES, len(groups)) - 1):
            thread = threading.Thread(target=work, name="smp", daemon=True)
            with suppress(RuntimeError):  # no more threads: the others take its groups
                thread.start()
                threads.append(thread)
        work()
        for thread in threads:
            thread.join()
        return outcomes

    def _outcome(self, group: Group) -> Outcome:
        try:
            return by_port(self._query(group))
        except (Malformed, Unavailable) as error:
            return Unavailable(str(error))

    def _remember(self, outcomes: dict[Group, Outcome]) -> None:
        for group, outcome in outcomes.items():
            devices = {device for device, _ in group}
            if not isinstance(outcome, Unavailable):
                self._suspects -= devices
            elif len(devices) == 1:
                self._suspects |= devices


def by_port(answer: Answer) -> dict[Address, Answer]:
    """Return the entries of an answer about ports; raises Malformed."""
    try:
        return {(entry["device"], entry["port"]): dict(entry) for entry in answer["ports"]}
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"malformed answer of the SMP helper: {error!r}") from error


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


def _by_device(ports: Iterable[Address]) -> list[Group]:
    groups: dict[str, Group] = {}
    for port in ports:
        groups[port[0]] = (*groups.get(port[0], ()), port)
    return list(groups.values())


def _merged(ports: Sequence[Address], outcomes: dict[Group, Outcome]) -> Answer:
    failures = [outcome for outcome in outcomes.values() if isinstance(outcome, Unavailable)]
    if failures and len(failures) == len(outcomes):
        raise failures[0]
    entries: dict[Address, Answer] = {}
    failed: list[list[str | int]] = []
    for group, outcome in outcomes.items():
        if isinstance(outcome, Unavailable):
            entries |= {port: unanswered(port, str(outcome)) for port in group}
            failed += [list(port) for port in group]
        else:
            entries |= outcome
    return {"ports": [entries[port] for port in ports if port in entries], "failed": failed}
