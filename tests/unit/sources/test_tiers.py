"""The switches above the leaves: which ports ask for them, and what is told where none can."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from agent.errors import Unavailable
from agent.host import Host
from agent.infiniband.devices import AskingPort, SubnetPort
from agent.infiniband.exploration import Exploration, as_json, loaded
from agent.model import Absent, Failed, IbNeighbor, Link, Neighbor, Reading, Seen
from agent.snapshot.tree import MemoryStore, Tree
from agent.sources import ib as source
from agent.sysfs.worker import InlineWorker
from tests.support.devices import PORT, assign, ib
from tests.support.sas import CABLES, Administrator
from tests.support.sources import Ports, memories_of

ADMINISTRATOR = Administrator(*CABLES)
PLACE = {"lid": "0x16", "sm_lid": "0x9", "sm_sl": "2", "pkeys/0": "0xffff"}


def link(interface: str, kind: str = "switch", via: str = "smp", leaf: str = "leaf1") -> Link:
    guid = ADMINISTRATOR.guid(leaf) if leaf in ADMINISTRATOR.lids else "b0cf0e03ffffffff"
    return Link(
        interface, None, (Neighbor(leaf, "1", None, IbNeighbor(kind, guid, None, 1, leaf, via)),)
    )


def reading(
    *links: Link, place: dict[str, str | None] | None = None, explore: Any = ADMINISTRATOR.explore
) -> Reading[Any]:
    """Read over two ports with these places in the subnet."""
    files = {
        f"sys/class/infiniband/ibp{number}/ports/1/{name}": f"{text}\n".encode()
        for number in range(2)
        for name, text in (PLACE | (place or {}) if number == 0 else PLACE).items()
        if text is not None
    }
    tree = Tree(MemoryStore(files), {})
    host = Host(tree, lambda: 0.0, explore=explore, worker=InlineWorker)
    return explored(host, assign([ib("ibp0", 0), ib("ibp1", 1)]), Seen(links))


def explored(host: Host, ports: Ports, links: Seen[Any] | Failed) -> Reading[Any]:
    return source.explore(host, ports, memories_of(host), links)


def texts(read: Reading[Any]) -> list[str]:
    return [problem.text for problem in read.problems]


def test_the_ports_that_have_a_leaf_ask() -> None:
    """A port that was not reached by SMPs may be a virtual one, and has its prefix; another one
    sends SMPs where the administrator refuses.
    """
    asked: list[AskingPort] = []

    def explore(ports: Sequence[AskingPort], entries: Any, _known: Any) -> Exploration:
        asked.extend(ports)
        return ADMINISTRATOR.explore(ports, entries)

    outcome, problems = reading(link("ibp0"), link("ibp1", via="sa"), explore=explore)
    assert isinstance(outcome, Seen)
    tiers = outcome.value.tiers
    assert (tiers.label(1), tiers.label(2), problems) == ("spine1", "core1", ())
    assert [port for port, _ in asked] == [
        SubnetPort("ibp0", 1, 22, 9, 2, 0, None, ("ibp0", 1)),
        SubnetPort("ibp1", 1, 22, 9, 2, 0, 0xFE80 << 48),
    ]
    assert {leaf for _, leaf in asked} == {ADMINISTRATOR.guid("leaf1")}


@pytest.mark.parametrize("links", [(), (link("ibp0", "CA"),), (Link("ibp0", None),)])
def test_without_a_leaf_there_is_nothing_above(links: tuple[Link, ...]) -> None:
    """No link, a cable to another host, no answer."""
    assert isinstance(reading(*links).outcome, Absent)


def test_a_source_that_failed_has_no_leaves() -> None:
    host = Host(Tree(MemoryStore({}), {}), lambda: 0.0, explore=ADMINISTRATOR.explore)
    assert explored(host, (), Failed("no library")).outcome == Failed("no library")


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ({"sm_lid": "0x0"}, "ibp0: no subnet manager has configured the port"),
        ({"lid": "0x0"}, "ibp0: the port has no LID of its own to ask the subnet"),
        ({"lid": None, "sm_lid": None}, "ibp0: its LID was not recorded (`capture --tiers` does)"),
    ],
)
def test_a_port_that_cannot_ask_is_told(place: dict[str, str | None], text: str) -> None:
    """If no other one asks about its leaf."""
    both = reading(link("ibp0"), link("ibp1"), place=place)
    assert isinstance(both.outcome, Seen)
    assert both.problems == ()
    apart = reading(link("ibp0", leaf="leaf9"), link("ibp1"), place=place)
    assert isinstance(apart.outcome, Seen)
    [problem] = texts(apart)
    assert problem.startswith(text)
    alone = reading(link("ibp0"), place=place).outcome
    assert isinstance(alone, Failed)
    assert alone.reason.startswith(text)


def test_a_port_that_is_not_active_asks_nobody() -> None:
    """Only an ACTIVE one sends to the subnet administrator."""
    ports = assign([ib("ibp0", 0, PORT._replace(state="INIT"))])
    host = Host(
        Tree(MemoryStore({}), {}),
        lambda: 0.0,
        explore=ADMINISTRATOR.explore,
        worker=InlineWorker,
    )
    assert isinstance(explored(host, ports, Seen((link("ibp0"),))).outcome, Failed)


def test_a_failed_exploration_is_one_line() -> None:
    def explore(*_of: Any) -> Exploration:
        raise Unavailable("ibp0 port 1: no answer in 5000 ms")

    failed = reading(link("ibp0"), explore=explore)
    assert failed == (Failed("ibp0 port 1: no answer in 5000 ms"), ())


def test_the_faults_of_an_exploration_are_problems() -> None:
    """A subnet that does not answer, beside one that does."""

    def explore(ports: Sequence[AskingPort], *_others: Any) -> Exploration:
        return ADMINISTRATOR.explore(ports)._replace(faults=("ibp1 port 1: no answer",))

    found = reading(link("ibp0"), explore=explore)
    assert isinstance(found.outcome, Seen)
    assert texts(found) == ["ibp1 port 1: no answer"]


def test_what_a_helper_writes_is_read_as_it_was() -> None:
    """Through JSON, with paths."""
    found = ADMINISTRATOR.explore([ADMINISTRATOR.port("leaf1")])
    assert found.tiers.paths
    assert loaded(json.loads(json.dumps(as_json(found)))) == found
    without = Administrator(("leaf1/1", "host1/1")).explore([ADMINISTRATOR.port("leaf1")])
    assert without.tiers.reason == "top"
    assert loaded(json.loads(json.dumps(as_json(without)))) == without
