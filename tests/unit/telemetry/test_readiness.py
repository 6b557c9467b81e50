"""Readiness, and the refused keys behind it: the Node says what was observed, or it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agent.daemon.schedule import LOOK_INTERVAL
from agent.events.event import Event
from agent.kube.answers import Answer
from agent.telemetry.readiness import MAX_AGE, NOT_READ
from tests.support import nodes
from tests.support.gpus import GPU
from tests.support.gpus import answer as gpus
from tests.support.kernel_tree import HOME, gpu, hca
from tests.support.nodes import FLAVOR, PREFIX, SPEED
from tests.support.running import EPOCH, HUP, Api, World
from tests.support.smps import leaf

Trouble = Callable[[Mapping[str, Any]], Answer | None]


B = "0000:19:00.0"
IB = hca("ibp0", "0000:18:00.0") | hca("ibp1", B)
STATE = f"{HOME}/{B}/infiniband/ibp1/ports/1/state"
READY = (True, "ok\n")
MINUTE = 60.0


def readiness(world: World) -> tuple[bool, str]:
    """The answer of /readyz, with which the metric agrees."""
    found = world.state.readiness()
    assert world.metrics.snapshot.ready is found[0]
    return found


def refuse(api: Api, *keys: str) -> Api:
    """Refuse changes of these labels from now on, and name them."""

    def trouble(request: Mapping[str, Any]) -> Answer | None:
        labels = request.get("body", {}).get("metadata", {}).get("labels", api.labels)
        named = [key for key in keys if labels.get(key) != api.labels.get(key)]
        if not named:
            return None
        return Answer(403, message=f"not {', '.join(named)}")

    api.trouble = trouble
    return api


def refuse_all(request: Mapping[str, Any]) -> Answer | None:
    if request["operation"] == "get":
        return None
    return Answer(403, message="bwagent changes nothing here")


def answer(status: int) -> Trouble:
    return lambda _request: Answer(status, message="no")


def said(world: World, *words: str) -> list[str]:
    """Return the log lines with all of these words, without their time."""
    lines = [line.partition(" ")[2] for line in world.lines]
    return [line for line in lines if all(word in line for word in words)]


def link_down(world: World) -> None:
    """Take the link of ibp1 down, and let the agent look."""
    world.at(0, HUP, do=lambda: world.write(STATE, b"1: DOWN\n"))


@pytest.mark.parametrize(
    ("api", "refused", "named"),
    [
        pytest.param(refuse(Api(), SPEED, FLAVOR), 2, [FLAVOR, SPEED], id="some"),
        pytest.param(Api(trouble=refuse_all), 4, [f"{PREFIX}/observed"], id="all, naming none"),
    ],
)
def test_an_agent_with_refused_keys_is_not_ready(api: Api, refused: int, named: list[str]) -> None:
    """The page names each key; the time of the last apply stays unknown."""
    world = World(IB, api=api).run(30)
    ready, text = readiness(world)
    first, *keys = text.splitlines()
    assert (ready, first) == (False, f"keys refused by the API server: {refused}")
    assert (len(keys), {*named} - {*keys}) == (refused, set())
    assert world.metrics.snapshot.applied_at is None
    assert world.metrics.snapshot.keys_refused == refused


@pytest.mark.slow
def test_every_change_refused_for_hours() -> None:
    """No request has failed: the line of each key is all, and the server has few requests more than
    from an agent at peace.
    """
    world = World(IB, api=Api(trouble=refuse_all)).run(8 * 3600)
    assert said(world, "node request failed") == []
    assert len(said(world, "label refused")) == 4
    assert said(world, "no longer refused") == []
    # In an hour: one attempt of all and one of each of four families, a resync, and looks.
    writes = [at for at in world.api.applied() if at > 1000 + 3600]
    assert len(writes) < 7 * (5 + 2)


def test_a_refresh_that_is_refused() -> None:
    """A policy refuses the annotation, whose time alone is new: its refusal ends with a request
    that carries it, tried again after a minute and then hourly.
    """
    world = World(IB).run(30)
    time, observed = world.api.annotation, f"{PREFIX}/observed"

    def trouble(request: Mapping[str, Any]) -> Answer | None:
        annotations = request.get("body", {}).get("metadata", {}).get("annotations", {})
        is_same = annotations.get(observed, time) == time
        return None if is_same else Answer(403, message=f"not {observed}")

    world.api.trouble = trouble
    world.run(3 * 3600)
    assert len(said(world, "label refused", observed)) == 1
    assert said(world, "no longer refused") == []
    assert not readiness(world)[0]
    world.api.trouble = lambda _request: None
    world.run(3600 + MINUTE)
    assert said(world, "no longer refused") == [f"info label no longer refused key={observed}"]
    assert world.api.annotation != time
    assert readiness(world) == READY


@pytest.mark.slow
def test_a_failed_request_ends_no_refusal() -> None:
    """The hourly retry of a refused key meets an API server that fails."""
    world = World(IB, api=refuse(Api(), SPEED)).run(3 * MINUTE)
    world.api.trouble = answer(503)
    world.run(120 * MINUTE)
    assert said(world, "no longer refused") == []
    refuse(world.api, SPEED)
    world.run(120 * MINUTE)
    assert said(world, "no longer refused") == []
    world.api.trouble = lambda _request: None
    world.run(120 * MINUTE)
    assert said(world, "no longer refused") == [f"info label no longer refused key={SPEED}"]
    assert readiness(world) == READY


def test_a_key_that_is_refused_with_its_family() -> None:
    """A key that comes later is not sent, and has its line, too."""
    world = World(IB, api=Api(trouble=refuse_all)).run(60)
    world.smp = leaf
    world.look(20)
    assert world.labels == {}
    assert f"{PREFIX}/neighbors.current.ibp1.device" in readiness(world)[1]
    assert said(world, "label refused", "neighbors.current.ibp1.device")


def test_a_refusal_that_ends() -> None:
    """The policy arrives: ready within a minute, with a time of the last apply."""
    world = World(IB, api=refuse(Api(), SPEED)).run(30)
    world.api.trouble = lambda _request: None
    world.run(2 * MINUTE)
    assert readiness(world) == READY
    assert said(world, "no longer refused") == [f"info label no longer refused key={SPEED}"]
    assert world.metrics.snapshot.keys_refused == 0
    assert world.metrics.snapshot.applied_at is not None
    assert world.metrics.snapshot.applied_at > EPOCH + 1000


def test_a_key_that_is_refused_later() -> None:
    """An agent that was ready is not any more; the last apply is the one before."""
    world = World(IB).run(30)
    assert readiness(world) == READY
    before = world.metrics.snapshot.applied_at
    refuse(world.api, SPEED)
    link_down(world)
    world.run(5 * MINUTE)
    assert not readiness(world)[0]
    assert world.metrics.snapshot.applied_at == before


def test_an_unreachable_api_server() -> None:
    """The agent stays ready while the Node says what it observes, and not with a change to tell."""
    world = World(IB).run(30)
    world.api.trouble = answer(503)
    world.look(5 * MINUTE)
    assert readiness(world) == READY
    link_down(world)
    world.run(5 * MINUTE)
    ready, text = readiness(world)
    assert not ready
    assert text.startswith("not applied: ")
    world.api.trouble = lambda _request: None
    world.run(10 * MINUTE)
    assert readiness(world) == READY


def test_a_write_that_may_be_stored_while_the_change_ends() -> None:
    """The link is up again before the answer: the Node may say otherwise until the next one."""
    world = World(IB).run(60)
    failed = Answer(504, message="etcd timed out", maybe_done=True)
    world.api.trouble = lambda request: failed if request["operation"] == "apply" else None
    world.slow = 4.0
    world.at(0, Event("device", ""), do=lambda: world.write(STATE, b"1: DOWN\n"))
    world.at(1.5, Event("device", ""), do=lambda: world.write(STATE, b"4: ACTIVE\n"))
    world.run(8)
    ready, text = readiness(world)
    assert (ready, text.startswith("not applied: outcome unknown")) == (False, True)
    world.api.trouble = lambda _request: None
    world.run(30)
    assert readiness(world) == READY


def test_a_key_that_is_left_to_another_manager() -> None:
    """The contract leaves it; the agent is ready, and the metric counts the key."""
    world = World(IB, gpu())
    world.api.hold("gfd", {nodes.ACCELERATOR_KEY: "b.2"})
    world.nvml = lambda: gpus(GPU)
    world.run(90)
    assert said(world, "label left to its owner", nodes.ACCELERATOR_KEY)
    assert readiness(world) == READY
    assert world.metrics.snapshot.keys_left_alone == 1
    assert world.metrics.snapshot.keys_refused == 0
    assert world.metrics.snapshot.applied_at is not None


def test_a_node_that_is_gone() -> None:
    """Nothing says what was observed."""
    world = World(IB).run(30)
    world.api.trouble = answer(404)
    world.look(MINUTE)
    assert not readiness(world)[0]


def test_before_the_first_apply() -> None:
    """The reason of a failure is on the page."""
    world = World(IB, api=Api(trouble=answer(503))).run(30)
    ready, text = readiness(world)
    assert (ready, text.startswith("not applied: ")) == (False, True)


def test_a_dry_run() -> None:
    """It is ready with its plan; the time of the last apply is not known."""
    world = World(IB, dry_run=True).run(30)
    assert readiness(world) == READY
    assert world.metrics.snapshot.applied_at is None


def test_a_node_that_cannot_be_read_for_long_makes_the_agent_unready() -> None:
    """Nothing changes here, and nobody knows what the Node says; the next look ends it."""
    world = World(IB).run(60)
    world.api.trouble = lambda _request: Answer(error="unreachable", message="refused")
    world.run(MAX_AGE - 1.2 * LOOK_INTERVAL - 60)
    assert readiness(world) == READY
    world.run(1.2 * LOOK_INTERVAL + 120)
    ready, text = readiness(world)
    assert (ready, NOT_READ in text) == (False, True)
    world.api.trouble = lambda _request: None
    world.run(301)
    assert readiness(world) == READY
