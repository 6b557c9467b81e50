"""Mutation tests of the laws: agents that are wrong in one respect are caught within a few seeds,
and the right one is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter
from random import Random
from typing import Any, NamedTuple

import pytest

from agent.daemon.loop import Loop
from agent.daemon.schedule import Settings
from agent.events.event import Event
from agent.infiniband.switch_names import Answered, Name, SwitchNames
from agent.memory import Fact, Memory
from agent.model import IbNeighbor
from agent.reasons import HoldReason
from tests.simulation import api_faults, hardware, process, sensors, switches
from tests.simulation.assembly import Variant
from tests.simulation.catalog import Fault
from tests.simulation.names import P
from tests.simulation.node import UNBOUND, Gpus, Node
from tests.simulation.scenario import run
from tests.simulation.verdicts import Verdicts
from tests.simulation.world import World
from tests.support.server_side_apply import MANAGER

SEEDS = 12
FOREVER = 1e9
GROUP, LEAVES = f"{P}/leafgroup.current", f"{P}/leaves.current"


class _Graceless(Memory):
    """Forgets a far end as soon as its link is down."""

    def _without_ended(self, fact: Fact, now: float) -> Fact:
        kept = Memory._without_ended(self, fact, now)  # noqa: SLF001 - the mutant's
        is_down = kept.far_why is HoldReason.LINK_DOWN
        return kept._replace(far=None) if is_down else kept


class _Clinging(Memory):
    """Keeps a far end without limit."""

    def _far_ends_at(self, _fact: Fact) -> float:
        return FOREVER


def _with(part: Callable[[Loop], object], **changes: Any) -> Callable[[Loop], None]:
    """Return what changes the private attributes, or the class, of a part of an agent."""

    def spoil(loop: Loop) -> None:
        for name, value in changes.items():
            setattr(part(loop), name, value)

    return spoil


_neighbors = attrgetter("observer.neighbors")
_memory = attrgetter("observer._memory")
_names = attrgetter("observer.memories.switch_names")


class Mutant(NamedTuple):
    """A wrong agent, the faults that it meets, the violation expected, and a seed that shows it: a
    small machine, for speed.
    """

    variant: Variant
    faults: tuple[Fault, ...]
    said: str
    seed: int = 7


def _labels(request: Mapping[str, Any], **changes: str | None) -> dict[str, Any]:
    """Return the apply request with other labels; None removes one."""
    if request["operation"] != "apply":
        return dict(request)
    metadata = request["body"]["metadata"]
    labels = {
        key: value
        for key, value in (metadata.get("labels", {}) | changes).items()
        if value is not None
    }
    return {**request, "body": {**request["body"], "metadata": {**metadata, "labels": labels}}}


def _forgets(_world: World, request: Mapping[str, Any]) -> Mapping[str, Any]:
    return _labels(request, **{f"{P}/speed.current": None})


def _adopts(_world: World, request: Mapping[str, Any]) -> Mapping[str, Any]:
    return _labels(request, **{f"{P}/speed.expected": "1G"}) | {"force": True}


def _takes(world: World, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the request with the accelerator's key, forced."""
    return _labels(
        request, **{"network.topology.nvidia.com/accelerator": world.node.gpus.identity}
    ) | {"force": True}


def _deaf(wakes: set[Event]) -> set[Event]:
    return {wake for wake in wakes if wake.kind in {"frames", "signal"}}


def _up(path: str, data: bytes) -> bytes:
    return b"4: ACTIVE\n" if path.endswith("/state") else data


def _short_sighted(path: str, data: bytes) -> bytes:
    return (
        b"10 Gb/sec (4X SDR)\n"
        if path.endswith("/rate")
        else b"10000\n"
        if path.endswith("/speed")
        else data
    )


def _held_as_a_whole(world: World, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The speed stays as it is while one device is hidden."""
    key = f"{P}/speed.current"
    before = world.api.fields.get(("labels", key))
    is_hidden = any(hca.sick or hca.where == UNBOUND for hca in world.node.hcas)
    return _labels(request, **{key: before}) if is_hidden and before else request


def _with_group(world: World, request: Mapping[str, Any], *, key: str) -> Mapping[str, Any]:
    """The leaf group is what the Node, or the request, has of another label."""
    labels = request.get("body", {}).get("metadata", {}).get("labels", {})
    before = world.api.fields.get(("labels", key)) if key == GROUP else labels.get(key)
    return _labels(request, **{GROUP: before or labels.get(GROUP)})


def _healthy(answer: dict[str, Any]) -> dict[str, Any]:
    return answer | {
        "gpus": [gpu | {"fabric": gpu["fabric"] | {"status": 0}} for gpu in answer["gpus"]]
    }


def _without_marks(path: str, data: bytes) -> bytes:
    return data.replace(b"SW_MNG", b"") if path.endswith("/vpd") else data


def _odd_name(world: World, rng: Random) -> float:
    """Send one frame of the known Chassis ID and Port ID with another System Name."""
    if hca := hardware.pick(world, rng, lambda hca: not hca.infiniband and hca.up):
        world.speak(hca, replace(hca.peer, device="odd"))
    return 0.0


def _lost_over_a_restart(world: World, rng: Random) -> float:
    seconds = switches.description_lost(world, rng)
    world.at(15.0, partial(process.killed, world, rng))
    return seconds + 100.0


def _lost_over_a_move(world: World, rng: Random) -> float:
    """Move every cable to a switch that does not give its name."""
    for hca in world.node.hcas:
        hca.nameless += 1
    seconds = hardware.cable_moved(world, rng)

    def end() -> None:
        for hca in world.node.hcas:
            hca.nameless -= 1
        world.changed()

    world.changed()
    world.at(seconds + 60.0, end)
    return seconds + 60.0


class _Forgetful(SwitchNames):
    """The answer of the moment is all that is known."""

    def name(self, interface: str, facts: IbNeighbor, answer: Answered) -> Name:
        super().name(interface, facts, answer)
        return SwitchNames().name(interface, facts, answer)


class _Unseeded(SwitchNames):
    """The annotation is not used."""

    def seed(self, _known: Mapping[str, tuple[str, str | None]]) -> None:
        super().seed({})


class _Credulous(SwitchNames):
    """Factory text replaces a known name."""

    def name(self, interface: str, facts: IbNeighbor, answer: Answered) -> Name:
        found = super().name(interface, facts, answer)
        return found if found.last_description is None else Name(facts.node_guid)


class _Patient(SwitchNames):
    """A retry is never due."""

    def retry(self, _answer: Answered) -> None:
        return None


class _Faithful(SwitchNames):
    """The name stays when the far end has another node GUID."""

    def name(self, interface: str, facts: IbNeighbor, answer: Answered) -> Name:
        return super().name(interface, facts._replace(node_guid="1" * 16), answer)


MUTANTS = {
    "a hold of zero": Mutant(
        Variant(Settings(hold=0.0)),
        (hardware.driver_reloads, sensors.device_fails),
        "L8: neighbor .* lost",
    ),
    "a hold without an end": Mutant(
        Variant(Settings(hold=FOREVER)), (hardware.driver_reloads,) * 3, "L2: .* wrong", 3
    ),
    "a neighbour never expires": Mutant(
        Variant(spoil=_with(_memory, __class__=_Clinging)),
        (switches.switch_silent,) * 2,
        "L2: .* wrong",
        5,
    ),
    "a neighbour has no grace": Mutant(
        Variant(spoil=_with(_memory, __class__=_Graceless)),
        (hardware.link_flap,) * 4,
        "L8: neighbor .* lost",
    ),
    "one frame is enough": Mutant(
        Variant(spoil=_with(_neighbors, _confirm=1)), (_odd_name,) * 2, "L2: .* wrong, written", 10
    ),
    "no min-interval": Mutant(Variant(Settings(min_interval=0.0)), (hardware.link_flaps,), "L5: "),
    "a request each minute": Mutant(Variant(Settings(resync=60.0)), (hardware.link_flap,), "L5: "),
    "neither a look nor an hourly request": Mutant(
        Variant(Settings(resync=FOREVER, look=FOREVER)), (api_faults.others_write,), "L1: "
    ),
    "deaf to wake-ups": Mutant(Variant(wakes=_deaf), (hardware.link_flap,) * 3, "L2: .* wrong", 5),
    "a key is forgotten": Mutant(
        Variant(request=_forgets), (hardware.link_flap,), "L8: .*speed.* lost"
    ),
    "the expected half is adopted": Mutant(
        Variant(request=_adopts), (hardware.link_flap,), "L6: a foreign label"
    ),
    "the accelerator is taken": Mutant(
        Variant(request=_takes),
        (api_faults.others_hold_accelerator, *(hardware.link_flap,) * 4),
        "L6: another manager's",
        6,
    ),
    "what is down counts": Mutant(
        Variant(read=_up), (hardware.link_flap,) * 2, "L2: speed wrong", 5
    ),
    "the speed is held as a whole": Mutant(
        Variant(request=_held_as_a_whole),
        (sensors.device_fails, hardware.driver_reloads, *(hardware.link_flap,) * 6),
        "L2: speed wrong",
        3,
    ),
    "the leaf group has the leaves of now": Mutant(
        Variant(request=partial(_with_group, key=LEAVES)),
        (hardware.link_flap,) * 5,
        "L8: group lost",
        10,
    ),
    "the leaf group never changes": Mutant(
        Variant(request=partial(_with_group, key=GROUP)),
        (hardware.cable_moved,) * 2,
        "L[28]: leafgroup.current",
    ),
    "rates are misread": Mutant(
        Variant(read=_short_sighted), (hardware.link_flap,), "L2: speed wrong"
    ),
    "NVSwitch management counts": Mutant(
        Variant(read=_without_marks), (hardware.link_flap,), "L2: speed wrong", 10
    ),
    "sick GPUs count": Mutant(
        Variant(gpus=_healthy), (hardware.fabric_state,) * 3, "L2: .*accelerator wrong", 8
    ),
    "a switch's name is not remembered": Mutant(
        Variant(spoil=_with(_names, __class__=_Forgetful)),
        (switches.description_lost,) * 2,
        "L[28]: neighbor .*, written",
    ),
    "a switch's name is lost by a restart": Mutant(
        Variant(spoil=_with(_names, __class__=_Unseeded)),
        (_lost_over_a_restart,) * 2,
        "L[28]: neighbor .*, written",
    ),
    "factory text counts at once": Mutant(
        Variant(spoil=_with(_names, __class__=_Credulous)),
        (switches.switch_boots,),
        "L8: neighbor .*, written",
    ),
    "a lost name is not asked for again soon": Mutant(
        Variant(spoil=_with(_names, __class__=_Patient)),
        (_lost_over_a_move,) * 2,
        "L2: neighbor .* wrong",
    ),
    "another switch keeps the name": Mutant(
        Variant(spoil=_with(_names, __class__=_Faithful)),
        (switches.description_lost, hardware.cable_moved, hardware.cable_moved),
        "L2: neighbor .* wrong",
    ),
    "a verdict is never given": Mutant(
        Variant(verdict_delay=FOREVER), (hardware.link_flap,), "the verdict is pending", 10
    ),
    "GPUs are asked once an hour": Mutant(
        Variant(gpu_interval=3600.0), (hardware.fabric_state,) * 2, "L[128]: .*accelerator"
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str) -> None:
    """A mutant is caught within a few seeds by the expected violation; the unchanged agent has
    none.
    """
    mutant = MUTANTS[name]
    for seed in (mutant.seed, *range(SEEDS)):
        report = run(seed, mutant.variant, mutant.faults)
        if any(re.search(mutant.said, line) for line in report.violations):
            right = run(seed, None, mutant.faults)
            assert not right.violations, right.told()
            return
    pytest.fail(f"{name}: not caught in {SEEDS} seeds")


@pytest.mark.parametrize(
    ("status", "verdict", "severities"),
    [
        ("200 OK", "pass", ["warning", "error"]),
        ("200 OK", "unverified", ["error"]),
        ("503 Service Unavailable", "fail", ["warning"]),
        ("200 OK", "fail", ["error"]),
        ("503 Service Unavailable", "pass", []),
    ],
)
def test_a_wrong_page_is_caught(status: str, verdict: str, severities: list[str]) -> None:
    """A verdict that its findings, or its status, contradict."""
    faults: list[str] = []
    verdicts = Verdicts(Node([], Gpus(0)), lambda _now, text: faults.append(text))
    verdicts.page(0.0, "404 Not Found", b'{"verdict": "pending"}')
    verdicts.page(0.0, "200 OK", b'{"verdict": "pass", "findings": []}')
    assert not faults
    findings = [{"id": "0f", "severity": severity} for severity in severities]
    page = {"verdict": verdict, "findings": findings}
    verdicts.page(0.0, status, json.dumps(page).encode())
    assert len(faults) == 1


def test_the_stand_in_speaks_of_our_manager() -> None:
    """The test double of the API server uses the agent's manager name."""
    assert MANAGER == "bwagent"
