"""The switches above a node, by the tables of a subnet administrator."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import Malformed, Unavailable
from agent.infiniband import sa
from agent.infiniband.devices import Entries, SubnetPort
from agent.infiniband.exploration import (
    Exploration,
    Subnets,
    counting,
    explore,
    look,
    recording,
    replaying,
)
from agent.infiniband.smp import PortUnavailable
from agent.infiniband.tiers import UNKNOWN, LinkEnd
from agent.reasons import NeighborReason
from tests.support.sas import CABLES, GUID, Administrator, link, node, reply


def explored(administrator: Administrator) -> Exploration:
    """Return what a port on the first leaf explores."""
    return explore([administrator.port("leaf1")], administrator, 1)


def test_a_pod_below_two_cores() -> None:
    """Its spines are tier 1, the lowest core is tier 2; each table is asked for once."""
    administrator = Administrator(*CABLES)
    found, faults, *_ = explored(administrator)
    assert [found.label(1), found.label(2), found.reason, faults] == ["spine1", "core1", None, ()]
    assert [found.names[guid] for guid in found.tier_1] == ["spine1", "spine2"]
    assert len(administrator.asked) == len(set(administrator.asked)) == found.questions + 2


def test_the_links_of_a_switch() -> None:
    """In the order of ports; a host is known by its link alone, the CA inside a switch is none."""
    administrator = Administrator(*CABLES, ("leaf1/2", "leaf1/3"))
    subnets = Subnets(administrator, 1)
    subnets.add(administrator.port("leaf1")[0])
    assert subnets.links(administrator.guid("leaf1")) == [
        LinkEnd(1, UNKNOWN, 1, is_switch=False, is_host=True),
        LinkEnd(41, administrator.guid("spine1"), 1, is_switch=True, is_host=False),
        LinkEnd(42, administrator.guid("spine2"), 1, is_switch=True, is_host=False),
        LinkEnd(65, UNKNOWN, 1, is_switch=False, is_host=False),
    ]


def test_without_hosts_no_table_of_the_others_is_asked_for() -> None:
    """As a limited member of the partition sees it: switches, and links between them."""
    cables = [cable for cable in CABLES if not cable[1].startswith(("host", "inside"))]
    administrator = Administrator(*cables)
    assert explored(administrator).tiers.label(2) == "core1"
    assert len(administrator.asked) == explored(administrator).tiers.questions + 1


def test_a_switch_without_lid_has_no_links() -> None:
    """The subnet manager has not configured it yet."""
    administrator = Administrator(*CABLES)
    administrator.lids["spine9"] = 0
    subnets = Subnets(administrator, 1)
    subnets.add(administrator.port("leaf1")[0])
    assert subnets.links(administrator.guid("spine9")) == []


# Two rails that are subnets of their own, with the same LIDs; the node has two ports in the first.
RAILS = [
    Administrator(
        *(
            (f"{rail}{leaf}/{40 + spine}", f"s{rail}{spine}/{leaf}")
            for leaf in (1, 2)
            for spine in (1, 2)
        ),
        guid=GUID + number * 1000,
    )
    for number, rail in enumerate("ab")
]
PORTS = (
    RAILS[0].port("a1", lid=10),
    RAILS[0].port("a2", lid=11),
    RAILS[1].port("b1", lid=20),
    RAILS[1].port("b2", lid=21),
)


def of_rails(port: SubnetPort, request: bytes) -> bytes:
    return RAILS[port.lid // 10 - 1](port, request)


def test_each_subnet_has_its_own_administrator() -> None:
    """A port whose leaf is listed already asks for no table; both rails are one tier."""
    for rail in RAILS:
        rail.asked.clear()
    found, faults, *_ = explore(PORTS, of_rails, 1)
    assert (len(found.leaves), faults) == (4, ())
    assert [found.names[guid] for guid in found.tier_1] == ["sa1", "sa2", "sb1", "sb2"]
    for rail in RAILS:
        assert len([request for request in rail.asked if request[55] == 0x10]) == 1


def test_a_subnet_that_fails_leaves_the_other() -> None:
    """With one line a port, as another may be answered."""

    def failing(port: SubnetPort, request: bytes) -> bytes:
        if port.lid < 20:
            raise PortUnavailable(NeighborReason.NO_ANSWER, f"{port.device}: no answer")
        return of_rails(port, request)

    found, faults, *_ = explore(PORTS, failing, 1)
    assert [found.names[guid] for guid in found.tier_1] == ["sb1", "sb2"]
    assert faults == ("ib-a1: no answer", "ib-a2: no answer")


def test_the_second_port_of_a_subnet_is_asked_where_the_first_fails() -> None:
    """Its link may be the reason."""

    def failing(port: SubnetPort, request: bytes) -> bytes:
        if port.lid == 10:
            raise PortUnavailable(NeighborReason.NO_ANSWER, f"{port.device}: no answer")
        return of_rails(port, request)

    found, faults, *_ = explore(PORTS, failing, 1)
    assert (len(found.leaves), faults) == (4, ("ib-a1: no answer",))


def test_an_administrator_of_another_subnet() -> None:
    """It lists other switches: nothing is known."""
    port = RAILS[0].port("a1")[0], "b0cf0e03000fffff"
    text = "ib-a1 port 1: leaf switch b0cf0e03000fffff is none of 4 that the subnet administrator"
    with pytest.raises(Unavailable, match=text):
        explore([port], RAILS[0], 1)


def test_an_administrator_that_lists_no_switch() -> None:
    """As to a limited member, where the switches are limited members, too."""
    administrator = Administrator()
    with pytest.raises(Unavailable, match=r"is none of 0 .*\(limited members"):
        explore([RAILS[0].port("a1")], administrator, 1)


def test_no_port_to_ask() -> None:
    with pytest.raises(Unavailable, match="none of the node's leaf switches"):
        explore([], RAILS[0], 1)


def test_names_are_those_of_administrators() -> None:
    """Factory text is none, and the text of a stranger is one line."""
    administrator = Administrator(("Quantum Mellanox Technologies/1", "a\nb/1"))
    subnets = Subnets(administrator, 1)
    subnets.add(administrator.port("a\nb")[0])
    assert [*subnets.switches.values()] == [None, "a\\x0ab"]


class Hostile(Administrator):
    """One that changes the records about the second spine."""

    def __init__(self, change: Callable[[Administrator, list[bytes]], list[bytes]]) -> None:
        super().__init__(*CABLES)
        self.change = change

    def records(self, request: bytes) -> list[bytes]:
        records = super().records(request)
        lid = int.from_bytes(request[56:58], "big")
        return self.change(self, records) if lid in {0, self.lids["spine2"]} else records


def with_link(
    far: int, far_port: int, port: int, lid: int | None = None
) -> Callable[[Administrator, list[bytes]], list[bytes]]:
    """Add a link to LID `far`, 0 for its own."""

    def change(administrator: Administrator, records: list[bytes]) -> list[bytes]:
        own = administrator.lids["spine2"]
        row = link(far or own, far_port, lid or own, port)
        return [*records, row] if len(records[0]) == 8 else records

    return change


def with_node(record: bytes) -> Callable[[Administrator, list[bytes]], list[bytes]]:
    return lambda _, records: [*records, record] if len(records[0]) > 8 else records


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (with_link(0, 50, 50), "from port 50 to itself"),
        (with_link(9, 1, 1), "two from port 1"),
        (with_link(9, 1, 66), "from port 66 of 65"),
        (with_link(9, 1, 0), "from port 0 of 65"),
        (with_link(1, 66, 50), "to port 66 of 65"),
        (with_link(1, 0, 50), "to port 0 of 65"),
        (
            lambda of, rows: [link(1, 0, of.lids["spine2"])] if len(rows[0]) == 8 else rows,
            "to port 0 of 65",
        ),
        (with_link(0xC000, 1, 50), "to 0xc000"),
        (with_link(1, 1, 50, 99), "LinkRecord of LID 99 instead of"),
        (lambda _, rows: rows * 600 if len(rows[0]) == 8 else rows, "bytes instead of 56 to 4096"),
        (with_node(node(1, b"other", 2, GUID + 9999)), "two switches have LID 1"),
        (
            with_node(node(7777, b"other", 2, GUID + 1)),
            f"two NodeRecords of the switch {GUID + 1:x}",
        ),
        (with_node(node(50, b"node17 mlx5_0", 1, GUID + 50)), "of the CA"),
        (
            lambda _, rows: rows * 2000 if len(rows[0]) > 8 else rows,
            "bytes instead of 56 to 1120056",
        ),
    ],
)
def test_records_that_cannot_be_end_the_exploration(
    change: Callable[[Administrator, list[bytes]], list[bytes]], text: str
) -> None:
    """In one line, which names what is wrong; nothing of it is a tier."""
    administrator = Hostile(change)
    with pytest.raises(Unavailable, match=text) as failure:
        explored(administrator)
    assert "\n" not in str(failure.value)
    assert len(administrator.asked) < 20


def test_doubled_records_count_once() -> None:
    administrator = Hostile(lambda _, records: records * 2)
    assert explored(administrator).tiers == explored(Administrator(*CABLES)).tiers


@given(st.lists(st.binary(min_size=8, max_size=8), max_size=20), st.binary(max_size=400))
def test_any_answer_is_tiers_or_a_clean_error(links: list[bytes], rest: bytes) -> None:
    """Of known switches only."""

    class Strange(Administrator):
        def __call__(self, port: SubnetPort, request: bytes) -> bytes:
            good = super().__call__(port, request)
            if request[17] == 0x20:
                own = request[56:58]
                return reply(request, *self.records(request), *(own + row[2:] for row in links))
            return good if request[55] == 0x10 else good[:56] + rest

    administrator = Strange(*CABLES)
    with suppress(Unavailable):
        found, *_ = explored(administrator)
        assert {*found.tier_1, *found.leaves} <= {
            administrator.guid(name) for name in administrator.lids
        }


def test_a_recording_replays_to_the_same_tiers() -> None:
    """Through JSON, whatever the TransactionIDs; a question that is not in it is not recorded."""
    entries: Entries = {}
    found = explore(PORTS, recording(of_rails, entries), 0xFFFFFFFF)
    document = json.loads(json.dumps([*entries.values()]))
    assert {entry["error"] for entry in document} == {None}
    recorded = {(entry["device"], entry["port"]): entry for entry in document}
    assert explore(PORTS, replaying(recorded), 7) == found
    del recorded["ib-a1", 1]["exchanges"][-1]
    with pytest.raises(Unavailable, match="ib-a1 port 1: not-recorded"):
        explore(PORTS, replaying(recorded), 7)


def test_a_recorded_failure_replays() -> None:
    """With its reason in place of its text."""
    entries: Entries = {}

    def failing(port: SubnetPort, request: bytes) -> bytes:
        raise PortUnavailable(NeighborReason.SEND_FAILED, f"{port.device}: {len(request)} bytes")

    with pytest.raises(Unavailable, match="ib-a1: 256 bytes"):
        explore(PORTS, recording(failing, entries), 1)
    with pytest.raises(Unavailable, match="ib-a1 port 1: send-failed"):
        explore(PORTS, replaying(entries), 1)


@pytest.mark.parametrize("exchanges", [None, 5, [{}], [{"request": "zz"}]])
def test_a_malformed_recording_is_refused(exchanges: object) -> None:
    with pytest.raises(Malformed, match="a recorded exchange is malformed"):
        replaying({("ib-a1", 1): {"exchanges": exchanges}})


def test_what_a_memory_needs_of_the_table() -> None:
    """The switches of the tiers and of the uplinks, known ones, and those with their names."""
    administrator = Administrator(*CABLES, ("leaf9/1", "spine9/1"), ("twin/1", "leaf8/1"))
    port, known = administrator.port("leaf1"), administrator.guid("spine9")
    found = explore([port], administrator, 1, {known: "spine9", "b0cf0e03ffffffff": "twin"})
    names = [found.switches[guid] for guid in sorted(found.switches)]
    assert names == ["leaf1", "spine1", "spine2", "core1", "spine9", "twin"]
    assert {*found.lids.values()} == {administrator.lids[n] for n in ("leaf1", "spine1", "spine2")}


def looked(
    administrator: Administrator, lids: Mapping[str, int] | None = None
) -> tuple[bool, list[str]]:
    """Return if a look at the first leaf agrees with an exploration before, and what was asked."""
    found = explored(Administrator(*CABLES))
    port, known = administrator.port("leaf1"), found.lids if lids is None else lids
    administrator.asked.clear()
    agrees, after, up, _ = look([port, port], administrator, 1, found.tiers.uplinks, known)
    rows = administrator.links[administrator.lids["leaf1"]]
    assert up == {administrator.guid("leaf1"): sorted({row[2] for row in rows} & {41, 42})}
    near = ("leaf1", "spine1", "spine2")
    if len(administrator.asked) > 1:
        assert after == {
            **known,
            **{administrator.guid(name): administrator.lids[name] for name in near},
        }
    return agrees, [
        "links" if sa.require_get_table(request)[0] else "switches"
        for request in administrator.asked
    ]


def test_a_look_at_a_leaf_is_one_question() -> None:
    """The same switches, by their LIDs; hosts are none, and a link that is down says nothing."""
    administrator = Administrator(*CABLES)
    assert looked(administrator) == (True, ["links"])
    administrator.links[1] = [row for row in administrator.links[1] if row[2] != 42]
    assert looked(administrator) == (True, ["links"])


def test_a_look_tells_of_another_switch() -> None:
    """Once the switches were asked for: it might have been another LID alone."""
    administrator = Administrator(*CABLES)
    rows = administrator.links[1]
    other = administrator.lids["spine3"]
    administrator.links[1] = [link(other, 1, 1, 41) if row[2] == 41 else row for row in rows]
    assert looked(administrator) == (False, ["links", "switches", "links"])


def test_a_look_without_lids_asks_for_the_switches() -> None:
    """As after a restart."""
    assert looked(Administrator(*CABLES), {}) == (True, ["switches", "links"])


def test_other_lids_are_no_other_switches() -> None:
    """All of them are others, or those of two spines and of the leaf and a host are exchanged."""
    administrator = Administrator(*CABLES)
    administrator.renumber()
    assert looked(administrator) == (True, ["links", "switches", "links"])
    found = explored(Administrator(*CABLES))
    names = ("spine1", "spine2"), ("leaf1", "leaf3")
    for first, second in names:
        administrator = Administrator(*CABLES)
        one, two = (administrator.guid(name) for name in (first, second))
        lids = {**found.lids, one: administrator.lids[second], two: administrator.lids[first]}
        assert looked(administrator, lids) == (True, ["links", "switches", "links"])


def test_a_leaf_whose_uplinks_are_down_may_have_another_lid() -> None:
    """So the switches are asked for; it contradicts nothing."""
    administrator = Administrator(*CABLES)
    administrator.links[1] = [row for row in administrator.links[1] if row[2] < 40]
    assert looked(administrator) == (True, ["links", "switches", "links"])


def test_a_look_that_fails_is_one_line() -> None:
    administrator = Administrator(*CABLES)
    administrator.links[1] = [link(1, 1, 9, 41)]
    with pytest.raises(Unavailable, match="LinkRecord of LID 9 instead of 1"):
        looked(administrator)
    administrator.links[1] = [link(0xC000, 1, 1, 41)]
    with pytest.raises(Unavailable, match="ib-leaf1 port 1: SA reply: LinkRecord from LID 1"):
        looked(administrator)


def test_questions_are_counted_by_outcome() -> None:
    """A refusal is known by the reply; what it means is left to the caller."""
    administrator, outcomes = Administrator(*CABLES), dict[str, int]()
    explore([administrator.port("leaf1")], counting(administrator, outcomes), 1)
    assert outcomes == {"answered": len(administrator.asked)}

    def refusing(_port: SubnetPort, request: bytes) -> bytes:
        return reply(request, status=0x0700)

    def silent(port: SubnetPort, _request: bytes) -> bytes:
        raise PortUnavailable(NeighborReason.NO_ANSWER, f"{port.device}: no answer")

    for ask in (refusing, silent, lambda *_: b"short"):
        with pytest.raises(Unavailable):
            explore([administrator.port("leaf1")], counting(ask, outcomes), 1)
    known = {"sa-refused": 1, "no-answer": 1, "malformed": 1}
    assert outcomes == {"answered": len(administrator.asked)} | known
