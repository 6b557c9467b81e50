"""Faults of the API server and of the way to it, and writes by other managers."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Mapping
from functools import partial
from random import Random
from typing import Any

from agent.errors import Unavailable
from tests.simulation.hardware import link_flap
from tests.simulation.judge import RESYNC
from tests.simulation.names import ACC, ANNOTATION, IB, P
from tests.simulation.process import killed
from tests.simulation.sensors import break_helpers, lasting, lay
from tests.simulation.sysfs import CLASS, Fault
from tests.simulation.world import AN_HOUR, World
from tests.support.server_side_apply import Key, Reply, status

Answer = Callable[[World, Mapping[str, Any]], Reply]


OBSERVED = '{"schema": 1, "time": "2027-01-15T08:00:00Z"}'  # the start of the simulation
REFUSED = RESYNC + 300.0  # seconds after which a refused key has been tried again
HTML = Reply(503, b"<html>upstream connect error</html>", {"Content-Type": "text/html"})
FORBIDDEN = (
    'nodes "n1" is forbidden: User "system:serviceaccount:x:y" '
    'cannot patch resource "nodes" in API group ""'
)


def _done_but(error: bytes) -> Answer:
    """Return an answer that performs the request and loses the response."""

    def answer(world: World, request: Mapping[str, Any]) -> Reply:
        world.api.answer(request)
        return Reply(-1, error)

    return answer


def _always(reply: Reply) -> Answer:
    return lambda _world, _request: reply


ANSWERS: dict[str, Answer] = {
    "401": _always(status(401, "Unauthorized", "Unauthorized")),
    "403": _always(status(403, FORBIDDEN, "Forbidden")),
    "404": _always(status(404, 'nodes "n1" not found', "NotFound")),
    "409": _always(status(409, "the object has been modified", "Conflict")),
    "422": _always(status(422, 'Node "n1" is invalid: spec: Forbidden', "Invalid")),
    "429": _always(status(429, "too many requests", "TooManyRequests", retry=7)),
    "429 for long": _always(status(429, "too many requests", "TooManyRequests", retry=100000)),
    "500": _always(status(500, "etcdserver: leader changed", "InternalError")),
    "503": _always(HTML),
    "garbage": _always(
        Reply(
            200, b'{"kind": "Node", "metadata": {"name": ["', {"Content-Type": "application/json"}
        )
    ),
    "another document": _always(Reply(200, b'{"kind": "Status"}')),
    "a redirect": _always(Reply(302, b"")),
    "timeout": _always(Reply(-1, b"timeout")),
    "timeout, done": _done_but(b"timeout"),
    "cut, done": _done_but(b"cut"),
    "unreachable": _always(Reply(-1, b"unreachable")),
    "tls": _always(Reply(-1, b"tls")),
}


def _disturb(
    world: World, seconds: float, answer: Callable[[Mapping[str, Any]], Reply | None]
) -> float:
    """Let `answer` reply instead of the API server for a while; None passes the request on."""
    world.api.trouble = world.first_trouble

    def count(by: int) -> None:
        (world.troubles.append if by > 0 else world.troubles.remove)(answer)
        world.judge.trouble(world.time, begins=by > 0)

    return world.for_a_while(seconds, count)


def refuses(world: World, rng: Random) -> float:
    """Give the same error to every request."""
    name, seconds = rng.choice(sorted(ANSWERS)), rng.choice([5.0, 60.0, 400.0, 1300.0])
    world.note(f"API: {name} for {seconds} s")
    world.at(0.1, partial(link_flap, world, rng))
    if name == "422":
        _all_refused(world, seconds)
    return _disturb(world, seconds, lambda request: ANSWERS[name](world, request))


def _all_refused(world: World, seconds: float) -> None:
    """Excuse all keys: the agent retries a key only an hour after a denial that names none."""
    world.judge.excuse(world.time + seconds + REFUSED, lambda _key: True)
    world.needs(REFUSED + 1500.0)


def flaky(world: World, rng: Random) -> float:
    """Give random errors, and pass some requests on."""
    seconds = rng.choice([60.0, 600.0])
    world.note(f"API: flaky for {seconds} s")
    _all_refused(world, seconds)

    def answer(request: Mapping[str, Any]) -> Reply | None:
        name = rng.choice([*sorted(ANSWERS), *[""] * len(ANSWERS)])
        return ANSWERS[name](world, request) if name else None

    world.at(0.1, partial(link_flap, world, rng))
    return _disturb(world, seconds, answer)


def dead_for_an_hour(world: World, _rng: Random) -> float:
    """Refuse connections for an hour."""
    world.note("API: dead for an hour")
    return _disturb(world, 3600.0, lambda request: ANSWERS["unreachable"](world, request))


def nothing_reads_on_a_fresh_node(world: World, rng: Random) -> float:
    """Begin anew with an empty Node, and with HCAs of which nothing can be read."""
    seconds = lasting(rng)
    world.note(f"a fresh Node, and no HCA can be read for {seconds} s")
    for hca in world.node.hcas:
        lay(world, seconds, Fault(f"{CLASS}/{hca.name}", errno.EIO), (hca, "sick"))
    world.api.fields, world.api.owners = {}, {}
    world.api.recreate()
    world.judge.drifted([])
    world.needs(AN_HOUR)
    killed(world, rng)
    return seconds


def slow(world: World, rng: Random) -> float:
    """Delay every response."""
    seconds = lasting(rng)
    world.note(f"API: slow for {seconds} s")
    world.slow["api"] = rng.choice([3.0, 24.0])
    world.judge.trouble(world.time, begins=True)

    def end() -> None:
        world.slow["api"] = 0.2
        world.at(30.0, lambda: world.judge.trouble(world.time, begins=False))

    world.at(seconds, end)
    return seconds + 30.0


def helper_dies(world: World, rng: Random) -> float:
    """Kill the helper process that sends the requests."""
    seconds = lasting(rng)
    world.note(f"API helper: killed for {seconds} s")
    words = "helper kube: killed by SIGKILL"
    return break_helpers(world, seconds, ("api",), lambda: Unavailable(words))


def webhook_denies(world: World, rng: Random) -> float:
    """Deny changes of a key or of a whole domain; the message may or may not name it."""
    seconds, named = lasting(rng), rng.random() < 0.6
    present = sorted(key for kind, key in world.api.fields if kind == "labels" and world.ours(key))
    target = rng.choice([*(present or [f"{P}/flavor"]), f"{P}/", f"{IB}/", ACC, ANNOTATION])
    world.note(
        f"webhook: denies changes of {target} for {seconds} s, "
        f"naming {'it' if named else 'nothing'}"
    )

    def denies(changed: Collection[Key]) -> Reply | None:
        names = sorted(name for _, name in changed if name.startswith(target))
        if not names:
            return None
        why = f"{names[0]} is not allowed" if named else "this is not allowed here"
        text = f'nodes "n1" is forbidden: admission webhook denied: {why}'
        return status(403, text, "Forbidden")

    # Unnamed, one key takes its family with it.
    family = target.partition("/")[0]
    world.judge.excuse(world.time + seconds + REFUSED, lambda key: key.startswith(family))
    world.needs(REFUSED + 1000.0)

    def count(by: int) -> None:
        (world.api.refuses.append if by > 0 else world.api.refuses.remove)(denies)
        world.judge.denying += by

    return world.for_a_while(seconds, count) + 1.0


def _meddle(world: World, rng: Random) -> None:
    mine = sorted(key for kind, key in world.api.fields if kind == "labels" and world.ours(key))
    world.needs(AN_HOUR)
    some = rng.sample(mine, min(len(mine), rng.randrange(1, 4)))
    manager = rng.choice(["kubectl-label", "kubectl-edit", "nfd-master"])
    changes: dict[Key, str | None] = {
        ("labels", key): rng.choice(["meddled", None]) for key in some if key != ACC
    }
    world.note(f"{manager} changes {sorted(key for _, key in changes)}")
    world.judge.drifted(key for _, key in changes)
    world.api.update(manager, changes)


def others_write(world: World, rng: Random) -> float:
    """Change or remove labels of the agent as another manager."""
    _meddle(world, rng)
    return 0.0


def others_race(world: World, rng: Random) -> float:
    """Do the same immediately before the agent's next request."""
    world.note("somebody waits for the agent's next request")
    world.api.race = partial(_meddle, world, rng)
    return 0.0


def others_hold_accelerator(world: World, rng: Random) -> float:
    """Set the accelerator's key as another manager, and remove it later."""
    seconds, value = lasting(rng), rng.choice([world.node.gpus.identity, "elsewhere.1"])
    if world.api.others(("labels", ACC)):
        return 0.0
    world.note(f"topograph says {ACC}={value} for {seconds} s")

    def say(value: str | None) -> None:
        world.judge.drifted([ACC])
        world.api.update("topograph", {("labels", ACC): value})

    if world.api.fields.get(("labels", ACC)) == value:
        return 0.0
    say(value)
    world.at(seconds, partial(say, None))
    # The agent learns of it by its next answer, and acts upon it with the one after that.
    world.judge.excuse(world.time + seconds + 2.4 * RESYNC, lambda key: key == ACC)
    world.needs(2.4 * RESYNC + 1000.0)
    return seconds


def _protects(changed: Collection[Key]) -> Reply | None:
    """Refuse changes of other agents' labels, as the admission policy does."""
    names = sorted(name for _, name in changed if name.startswith("agent-"))
    text = f"bwagent changes its own labels only, not {', '.join(names)}"
    return status(422, text, "Invalid") if names else None


def second_agent(world: World, rng: Random) -> float:
    """Let another agent label the Node under a prefix of its own, which the admission policy
    protects; remove its labels in the end.
    """
    seconds, prefix = lasting(rng), f"agent-{rng.randrange(3)}.example"
    world.note(f"another agent labels the Node under {prefix} for {seconds} s")
    if _protects not in world.api.refuses:
        world.api.refuses.insert(0, _protects)

    def label(speed: int) -> None:
        if world.api.exists:
            labels = {("labels", f"{prefix}/speed.current"): f"{speed}G"}
            annotations = {("annotations", f"{prefix}/observed"): OBSERVED}
            world.api.co_apply(prefix, labels | annotations)

    for share in sorted(rng.random() for _ in range(rng.randrange(1, 6))):
        world.at(share * seconds, partial(label, rng.randrange(100)))
        world.at(share * seconds + rng.choice([0.1, 30.0]), partial(link_flap, world, rng))
    world.at(seconds, partial(world.api.co_apply, prefix, {}))
    world.at(seconds + 0.1, partial(link_flap, world, rng))
    world.needs(AN_HOUR)
    return seconds + 1.0


def expected_half_changes(world: World, rng: Random) -> float:
    """Change the site's own labels below the agent's prefix."""
    changes: dict[Key, str | None] = {
        ("labels", f"{P}/speed.expected"): rng.choice(["3200G", "400G", None]),
        ("labels", f"{P}/neighbors.expected.mlx5_0.device"): rng.choice(["leaf-1", None]),
        ("labels", "site.example/rack"): str(rng.randrange(100)),
        ("annotations", "site.example/owner"): "somebody",
    }
    world.note("the site changes its own labels")
    world.api.update("site-controller", changes)
    return 0.0


def node_recreated(world: World, rng: Random) -> float:
    """Delete the Node, and create it again at once or later."""
    seconds = rng.choice([0.0, 20.0, 300.0])
    world.needs(AN_HOUR)
    world.note(f"the Node is deleted, and anew in {seconds} s")
    world.judge.drifted(
        key for kind, key in world.api.fields if kind == "labels" and world.ours(key)
    )
    world.api.exists = False
    world.api.fields, world.api.owners = {}, {}
    world.judge.trouble(world.time, begins=True)

    def anew() -> None:
        if not world.api.exists:
            world.api.recreate()
        world.judge.trouble(world.time, begins=False)

    world.at(seconds, anew)
    world.at(seconds + 1.0, partial(link_flap, world, rng) if rng.random() < 0.5 else lambda: None)
    return seconds + 1.0
