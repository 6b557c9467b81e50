"""A scenario of `bwagent run`: steps taken in the emulated machine while its Node is watched
outside.

    the test's steps --orders--> RunningNode, inside        (remote_calls.py, running_node.py)
                                   |  bwagent run
    Scenario.versions <-- Timeline <--- Node, on the API server    (timeline.py)

A step is over when the Node is as expected, or its time is over. Versions of the Node from then to
the end of the next step count for that one, so a late change is found without waiting for it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.support.qemu.machine import USER_NETWORK, Machine
from tests.support.qemu.remote_calls import Desk
from tests.support.qemu.timeline import Fact, Facts, Timeline, Version

REPO = Path(__file__).parents[3]
LIMIT = 120.0  # seconds for the Node to carry its labels; benchmarks measure the time
HCA_ON_THE_BUS = (
    *("-blockdev", "null-co,node-name=nothing,read-zeroes=on"),
    *(
        "-device",
        "virtio-blk-pci,drive=nothing,class=0x0207",
    ),  # include/linux/pci_ids.h: PCI_CLASS_NETWORK_INFINIBAND
)


@dataclass(frozen=True, slots=True)
class Rest:
    """A pause of a random length between these, in seconds."""

    least: float
    most: float


Order = tuple[Any, ...] | Rest  # or a verb of RunningNode with its arguments


@dataclass(frozen=True, slots=True)
class Step:
    """A command, the facts of the Node expected in the end, and those permitted on the way (see
    `timeline.faults`).
    """

    name: str
    orders: Sequence[Order]
    after: Facts
    via: Mapping[str, Sequence[Fact]] = field(default_factory=dict)
    aside: Sequence[str] = ()


@dataclass(slots=True)
class Scenario:
    """The steps taken, and the versions of the Node meanwhile."""

    timeline: Timeline
    folder: Path
    random: Random
    node: str
    account: Path  # what a Pod has of its service account
    port: int | None  # of the API server
    versions: dict[str, list[Version]] = field(
        default_factory=dict
    )  # by step: its versions, after the last one before
    began: dict[str, float] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)  # the last result of a step
    _last: int = 0  # the last version that the last step has seen

    def boot(self, name: str, cables: Sequence[tuple[str, ...]], steps: Sequence[Step]) -> None:
        """Boot the machine, plug in the cables, take the steps, and turn it off."""
        self.timeline.note(name)
        folder = self.folder / name
        folder.mkdir()
        node = f"tests.support.qemu.running_node {self.node} {self.account} {self.port}"
        command = f'exec "$PYTHON" -m {node}'
        env = {"PYTHON": sys.executable, "PYTHONPATH": str(REPO)}
        machine = Machine(folder, (*USER_NETWORK, *HCA_ON_THE_BUS))
        # Switches and cables come up before the first step.
        limit = 2 * LIMIT * (1 + len(steps))
        with self._explained(), Desk(machine, command, env, timeout=limit) as desk:
            desk.order("plug", *cables)
            for step in steps:
                self._take(desk, step)

    def _take(self, desk: Desk, step: Step) -> None:
        self.began[step.name] = self.timeline.note(step.name)
        for order in step.orders:
            self.results[step.name] = self._do(desk, order)
        judged = without(step.after, *step.aside)
        self.timeline.until(lambda version: without(version.facts, *step.aside) == judged, LIMIT)
        before, self._last = self._last, len(self.timeline.versions) - 1
        self.versions[step.name] = self.timeline.versions[before : self._last + 1]

    def _do(self, desk: Desk, order: Order) -> Any:
        if isinstance(order, Rest):
            seconds = self.random.uniform(order.least, order.most)
            self.timeline.note(f"rest {seconds:.2f} s")
            return time.sleep(seconds)
        self.timeline.note(" ".join(map(str, order)))
        return desk.order(*order)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Add the timeline to an error."""
        try:
            yield
        except Exception as error:
            error.add_note(str(self))
            raise

    def logs(self) -> dict[str, str]:
        """Return the log of each agent."""
        files = sorted(self.folder.glob("*/agent-*.log"))
        return {str(file.relative_to(self.folder)): file.read_text() for file in files}

    def __str__(self) -> str:
        return "\n".join(
            ["", str(self.timeline), *(f"{name}:\n{text}" for name, text in self.logs().items())]
        )


def without(facts: Facts, *names: str) -> dict[str, str]:
    """Return the facts without these."""
    return {name: value for name, value in facts.items() if name not in names}
