"""One scenario: a machine and its faults, drawn from a seed, and the report."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tests.simulation.assembly import Variant
from tests.simulation.catalog import FAULTS, Fault, draw
from tests.simulation.hardware import new_hca, new_peer
from tests.simulation.node import SUB_DEVICE, SWITCH_MANAGEMENT, VIRTUAL, Gpus, Hca, Node
from tests.simulation.world import World

SPEAKS = 30.0  # seconds between two frames of a switch
MOST_TOLD = 400  # lines of a timeline that are shown


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a seed."""

    seed: int
    violations: tuple[str, ...]
    timeline: tuple[str, ...]
    counts: Counter[str]
    seconds: float  # simulated
    combination: str = ""  # of combinations.py, in place of the seed's scenario

    def told(self) -> str:
        """Return the violations, the last lines of the timeline, and the command that
        repeats them.
        """
        lines = [
            *self.violations[:10],
            "",
            *self.timeline[-MOST_TOLD:],
            "",
            f"again: {self.command}",
        ]
        name = self.combination or f"seed {self.seed}"
        return "\n".join([f"{name}: {len(self.violations)} violations", *lines])

    @property
    def command(self) -> str:
        if self.combination:
            return f'python -m tests.simulation --combinations "{self.combination}" --timeline'
        return f"python -m tests.simulation --seed {self.seed} --scenarios 1 --timeline"


def machine(rng: random.Random) -> Node:
    """Draw a node with InfiniBand, with RoCE, or with neither."""
    infiniband, count = rng.random() < 0.5, rng.choice([0, 1, 2, 2, 3, 4, 8])
    gbps = rng.choice([100, 200, 400])
    hcas = [new_hca(rng, number, gbps, infiniband=infiniband) for number in range(count)]
    front = None
    if hcas and rng.random() < 0.6:
        front = replace(
            new_hca(rng, 40, 100, infiniband=False),
            name="mlx5_front",
            netdev="front0",
            backend=False,
        )
    return Node(hcas, Gpus(rng.choice([0, 0, 1, 4])), front=front)


def no_data_ports(node: Node, rng: random.Random) -> list[Hca]:
    """Devices that are no host data ports and look as if they were: up, and in the class.

    HGX boards show the functions that manage their NVSwitches as those of one PCI device.
    """
    dropped: list[Hca] = []
    gbps = node.hcas[0].gbps if node.hcas else 400
    if rng.random() < 0.4:
        for number in range(4):
            hca = new_hca(rng, 48, gbps, infiniband=True)
            name, pci = f"mlx5_sw{number}", f"{hca.pci[:-1]}{number}"
            dropped.append(replace(hca, name=name, pci=pci, backend=False, drop=SWITCH_MANAGEMENT))
    for parent in node.hcas:
        own = replace(parent, backend=False, peer=new_peer(rng))
        if rng.random() < 0.2:
            name, pci = f"{parent.name}v0", f"{parent.pci[:-1]}1"
            netdev = parent.netdev and f"{parent.netdev}v0"
            dropped.append(replace(own, name=name, pci=pci, netdev=netdev, drop=VIRTUAL))
        if parent.infiniband and rng.random() < 0.2:
            name = f"smi{parent.name.removeprefix('ibp')}"
            dropped.append(replace(own, name=name, drop=SUB_DEVICE, parent=parent))
    return dropped


def run(
    seed: int,
    variant: Variant | None = None,
    faults: Sequence[Fault] = (),
    catalog: Mapping[Fault, int] = FAULTS,
) -> Report:
    """Run a scenario; `faults` replace those that the seed draws from the catalog."""
    rng = random.Random(seed)  # noqa: S311 - a simulation
    node = machine(rng)
    node.dropped = no_data_ports(node, random.Random(f"{seed} dropped"))  # noqa: S311
    world = World(node, seed, variant)
    span = rng.choice([300.0, 900.0, 3600.0])
    count = rng.randrange(1, 9)
    return play(world, seed, rng, faults or [draw(rng, catalog) for _ in range(count)], span)


def play(
    world: World, seed: int, rng: random.Random, drawn: Sequence[Fault], span: float
) -> Report:
    """Start these faults at random times within `span` seconds, and return the report."""
    for number, fault in enumerate(drawn):
        world.at(
            rng.uniform(20.0, span),
            partial(begin, world, fault, random.Random(f"{seed} {number}")),  # noqa: S311 - a simulation
        )
    world.at(rng.uniform(0, SPEAKS), partial(_tick, world))
    world.at(span, partial(_conclude, world))
    world.run()
    judge = world.judge
    judge.counts.update({"turns": world.turns, "looks": world.sysfs.looks, "faults": len(drawn)})
    return Report(seed, tuple(judge.violations), tuple(judge.timeline), judge.counts, world.time)


def begin(world: World, fault: Fault, rng: random.Random) -> None:
    """Start a fault, and wait for its end before the check at the end."""
    world.judge.counts[f"fault {fault.__name__}"] += 1
    seconds = fault(world, rng)
    world.active += 1

    def over() -> None:
        world.active -= 1

    world.at(seconds + 1.0, over)


def _tick(world: World) -> None:
    """Send an LLDP frame from every switch."""
    for hca in world.node.all():
        if not hca.silent:
            world.speak(hca)
    world.at(SPEAKS, partial(_tick, world))


def _conclude(world: World) -> None:
    """Wait until no fault is active, then for the quiet period, then check the Node.

    What waits for the agent's next request may begin later, and needs a period of its own.
    """
    if world.active:
        world.at(30.0, partial(_conclude, world))
        return
    quiet = world.quiet
    world.note(f"all is quiet, for {quiet:g} s")

    def end() -> None:
        if world.active or world.quiet > quiet:
            _conclude(world)
        else:
            world.finish()

    world.at(quiet, end)
