"""The reason of a changed label is the cause of that change: label rows by kinds of change."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from agent.events.event import Event
from tests.support.kernel_tree import HOME, bdf, card, rails
from tests.support.nodes import PREFIX
from tests.support.running import HUP, World
from tests.support.smps import far_end

KEYS = {
    "flavor": f"{PREFIX}/flavor",
    "speed": f"{PREFIX}/speed.current",
    "device": f"{PREFIX}/neighbors.current.ibp1.device",
    "leaves": f"{PREFIX}/leaves.current",
    "group": f"{PREFIX}/leafgroup.current",
}
MOVED = Event("device", "")
Do = Callable[[World], object]


class Switches:
    """A leaf for each HCA, `leaf-N` of ibpN; a cable may move."""

    def __init__(self) -> None:
        self.moved: dict[str, int] = {}

    def __call__(self, address: tuple[str, int]) -> dict[str, Any]:
        number = self.moved.get(address[0], int(address[0][-1]))
        return far_end(address, 0x10 + number, f"leaf-{number}")


def file(number: int, name: str) -> str:
    return f"{HOME}/{bdf(number)}/infiniband/ibp{number}/ports/1/{name}"


def write(name: str, text: bytes) -> Do:
    return lambda world: world.write(file(1, name), text)


def unplug(world: World) -> None:
    world.remove(f"{HOME}/{bdf(1)}", "sys/class/infiniband/ibp1", f"sys/bus/pci/devices/{bdf(1)}")


def move(world: World) -> None:
    world.smp.moved.update(ibp1=7)  # type: ignore[attr-defined]  # Switches
    world.write(file(1, "state"), b"1: DOWN\n")
    world.at(3, HUP, do=lambda: world.write(file(1, "state"), b"4: ACTIVE\n"))


def restart(**flags: Any) -> Do:
    return lambda world: world.start_again(**flags)


LEFT_OUT = "left out by --exclude-device"
# name: (what is done, seconds until the labels have changed, the reason of each changed label)
CHANGES: dict[str, tuple[Do, float, dict[str, str | list[str] | None]]] = {
    "a link goes down": (
        write("state", b"1: DOWN\n"),
        60,
        {"speed": "ibp1 is DOWN", "device": "link-down", "leaves": "ibp1: link-down"},
    ),
    "a rate changes": (
        write("rate", b"200 Gb/sec (4X HDR)\n"),
        15,
        {"speed": "ibp1 has 200 Gb/s"},
    ),
    "an HCA leaves the bus": (
        unplug,
        60,
        {
            "speed": "ibp1 is gone from the bus",
            "device": f"ibp1 ({bdf(1)}) is gone from the bus",
            "leaves": "ibp1: gone from the bus",
            "group": "ibp1: gone from the bus",
        },
    ),
    "an HCA comes": (
        lambda world: world.entries.update(card("ibp2", bdf(2))),
        90,
        {"speed": "ibp2 is ACTIVE", "leaves": "ibp2: leaf-2 1", "group": "ibp2: leaf-2 1"},
    ),
    "a cable moves": (
        move,
        60,
        {
            "speed": ["ibp1 is DOWN", "ibp1 is ACTIVE"],
            "device": None,
            "leaves": "ibp1: leaf-7 1",
            "group": "ibp1: leaf-7 1",
        },
    ),
    "an HCA is left out": (
        restart(excluded=("ibp1",)),
        60,
        {
            "speed": f"ibp1 is {LEFT_OUT}",
            "device": f"ibp1 is {LEFT_OUT}",
            "leaves": f"ibp1: {LEFT_OUT}",
            "group": f"ibp1: {LEFT_OUT}",
        },
    ),
    "all HCAs are left out": (
        restart(excluded=("ibp*",)),
        60,
        {
            "flavor": f"ibp0 is {LEFT_OUT}, ibp1 is {LEFT_OUT}",
            "speed": f"ibp0 is {LEFT_OUT}, ibp1 is {LEFT_OUT}",
            "device": f"ibp1 is {LEFT_OUT}",
            "leaves": f"ibp0: {LEFT_OUT}, ibp1: {LEFT_OUT}",
            "group": f"ibp0: {LEFT_OUT}, ibp1: {LEFT_OUT}",
        },
    ),
    "a role changes": (
        restart(backend=("ibp0",)),
        60,
        {
            "speed": "ibp1 is no longer a backend port: not named by --backend-device",
            "device": "ibp1 is no longer a backend port: not named by --backend-device",
            "leaves": "ibp1: no longer a backend port: not named by --backend-device",
            "group": "ibp1: no longer a backend port: not named by --backend-device",
        },
    ),
}


def reasons(world: World) -> dict[str, list[str | None]]:
    """Return the reasons of the changes of each label, without those that have none."""
    found: dict[str, list[str | None]] = {}
    for line in world.lines:
        for name, key in KEYS.items():
            if re.search(rf"label (added|changed|removed) key={re.escape(key)} ", line):
                _, _, text = line.partition(" reason=")
                found.setdefault(name, []).append(text.strip('"') or None)
    return found


def started() -> World:
    """An agent on a node with two InfiniBand HCAs, each with a leaf, that says so."""
    return World(rails(2), smp=Switches()).run(90)


def test_a_fresh_node() -> None:
    """All labels are added, and need no reason."""
    assert reasons(started()) == {name: [None] for name in KEYS}


@pytest.mark.parametrize("name", CHANGES)
def test_the_reason_is_the_cause(name: str) -> None:
    """Of each label that changes; no other changes."""
    do, seconds, expected = CHANGES[name]
    world = started()
    world.lines.clear()
    do(world)
    world.at(0, HUP)
    world.run(seconds)
    assert reasons(world) == {
        label: reason if isinstance(reason, list) else [reason]
        for label, reason in expected.items()
    }


def test_a_leaf_that_comes_later() -> None:
    """The reason is its port, and not one that is silent still."""
    switches, answers = Switches(), set[str]()
    silent = {"exchanges": [], "error": "no-answer", "text": "no answer"}

    def smp(address: tuple[str, int]) -> dict[str, Any]:
        known = {"device": address[0], "port": address[1]}
        return switches(address) if address[0] in answers else known | silent

    world = World(rails(3), smp=smp).run(60)
    for name in ("ibp0", "ibp2"):
        world.lines.clear()
        answers.add(name)
        world.at(0, HUP)
        world.run(400)
        told = reasons(world)["leaves"]
        assert told == [f"{name}: leaf-{name[-1]} 1"]
