"""An agent whose Node is another host by its boot ID, and the first minute after a boot."""

from __future__ import annotations

from typing import Any

from agent.kube.answers import Answer
from agent.kube.nodes import of_this_host
from tests.support.kernel_tree import bdf, hca
from tests.support.running import BOOT_ID, HOUR, HUP, Api, World

IB = hca("ibp0", bdf(0)) | hca("ibp1", bdf(1))
REASON = f"another host than this one: its boot ID is of-before, that of this host {BOOT_ID}"
BEGIN, END = "node is another host", "node is this host"


def lines(world: World, text: str) -> list[str]:
    return [line for line in world.lines if text in line]


def test_the_first_minute_after_a_boot() -> None:
    """The kubelet has not reported the new boot ID: nothing is written, /readyz has the reason, and
    the log has it once. Then the Node is labeled, and is not read as a whole again.
    """
    world = World(IB, api=Api(boot_id="of-before"))
    world.run(60)
    assert world.state.readiness() == (False, f"not applied: {REASON}\n")
    assert {operation for _, operation in world.api.requests} == {"get"}
    assert 4 <= world.api.whole == len(world.api.requests) <= 6
    (line,) = lines(world, BEGIN)
    assert f'reason="{REASON}; nothing is written"' in line
    world.api.server.boot_id = BOOT_ID
    world.run(60)
    assert world.labels["speed.current"] == "800G"
    assert world.state.readiness() == (True, "ok\n")
    assert (len(lines(world, BEGIN)), len(lines(world, END))) == (1, 1)
    assert not lines(world, "node request failed")
    before = world.api.whole
    world.run(2 * HOUR)
    assert world.api.whole == before


def test_a_node_of_another_host() -> None:
    """As by a wrong --node-name: for good, at a modest pace; SIGHUP reads it at once."""
    world = World(IB, api=Api(boot_id="of-before")).run(6 * HOUR)
    assert world.api.whole == len(world.api.requests) <= 6 * 20
    assert (world.api.writes, len(lines(world, BEGIN))) == ([], 1)
    before = world.api.whole
    world.at(0.0, HUP)
    world.run(1)
    assert world.api.whole == before + 1


def test_an_unknown_boot_id_is_not_another_one() -> None:
    """That of the Node, and that of this host, which asks for no whole Node then."""
    world = World(IB).run(30)
    assert (world.labels["speed.current"], world.api.whole) == ("800G", 1)
    for unknown in (None, "", "two words"):
        api = Api()
        assert of_this_host(api, unknown) is api


def test_a_node_that_is_created_again() -> None:
    """Another uid is compared anew, wherever it is met, and before anything is written."""
    world = World(IB, api=Api(boot_id=BOOT_ID)).run(30)
    api = world.api
    assert (api.whole, world.state.readiness()) == (1, (True, "ok\n"))
    api.server.recreate()
    api.server.boot_id = "of-another"
    writes = len(api.writes)
    world.run(400)
    assert (len(api.writes), api.whole > 1) == (writes, True)
    assert world.state.readiness()[0] is False
    assert len(lines(world, BEGIN)) == 1
    world.run(HOUR)
    assert "was not read" not in world.state.readiness()[1]
    api.server.boot_id = BOOT_ID
    world.run(400)
    assert (world.labels["speed.current"], world.state.readiness()[0]) == ("800G", True)


def test_nothing_else_is_sent_meanwhile() -> None:
    """Neither Events nor the check of the policy."""
    api = Api(boot_id="of-another")
    kube = of_this_host(api, BOOT_ID)
    get: Any = {"operation": "get", "node": "n1"}
    event: Any = {"operation": "create-event", "body": {"metadata": {"name": "e"}}}
    answer = kube(get)
    assert (answer.node, answer.error, answer.succeeded) == (None, "another-host", False)
    assert kube(event).error == "another-host"
    assert [operation for _, operation in api.requests] == ["get"]
    api.server.boot_id = BOOT_ID
    assert kube(get).node is not None
    assert kube(event) == Answer(201)


def test_a_failure_in_between_ends_nothing() -> None:
    """An API server that is away says nothing about the host."""
    world = World(IB, api=Api(boot_id="of-before")).run(30)
    world.api.trouble = lambda _: Answer(503, message="down")
    world.run(60)
    assert lines(world, "node request failed")
    assert not lines(world, END)
    world.api.trouble = lambda _: None
    world.run(300)
    assert (len(lines(world, BEGIN)), len(lines(world, "node reachable again"))) == (1, 1)
