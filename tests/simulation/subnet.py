"""Faults of the subnet manager, for a node whose ports refuse SMPs."""

from __future__ import annotations

from random import Random

from agent.events.event import Event
from tests.simulation.world import World

LONGEST = 3 * 3700.0  # seconds: the failure, as long again, and the hour of a link that flapped


def _trouble(world: World, rng: Random, word: str) -> float:
    seconds = rng.choice([20.0, 300.0, 1500.0])
    world.note(f"subnet manager: {word} for {seconds} s")
    world.needs(LONGEST)

    def become(by: int) -> None:
        world.node.sa_trouble = word if by > 0 else ""
        world.node.smp_trouble += by

    return world.for_a_while(seconds, become)


def away(world: World, rng: Random) -> float:
    """End the subnet manager for a while."""
    return _trouble(world, rng, "away")


def busy(world: World, rng: Random) -> float:
    """Have it refuse every question with the status busy."""
    return _trouble(world, rng, "busy")


def lids_moved(world: World, rng: Random) -> float:  # noqa: ARG001 - a fault
    """Assign other LIDs to all ports, as a subnet manager without its file of LIDs does."""
    world.note("subnet manager: other LIDs")
    world.needs(LONGEST)
    world.node.lids += 1
    world.changed(Event("resync", "links"))
    return 0.0
