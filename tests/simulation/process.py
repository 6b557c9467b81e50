"""Faults of the agent's own process, its log, and its clocks."""

from __future__ import annotations

from functools import partial
from random import Random

from agent.events.event import Event
from tests.simulation.sensors import lasting
from tests.simulation.world import World


def disk_full(world: World, rng: Random) -> float:
    """Block the log's pipe."""
    seconds = lasting(rng)
    world.note(f"the log is full for {seconds} s")

    def fill(by: int) -> None:
        world.log_full += by

    return world.for_a_while(seconds, fill)


def wall_clock_jumps(world: World, rng: Random) -> float:
    """Set the wall clock by hours, and back."""
    offset, seconds = rng.choice([-86400.0, -7200.0, 3600.0, 86400.0, 1e9]), lasting(rng)
    world.note(f"the clock on the wall jumps by {offset:g} s for {seconds} s")

    def jump(by: int) -> None:
        world.wall_offset += by * offset

    return world.for_a_while(seconds, jump)


def suspended(world: World, rng: Random) -> float:
    """Suspend the machine for hours."""
    seconds = rng.choice([100.0, 3600.0, 30000.0])
    world.note(f"suspended for {seconds} s")
    world.suspend(seconds)
    return 0.0


def hangup(world: World, _rng: Random) -> float:
    """Send SIGHUP."""
    world.note("SIGHUP")
    world.wake(Event("signal", "SIGHUP"))
    return 0.0


def killed(world: World, rng: Random) -> float:
    """Kill the agent as `kill -9` does, and start it again."""
    world.rest = rng.choice([0.5, 5.0, 60.0])
    world.note(f"kill -9, back in {world.rest} s")
    world.at(0.0, world.kill)
    return world.rest + 1.0


def crash_loop(world: World, rng: Random) -> float:
    """Kill it several times in a row."""
    count, every = rng.randrange(2, 8), rng.choice([7.0, 40.0, 300.0])
    for number in range(count):
        world.at(number * every, partial(killed, world, rng))
    return count * every + 60.0


def rebooted(world: World, rng: Random) -> float:
    """Reboot the machine with the same hardware."""
    world.node.boot += 1
    world.note(f"reboot {world.node.boot}")
    world.changed(Event("resync", "boot"))
    return killed(world, rng)
