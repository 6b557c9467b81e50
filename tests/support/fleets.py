"""A generator of fleets: regular and irregular wiring, faults put into it, and the list of these.

It shares no code with the agent.

    fleet = Fleet(RAIL, 1024, style=INFINIBAND, seed=1)
    faults = fleet.inject(rate=0.01, kinds=[SWAP_WITHIN])
    model(fleet)                        # of tests/support/fleet_models.py

What is stored is the faults only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

NOW = 1_800_000_000

INFINIBAND, ETHERNET, CUMULUS, SONIC = "infiniband", "ethernet", "cumulus", "sonic"
STYLES = (INFINIBAND, ETHERNET, CUMULUS, SONIC)

SWAP_WITHIN, SWAP_BETWEEN, SHIFT = "swap-within", "swap-between", "shift"
PULLED, MOVED, MIRRORED, LEAF_DOWN = "pulled", "moved", "mirrored", "leaf-down"
KINDS = (SWAP_WITHIN, SWAP_BETWEEN, SHIFT, PULLED, MOVED)  # of single cables, at any rate

MAX_TRIES = 30  # in a row, for a fault that touches no other
SPARE = 200  # the first port of a leaf that no shape uses


class Cable(NamedTuple):
    """A port of a node."""

    node: int
    slot: int


class End(NamedTuple):
    """A port of a leaf."""

    leaf: int
    port: int


class Shape(NamedTuple):
    """A way to wire nodes; the leaf and the port of (node, slot), or None for no cable."""

    name: str
    slots: int
    group: int  # nodes
    end: Callable[[int, int, int], End | None]  # node, slot, seed
    addresses: Callable[[int], int] = lambda _: 0  # kind of node: another one, other PCI addresses


class Fault(NamedTuple):
    """An injected fault: each cable with its place before and after."""

    kind: str
    before: dict[Cable, End]
    after: dict[Cable, End | None]


def _rail(node: int, slot: int, _: int) -> End:
    return End(node // 32 * 8 + slot, node % 32 + 1)


def _fat_tree(node: int, slot: int, _: int) -> End:
    return End(node // 16 * 2 + slot // 4, node % 16 * 4 + slot % 4 + 1)


def _single_leaf(node: int, slot: int, _: int) -> End:
    return End(node // 18, node % 18 * 4 + slot + 1)


def _dual_plane(node: int, slot: int, _: int) -> End:
    return End(node // 32 * 2 + slot, node % 32 + 1)


def _random(*key: int) -> random.Random:
    return random.Random(repr(key))  # noqa: S311 - reproducible on purpose


def _irregular(node: int, slot: int, seed: int) -> End:
    chance = _random(seed, node, slot)
    return End(chance.randrange(6), node * 8 + slot + 1)


def _half_built(node: int, slot: int, seed: int) -> End | None:
    """A rail-optimized fleet in which half of the nodes of a group have half of their cables."""
    is_cabled = _random(seed, node).random() < 0.5 or slot in (0, 1, 2, 3)
    return _rail(node, slot, seed) if is_cabled else None


def _two_habits(node: int, slot: int, seed: int) -> End:
    """Two crews: every node has its cables in one of two orders."""
    is_other = _random(seed, node).random() < 0.5
    return _rail(node, 7 - slot if is_other else slot, seed)


def _mixed(node: int, slot: int, seed: int) -> End:
    """Two generations in turn on the same leaves, the second in the reverse order."""
    return _rail(node, 7 - slot if node % 2 else slot, seed)


RAIL = Shape("rail-optimized", 8, 32, _rail)
FAT_TREE = Shape("fat tree", 8, 16, _fat_tree)
SINGLE_LEAF = Shape("single leaf", 4, 18, _single_leaf)
DUAL_PLANE = Shape("dual-plane", 2, 32, _dual_plane)
MIXED = Shape("mixed generations", 8, 32, _mixed, lambda node: node % 2)
HALF_BUILT = Shape("half-built", 8, 32, _half_built)
TWO_HABITS = Shape("two habits", 8, 32, _two_habits)
IRREGULAR = Shape("irregular", 4, 16, _irregular)
REGULAR = (RAIL, FAT_TREE, SINGLE_LEAF, DUAL_PLANE, MIXED)


STORAGE_LEAVES = 10_000  # the number of the first


def with_storage(unit: int, rails: int, cables: int, leaf: int) -> Shape:
    """Return units of rails, whose nodes have cables to storage leaves of `leaf` nodes, too."""

    def end(node: int, slot: int, _: int) -> End:
        if slot < rails:
            return End(node // unit * rails + slot, node % unit + 1)
        place = node % leaf * cables + slot - rails
        return End(STORAGE_LEAVES + node // leaf, place + 1)

    return Shape(f"{rails}+{cables}, units of {unit}", rails + cables, unit, end)


def storage_leaves(unit: int) -> list[int]:
    """Return how many nodes a storage leaf may have: one more than a unit, up to twice and 8."""
    sizes = {unit + more for more in (1, 2, 3, 4, 6, 8, unit // 2, unit - 1, unit, unit + 3)}
    return sorted({*sizes, 2 * unit + 8})


class Fleet:
    """A fleet of `size` nodes."""

    def __init__(self, shape: Shape, size: int, *, style: str = INFINIBAND, seed: int = 0) -> None:
        self.shape = shape
        self.size = size
        self.style = style
        self.seed = seed
        self.faults: list[Fault] = []
        self.silent: set[int] = set()  # nodes whose agent has not reported for a day
        self.ends: dict[Cable, End | None] = {}  # of the cables of faults
        self._random = _random(seed, size)
        self._spare = SPARE

    @property
    def cables(self) -> int:
        """The number of ports."""
        return self.size * self.shape.slots

    def wired(self, cable: Cable) -> End | None:
        """Return the far end as it was built."""
        return self.shape.end(*cable, self.seed)

    def interface(self, cable: Cable) -> str:
        """Return the name of a port."""
        return interface_name(cable.slot, self.shape.addresses(cable.node))

    def inject(self, rate: float, kinds: Sequence[str] = KINDS) -> list[Fault]:
        """Put faults of these kinds in turn into the fleet, until `rate` of its cables are wrong.

        No cable is in two faults.
        """
        wanted, failed = max(1, round(rate * self.cables)), 0
        while len(self.ends) < wanted and failed < MAX_TRIES:
            fault = self._fault(kinds[(len(self.faults) + failed) % len(kinds)])
            if fault and not fault.before.keys() & self.ends.keys():
                self.faults.append(fault)
                self.ends.update(fault.after)
                failed = 0
            else:
                failed += 1
        return self.faults

    def _fault(self, kind: str) -> Fault | None:
        """Return a fault, None if the chosen cables are no good."""
        first = self._random.randrange(self.size)
        cables = self._cables(kind, first)
        before = {cable: end for cable in cables if (end := self.wired(cable))}
        if len(before) < len(cables):
            return None
        after = self._after(kind, cables, [*before.values()])
        changed = {cable: end for cable, end in after.items() if end != before[cable]}
        if not changed:
            return None
        return Fault(kind, {cable: before[cable] for cable in changed}, changed)

    def _cables(self, kind: str, node: int) -> list[Cable]:
        slots = range(self.shape.slots)
        if kind == SWAP_WITHIN:
            return [Cable(node, slot) for slot in sorted(self._random.sample(slots, 2))]
        if kind == SWAP_BETWEEN:
            slot, group = self._random.choice(slots), self.shape.group
            near = [one for one in (node - group, node + group) if one in range(self.size)]
            return [
                Cable(one, slot) for one in (node, *self._random.sample(near, min(1, len(near))))
            ]
        if kind == SHIFT:
            return [Cable(node, slot) for slot in slots]
        if kind == LEAF_DOWN:
            leaf = self.shape.end(node, 0, self.seed)
            around = range(max(0, node - 32), min(self.size, node + 32))
            every = (Cable(one, slot) for one in around for slot in slots)
            return [one for one in every if (end := self.wired(one)) and end[:1] == leaf[:1]]  # type: ignore[index]
        if kind == MIRRORED:
            half = self.shape.group // 2
            start = node // half * half
            nodes = range(start, min(start + half, self.size))
            return [Cable(one, slot) for one in nodes for slot in slots]
        return [Cable(node, self._random.choice(slots))]

    def _after(self, kind: str, cables: list[Cable], ends: list[End]) -> dict[Cable, End | None]:
        places: Sequence[End | None] = ends
        if kind in (SWAP_WITHIN, SWAP_BETWEEN):
            places = ends[::-1]
        elif kind == SHIFT:
            places = [*ends[1:], ends[0]]
        elif kind in (PULLED, LEAF_DOWN):
            places = [None] * len(ends)
        elif kind == MOVED:
            places = [self._elsewhere(ends[0])]
        elif kind == MIRRORED:
            slots = self.shape.slots
            nodes = [ends[index : index + slots] for index in range(0, len(ends), slots)]
            places = [end for node in reversed(nodes) for end in node]
        return dict(zip(cables, places, strict=True))

    def _elsewhere(self, end: End) -> End:
        """Return a free port of another leaf."""
        self._spare += 1
        last = self.shape.end(self.size - 1, self.shape.slots - 1, self.seed)
        leaves = [leaf for leaf in range((last.leaf if last else 0) + 1) if leaf != end.leaf]
        return End(self._random.choice(leaves) if leaves else end.leaf + 1, self._spare)


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"gpu-{number:05}"


def interface_name(slot: int, kind: int = 0) -> str:
    """Return the name of an interface."""
    return f"ibp{slot}" if kind else f"mlx5_{slot}"


class Names(NamedTuple):
    """The names of a leaf's port."""

    id: str  # node GUID, or Chassis ID
    name: str  # as a label's value, before it is encoded
    port_id: str
    port_name: str | None


def names(end: End, style: str) -> Names:
    """Return what a style calls a port."""
    leaf, port = end
    if style == INFINIBAND:
        name = f"L90.{leaf // 8 + 1}.{leaf % 8 + 1}"
        guid = f"{0xB0CF0E0300D40000 + leaf * 64:016x}"
        return Names(guid, name, str(port), None)
    chassis = "00:1c:73:" + ":".join(f"{leaf >> shift & 255:02x}" for shift in (16, 8, 0))
    name = f"leaf{leaf + 1:02}.dc1"
    texts = {
        ETHERNET: (f"Ethernet1/{port}", f"Ethernet1/{port}"),
        CUMULUS: (f"swp{port}", f"swp{port}"),
        SONIC: (f"02:00:00:00:{port >> 8:02x}:{port & 255:02x}", f"Ethernet{port * 4 - 4}"),
    }
    return Names(chassis, name, *texts[style])
