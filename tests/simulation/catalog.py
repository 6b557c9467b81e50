"""The catalog of faults: one function each, with its weight in a draw.

A fault is called when it begins, changes the world, and schedules the return to normal; it returns
the number of seconds that takes. It draws its details from the given generator, so that a seed
determines the scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from tests.simulation import (
    alterations,
    api_faults,
    hardware,
    no_backend,
    process,
    sensors,
    switches,
)
from tests.simulation.world import World

Fault = Callable[[World, Random], float]


EARLIER: dict[Fault, int] = {  # those of the seeds of test_faults.FOUND
    hardware.link_flap: 6,
    hardware.link_flaps: 2,
    hardware.cable_moved: 4,
    switches.switch_renamed: 2,
    switches.switch_silent: 3,
    switches.description_lost: 4,
    switches.switch_boots: 3,
    switches.switch_says_goodbye: 2,
    switches.odd_ttl: 2,
    switches.odd_frame: 2,
    switches.second_neighbor: 2,
    switches.flood: 2,
    hardware.subnet_not_ready: 2,
    hardware.device_removed: 3,
    hardware.device_renamed: 3,
    hardware.driver_reloads: 4,
    hardware.driver_off: 1,
    hardware.device_vanishes: 3,
    hardware.netdev_lent: 3,
    hardware.fabric_state: 4,
    sensors.attribute_fails: 8,
    sensors.attribute_is_garbage: 6,
    sensors.device_fails: 3,
    sensors.device_blocks: 3,
    no_backend.attribute_fails: 6,
    no_backend.device_fails: 3,
    sensors.class_fails: 2,
    sensors.out_of_descriptors: 2,
    sensors.out_of_memory: 2,
    sensors.out_of_threads: 1,
    sensors.nvml_fails: 4,
    sensors.smp_fails: 4,
    sensors.ears_die: 3,
    sensors.messages_lost: 3,
    sensors.sockets_die: 2,
    process.disk_full: 2,
    process.wall_clock_jumps: 2,
    process.suspended: 2,
    process.hangup: 1,
    process.killed: 4,
    process.crash_loop: 1,
    process.rebooted: 2,
    api_faults.refuses: 6,
    api_faults.flaky: 3,
    api_faults.dead_for_an_hour: 1,
    api_faults.slow: 2,
    api_faults.helper_dies: 2,
    api_faults.webhook_denies: 3,
    api_faults.others_write: 4,
    api_faults.others_race: 3,
    api_faults.others_hold_accelerator: 2,
    api_faults.expected_half_changes: 2,
    api_faults.node_recreated: 2,
    api_faults.second_agent: 2,
}


FAULTS: dict[Fault, int] = EARLIER | {
    alterations.two_stations: 3,
    alterations.bridged: 3,
    alterations.virtual_functions: 3,
    alterations.card_replaced: 3,
    alterations.moved_while_frozen: 3,
}


def draw(rng: Random, catalog: Mapping[Fault, int] = FAULTS) -> Fault:
    """Draw one fault."""
    return rng.choices(list(catalog), list(catalog.values()))[0]
