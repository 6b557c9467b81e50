"""The switches above a node by SMPs, where the subnet administrator refuses."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable

import pytest

from agent.errors import Unavailable
from agent.infiniband.devices import AskingPort, Entries
from agent.infiniband.exploration import (
    Exploration,
    as_json,
    counting,
    explore,
    loaded,
    look,
    recording,
    replaying,
)
from agent.infiniband.smp import Attribute, PortUnavailable, is_smp
from agent.infiniband.snapshot import RecordedSmps
from agent.reasons import NeighborReason
from agent.snapshot.anonymize import Names
from tests.support import sas, smps
from tests.support.routes import Routes
from tests.support.subnets import SHAPES, three_tiers


def pods() -> Routes:
    """Return a host in a pod of one rail, with the CA inside each switch."""
    subnet = three_tiers(rails=1, units=4)
    subnet.sharp()
    return Routes(subnet, next(iter(subnet.pods)))


def explored(routes: Routes) -> Exploration:
    return explore(routes.ports, routes, 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_walk_has_the_tiers_that_the_administrator_has(shape: str) -> None:
    """By questions about the switches near by alone, each once; nothing depends on their number."""
    subnet = SHAPES[shape].make()
    for node in [*subnet.pods][:: max(len(subnet.pods) // 2, 1)]:
        routes = Routes(subnet, node)
        found, wanted = explored(routes), subnet.tiers(subnet.leaves(node))
        tiers = found.tiers
        assert [tiers.label(1), tiers.label(2)] == [wanted.label(1), wanted.label(2)]
        assert (tiers.reason, tiers.tier_1) == (wanted.reason, wanted.tier_1)
        assert (tiers.uplinks, tiers.paths) == (wanted.uplinks, wanted.paths)
        assert {link.guid for path in tiers.paths for link in path} <= {*found.by_smps}
        assert len(routes.asked) == len({(device, smp[16:]) for device, smp in routes.asked})
        assert max(smp[7] for _, smp in routes.asked) <= 6
        assert loaded(as_json(found)) == found


def refusing(request: bytes) -> bytes:
    return sas.reply(request, status=0x0700)


def empty(request: bytes) -> bytes:
    return sas.reply(request)


def busy(request: bytes) -> bytes:
    return sas.reply(request, status=0x0001)


def silent(_request: bytes) -> bytes:
    raise PortUnavailable(NeighborReason.NO_ANSWER, "ib0 port 1: no answer")


@pytest.mark.parametrize(
    ("refuse", "why"),
    [
        (refusing, "SA reply: Status is 0x0700 (request denied)"),
        (silent, "ib0 port 1: no answer"),
        (empty, "is none of 0 that the subnet administrator lists (limited members"),
    ],
)
def test_a_refusal_makes_a_port_walk(refuse: Callable[[bytes], bytes], why: str) -> None:
    """The line is kept, and is no fault; SMPs are counted apart."""
    routes, outcomes = pods(), dict[str, int]()
    routes.refuse = refuse
    found = explore(routes.ports, counting(routes, outcomes), 1)
    assert (found.tiers.label(1), found.tiers.label(2)) == ("p0-r0-spine0", "core00")
    (line,) = found.walked
    assert why in line
    assert found.faults == ()
    assert outcomes.pop("smps") == len(routes.asked)
    assert sum(outcomes.values()) == 1
    routes = pods()
    routes.refuse = refuse
    ports = [(port._replace(sender=None), leaf) for port, leaf in routes.ports if port]
    with pytest.raises(Unavailable) as failed:
        explore(ports, routes, 1)
    assert str(failed.value) == line
    assert not routes.asked


def test_a_silent_administrator_is_waited_for_once() -> None:
    """By ports with its LID and prefix, in an exploration and in a look."""
    subnet = three_tiers(rails=3, units=4)
    routes, asked = Routes(subnet, next(iter(subnet.pods))), list[bytes]()

    def refuse(request: bytes) -> bytes:
        asked.append(request)
        return silent(request)

    routes.refuse = refuse
    found = explored(routes)
    assert (found.tiers, len(asked)) == (subnet.tiers(subnet.leaves(next(iter(subnet.pods)))), 1)
    silence = "ib0 port 1: no answer"
    assert found.walked == (
        silence,
        *(f"ib{at} port 1: not asked, since {silence}" for at in (1, 2)),
    )
    asked.clear()
    lids = dict.fromkeys(subnet.names, 5)
    assert look(routes.ports, routes, 1, found.tiers.uplinks, lids).agrees
    assert len(asked) == 1
    asked.clear()
    first, second, third = ((port, leaf) for port, leaf in routes.ports if port)
    others = [first, (second[0]._replace(sm_lid=7), second[1]), third]
    assert explore(others, routes, 1).tiers == found.tiers
    assert len(asked) == 2
    asked.clear()
    routes.silent = {third[1]}  # its SMPs are not answered: the administrator is asked after all
    assert len(explore([first, third], routes, 1).faults) == 1
    assert len(asked) == 2


@pytest.mark.parametrize("refuse", [busy, lambda _: b"short"])
def test_what_is_no_refusal_makes_no_port_walk(refuse: Callable[[bytes], bytes]) -> None:
    routes = pods()
    routes.refuse = refuse
    with pytest.raises(Unavailable):
        explored(routes)
    assert not routes.asked


def test_an_administrator_that_answers_is_asked_alone() -> None:
    administrator = sas.Administrator(*sas.CABLES)
    port, leaf = administrator.port("leaf1")
    found = explore([(port._replace(sender=("ib0", 1)), leaf)], administrator, 1)
    assert (found.tiers.label(1), found.walked, found.by_smps) == ("spine1", (), ())
    assert not any(map(is_smp, administrator.asked))


def test_a_look_by_smps_is_about_the_leaf_alone() -> None:
    """One that is down says nothing, another switch contradicts."""
    routes = pods()
    found = explored(routes)
    ((_, leaf),) = routes.ports
    (first, *others), count = found.tiers.uplinks[leaf], len(routes.asked)

    def looked() -> tuple[bool, list[int]]:
        routes.asked.clear()
        answer = look(routes.ports, routes, 1, found.tiers.uplinks, found.lids)
        assert len(routes.asked) < count / 4
        return answer.agrees, [*answer.up[leaf]]

    assert looked() == (True, [first, *others])
    routes.down.add((leaf, first))
    assert looked() == (True, others)
    subnet = routes.subnet
    subnet.ports[leaf][others[0]] = subnet.named("p1-r0-spine0"), 1
    assert looked() == (False, others)


Lie = Callable[[str, int, Attribute], bytes | None]  # of a node, its port and an attribute


def info(guid: str, ports: int = 10, at: int = 1, kind: int = 2) -> bytes:
    return smps.node_info(kind, ports, int(guid, 16), at)


def told(routes: Routes) -> str:
    """Return the line of a walk that fails."""
    with pytest.raises(Unavailable) as failed:
        explored(routes)
    assert "\n" not in str(failed.value)
    return str(failed.value)


def test_a_leaf_that_does_not_answer_is_said_beside_the_refusal() -> None:
    """As where an M_Key drops SMPs; so is another node at the far end."""
    routes = pods()
    routes.silent = {*routes.subnet.kinds}
    assert told(routes).endswith("(request denied); by SMPs: ib0 port 1: no answer")
    assert len(routes.asked) == 1
    routes = pods()
    routes.lie = lambda _node, at, attribute: (
        info("b" * 16, at=at) if attribute == Attribute.NODE_INFO else None
    )
    assert "by SMPs: the switch bbbbbbbbbbbbbbbb is at the far end" in told(routes)


@pytest.mark.parametrize(
    ("of", "text"),
    [
        ({"ports": 9}, "has [0-9]+ ports, and 9"),
        ({"at": 99}, "port 99 of"),
        ({"at": 1}, "leads to .* and to"),
        ({"kind": 9}, "NodeType 9 does not exist"),
        ({"at": 0}, "LocalPortNum is zero"),
    ],
)
def test_a_switch_that_contradicts_itself_ends_the_walk(of: dict[str, int], text: str) -> None:
    """The second of its links leads to where the first does, or it is another one."""
    routes = pods()
    spine, asked = routes.subnet.named("p0-r0-spine0"), list[int]()

    def lie(node: str, at: int, attribute: Attribute) -> bytes | None:
        if node != spine or attribute != Attribute.NODE_INFO:
            return None
        asked.append(at)
        truth = {"ports": max(routes.subnet.ports[spine]), "at": at}
        return info(spine, **(truth | (of if len(asked) > 1 else {})))

    routes.lie = lie
    assert re.search(text, told(routes))


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (lambda request, data: smps.reply(request[:130] + b"\x63" + request[131:], data), "route"),
        (lambda request, data: smps.reply(request, data, 0x801C), "invalid attribute value"),
        (lambda _request, _data: b"", "0 bytes"),
    ],
)
def test_a_malformed_answer_ends_the_walk(reply: Callable[..., bytes], text: str) -> None:
    """One to another route, a refusal, no MAD."""
    routes = pods()
    routes.reply = lambda request, data: (reply if request[7] > 1 else smps.reply)(request, data)
    assert text in told(routes)


@pytest.mark.parametrize(
    ("hops", "attribute"), [(2, Attribute.NODE_INFO), (1, Attribute.PORT_INFO)]
)
def test_a_busy_node_does_not_end_the_walk(hops: int, attribute: Attribute) -> None:
    """An uplink that cannot be read at the leaf is met from its other end."""
    routes = pods()
    ((_, leaf),) = routes.ports
    found = explored(routes)
    uplink = min(found.tiers.uplinks[leaf])

    def reply(request: bytes, data: bytes) -> bytes:
        is_about = uplink in (request[23], request[130])  # a port of the leaf, or on the route
        is_busy = is_about and (request[7], request[17]) == (hops, attribute)
        return smps.reply(request, data, 0x8001 if is_busy else 0x8000)

    routes.reply = reply
    assert explored(routes) == found


def test_nodes_that_are_busy_are_bounded() -> None:
    routes = pods()
    routes.reply = lambda request, data: smps.reply(
        request, data, 0x8001 if request[7] > 1 else 0x8000
    )
    for _ in range(17):
        routes.subnet.link(routes.subnet.add("host"), routes.ports[0][1])
    assert "(busy)" in told(routes)


def test_a_link_that_leads_back_to_its_own_port_ends_the_walk() -> None:
    routes = pods()
    ((_, leaf),) = routes.ports
    routes.subnet.ports[leaf][99] = leaf, 99
    assert f"a link from {leaf} port 99 to {leaf} port 99" in told(routes)
    routes = pods()
    routes.subnet.ports[leaf] |= {98: (leaf, 99), 99: (leaf, 98)}
    assert explored(routes).tiers.label(1) == "p0-r0-spine0"


@pytest.mark.parametrize("number", [3, 20])
def test_far_ends_that_do_not_answer_are_bounded(number: int) -> None:
    """A few say nothing, as what is down."""
    routes = pods()
    for _ in range(number):
        routes.subnet.link(dead := routes.subnet.add("host"), routes.ports[0][1])
        routes.silent.add(dead)
    if number > 16:
        assert "no answer" in told(routes)
    else:
        assert explored(routes).tiers.label(1) == "p0-r0-spine0"


def test_ports_without_end_are_bounded() -> None:
    """Each leads to another switch of 254 ports: 40,000 questions, then one line."""
    routes, count = pods(), iter(range(1, 10**6))
    ports: list[AskingPort] = [(routes.ports[0][0], f"{1:016x}")]
    routes.subnet.ports = defaultdict(lambda: dict.fromkeys(range(1, 255), ("b" * 16, 1)))

    def lie(_node: str, _at: int, attribute: Attribute) -> bytes:
        answers = {
            Attribute.NODE_INFO: lambda: smps.node_info(2, 254, next(count), 1),
            Attribute.PORT_INFO: lambda: smps.port_info(4),
        }
        return answers.get(attribute, lambda: b"spine")()

    routes.lie = lie
    with pytest.raises(Unavailable, match="more than 40,000 questions"):
        explore(ports, routes, 1)


def test_a_recorded_walk_replays_and_is_anonymized() -> None:
    """To the same tiers; under other names the lowest switches stay so."""
    routes, entries = pods(), Entries()
    found = explore(routes.ports, recording(routes, entries), 1)
    assert explore(routes.ports, replaying(entries), 7) == found
    names = Names()
    hidden = RecordedSmps(of_tiers=entries).anonymized(names)
    ((port, leaf),) = routes.ports
    assert port
    asking = port._replace(device=names.text(port.device)), names.guid(bytes.fromhex(leaf)).hex()
    tiers = hidden.explore([asking]).tiers
    assert [tiers.label(1), tiers.label(2)] == [names.peers["p0-r0-spine0"], names.peers["core00"]]
    content = b"".join(filter(None, hidden.files().values())).decode()
    assert b"spine0".hex() not in content
    assert leaf not in content
