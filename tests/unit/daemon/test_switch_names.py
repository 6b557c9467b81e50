"""The whole loop over a switch that does not give its name: labels, queries and log lines."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from agent.events.event import Event
from agent.infiniband.poller import REFRESH_INTERVAL, RETRY_INTERVAL
from tests.support.kernel_tree import HOME, hca
from tests.support.nodes import PREFIX
from tests.support.running import World
from tests.support.smps import answer, exchanges

A, GUID = "0000:18:00.0", 0xB0CF0E0300D66C81
NAME, FACTORY = b"MF0;leaf-old:MQM9700/U1", b"Quantum Mellanox Technologies"
DEVICE = "neighbors.current.ibp0.device"
STATE = f"{HOME}/{A}/infiniband/ibp0/ports/1/state"
LINK = Event("port", "ibp0/1")


class Switched(World):
    """A node with one port, and the switch at its far end."""

    def __init__(self) -> None:
        super().__init__(hca("ibp0", A))
        self.description: bytes | None = NAME
        self.smp = self._switch

    def _switch(self, address: tuple[str, int]) -> dict[str, Any]:
        return answer(*address, exchanges=exchanges(self.description, guid=GUID))

    def bounce(self) -> None:
        """Take the link down for a minute, so that the neighbor's labels are removed."""
        self.write(STATE, b"1: DOWN\n")
        self.at(0.0, LINK)
        self.run(60)
        self.write(STATE, b"4: ACTIVE\n")
        self.at(0.0, LINK)

    def waits(self, since: float) -> list[float]:
        times = [time for time, _ in self.asked_smp if time >= since]
        return [round(after - before) for before, after in pairwise(times)]

    def devices(self) -> list[str | None]:
        found = [labels.get(f"{PREFIX}/{DEVICE}") for labels in self.api.writes]
        return [one for one, before in zip(found, [None, *found], strict=False) if one != before]

    def problems(self) -> list[str]:
        return [line for line in self.lines if "ib problem" in line]


def test_a_renamed_switch_is_shown_within_twenty_minutes() -> None:
    """Nothing tells the agent: it asks again."""
    world = Switched().run(60)
    world.description = b"MF0;leaf-new:MQM9700/U1"
    world.run(20 * 60)
    assert world.devices() == ["leaf-old", "leaf-new"]


def test_a_lost_description_is_asked_for_with_back_off() -> None:
    """The name stays for hours, one line has the reason, and the intervals double up to
    20 minutes.
    """
    world = Switched().run(30)
    world.description = None
    world.bounce()
    since = world.time
    world.run(6 * 3600)
    waits = [RETRY_INTERVAL * 2.0**number for number in range(7)]
    assert world.waits(since)[:10] == [*waits, *[REFRESH_INTERVAL] * 3]
    assert world.devices() == ["leaf-old", None, "leaf-old"]
    assert len(world.problems()) == 1
    assert "no answer to NodeDescription: leaf-old is kept" in world.problems()[0]
    world.description = NAME
    world.at(0.0, LINK)
    world.run(30)
    assert "ib problem resolved" in world.problems()[-1]
    assert world.devices() == ["leaf-old", None, "leaf-old"]


def test_a_restart_keeps_the_name() -> None:
    """Several of them do: the annotation has the name while the switch does not give it."""
    world = Switched().run(30)
    world.description = None
    for _ in range(3):
        world.start_again()
        world.run(2 * 3600)  # with requests that renew the annotation
    assert world.devices() == ["leaf-old"]
