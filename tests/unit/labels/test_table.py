"""The label table: rows, and what each yields of what is known, with the reasons of what stays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agent.labels.table import FLAVOR, LABELS, LEAF_GROUP, TIERS, Value, uncounted
from agent.memory import Fact, FarEnd, Known
from agent.reasons import HoldReason, NeighborReason

SPEED = "P/speed.current"
ROWS = {row.key: row for row in LABELS}
FAILED, GONE, OFF = HoldReason.DEVICE_FAILED, HoldReason.DEVICE_GONE, HoldReason.SOURCE_OFF
LENT, SOURCE = HoldReason.LENT, HoldReason.SOURCE_FAILED
INCOMPLETE, SILENT = HoldReason.INCOMPLETE, HoldReason.NO_NEIGHBOR
LEAF = FarEnd("b0cf0e0300d66c81", "MF0;leaf-1:MQM9700/U1", "3")
PLATE = FarEnd("00:1c:73:00:00:01", "\N{SNOWMAN}", "\N{SNOWMAN}")


def ib(number: int = 0, **facts: Any) -> Fact:
    """A port that is read, ACTIVE, and has no far end; or as `facts` have it."""
    return Fact(f"ibp{number}", f"0000:0{number}:00.0", 1, layer="InfiniBand", gbps=400.0, **facts)


def roce(number: int = 0, **facts: Any) -> Fact:
    """An Ethernet port like it."""
    return ib(number, **facts)._replace(layer="Ethernet", interface=f"eth{number}", gbps=100.0)


def unread(fact: Fact, why: HoldReason = FAILED, **facts: Any) -> Fact:
    """A port whose device is unread."""
    return fact._replace(state_since=1.0, role_since=1.0, state_why=why, **facts)


def known(*facts: Fact, **parts: Any) -> Known:
    return Known(facts, **{"is_read": True, **parts})


def frozen(hold: HoldReason) -> Value:
    return Value(None, hold=hold, is_frozen=True)


WHOLE: dict[str, Any] = {"whole": frozenset(ROWS)}  # all was published of all facts
FLAVORS: dict[str, tuple[Known, list[Value]]] = {
    "nothing": (known(), []),
    "InfiniBand": (known(ib()), [Value("infiniband")]),
    "both": (known(roce(), ib(1)), [Value("infiniband")]),
    "Ethernet": (known(roce()), [Value("roce")]),
    "off": (known(ib(), off=frozenset({"rdma"})), [frozen(OFF)]),
    "all unread": (
        known(unread(ib()), unread(ib(1), GONE)),
        [Value("infiniband", hold=FAILED, is_held=True)],
    ),
    "one is read": (known(unread(ib()), ib(1)), [Value("infiniband")]),
    "one has ended": (known(unread(ib(), has_ended=True), roce(1)), [Value(None, hold=FAILED)]),
    "RoCE unread": (known(unread(roce())), [Value("roce", hold=FAILED, is_held=True)]),
    "RoCE unread, and more": (
        known(unread(roce(), GONE), unknown=SOURCE),
        [Value("roce", hold=GONE, is_held=True)],
    ),
    "RoCE, and more": (known(roce(), unknown=SOURCE), [Value("roce", hold=SOURCE)]),
    "RoCE without its rate": (known(roce(), unknown=INCOMPLETE), [Value("roce")]),
    "ports are missing": (known(roce(), unknown=SOURCE, **WHOLE), [frozen(SOURCE)]),
    "another label was whole": (
        known(roce(), unknown=SOURCE, whole=frozenset({SPEED})),
        [Value("roce", hold=SOURCE)],
    ),
    "may be InfiniBand": (known(roce(), may_be_infiniband=True), [Value(None, hold=FAILED)]),
    "may be InfiniBand, the source fails": (
        known(roce(), may_be_infiniband=True, unknown=SOURCE),
        [Value(None, hold=SOURCE)],
    ),
    "no port, the source fails": (known(unknown=SOURCE), [Value(None, hold=SOURCE)]),
    "a port without link layer": (
        known(unread(roce(), GONE)._replace(layer=None), roce(1)),
        [Value(None, hold=GONE)],
    ),
}


@pytest.mark.parametrize(("facts", "values"), FLAVORS.values(), ids=FLAVORS)
def test_flavor(facts: Known, values: list[Value]) -> None:
    assert [*ROWS[FLAVOR].values(facts)] == values


SPEEDS: dict[str, tuple[Known, list[Value]]] = {
    "the sum": (known(ib(), ib(1)), [Value("800G", is_held=True)]),
    "no port": (known(), [Value("0G", is_held=True)]),
    "off": (known(ib(), off=frozenset({"rdma"})), [frozen(OFF)]),
    "one is unread": (
        known(unread(ib()), ib(1)),
        [Value("800G", hold=HoldReason.LAST_COUNT, is_held=True)],
    ),
    "the hold of one is over": (
        known(unread(ib(), state_ended=True)._replace(gbps=0.0), ib(1)),
        [Value("400G", is_held=True)],
    ),
    "ports are missing": (known(ib(), unknown=SOURCE, **WHOLE), [frozen(SOURCE)]),
    "ports are missing since the start": (
        known(ib(), unknown=SOURCE),
        [Value("400G", hold=SOURCE)],
    ),
    "the devices were never read": (known(is_read=False), [Value(None, hold=SOURCE)]),
    "the devices were never read, and it is known why": (
        known(is_read=False, unknown=FAILED),
        [Value(None, hold=FAILED)],
    ),
    "all holds are over": (known(unread(ib(), has_ended=True)), [Value(None, hold=FAILED)]),
    "the hold of one of two is over": (
        known(unread(ib(), has_ended=True)._replace(gbps=0.0), ib(1)),
        [Value("400G", hold=HoldReason.LAST_COUNT, is_held=True)],
    ),
    "a device is gone": (
        known(unread(ib(), GONE, has_ended=True, state_ended=True)._replace(gbps=0.0)),
        [Value("0G", is_held=True)],
    ),
    "no port has counted": (
        known(unread(ib(), SOURCE)._replace(gbps=None)),
        [Value(None, hold=SOURCE)],
    ),
    "devices that were never read": (known(has_strangers=True), [Value(None, hold=FAILED)]),
}


@pytest.mark.parametrize(("facts", "values"), SPEEDS.values(), ids=SPEEDS)
def test_speed(facts: Known, values: list[Value]) -> None:
    """Under both prefixes."""
    assert [*ROWS[SPEED].values(facts)] == [*ROWS["IB/speed.current"].values(facts)] == values
    reason = values[0].hold if values[0].text is None and not values[0].is_frozen else None
    if "rdma" not in facts.off and not facts.whole:
        assert (uncounted(facts) is not None) == (reason is not None)


JOINED: dict[str, tuple[Known, list[Value]]] = {
    "nothing": (known(), []),
    "seen": (known(ib(far=LEAF)), [Value("leaf-1")]),
    "held": (
        known(ib(far=LEAF, far_since=1.0, far_why=SOURCE), ib(1, far=LEAF)),
        [Value("leaf-1", hold=SOURCE, is_held=True)],
    ),
    "lent is the last reason": (
        known(ib(far=LEAF, far_why=LENT), ib(1, far=LEAF, far_why=SOURCE)),
        [Value("leaf-1", hold=SOURCE, is_held=True)],
    ),
    "one is missing": (known(ib(far=LEAF), ib(1, far_why=SILENT)), [Value("leaf-1", hold=SILENT)]),
    "its hold is over": (
        known(ib(far=LEAF), unread(ib(1, far_why=SILENT), has_ended=True)),
        [Value("leaf-1")],
    ),
    "down": (known(ib(far_why=HoldReason.LINK_DOWN)), []),
    "unheard": (known(ib(far_why=NeighborReason.SILENT)), []),
    "a station": (known(ib(far=LEAF._replace(is_station=True))), []),
    "ports are missing": (known(unknown=SOURCE), [Value(None, hold=SOURCE)]),
    "a port without its state": (known(ib(far=LEAF), unknown=INCOMPLETE), [Value("leaf-1")]),
    "off, without a port": (known(off=frozenset({"lldp", "ib"})), [Value(None, hold=OFF)]),
    "half off, without a port": (known(off=frozenset({"lldp"})), []),
    "off, with a port": (known(ib(far=LEAF), off=frozenset({"lldp", "ib"})), [Value("leaf-1")]),
}


@pytest.mark.parametrize(("facts", "values"), JOINED.values(), ids=JOINED)
def test_joined(facts: Known, values: list[Value]) -> None:
    """The leaves, and their ports, which stay for the same reasons."""
    assert [*ROWS["P/leaves.current"].values(facts)] == values
    ports = [value._replace(text=value.text and "leaf-1") for value in of_ports(facts)]
    assert [value._replace(text=value.text and "leaf-1") for value in values] == ports


def of_ports(facts: Known) -> list[Value]:
    return [*ROWS["IB/ports.current"].values(facts)]


def test_the_ports_of_leaves() -> None:
    """Each far port, in the order of the interfaces, be it unknown."""
    ends = ib(far=LEAF), ib(1, far=LEAF._replace(port_id=None)), ib(2, far=LEAF)
    assert of_ports(known(*ends)) == [Value("3__3")]


GROUPS: dict[str, tuple[Known, list[Value]]] = {
    "the last far ends": (
        known(ib(last_far=LEAF), ib(1, last_far=LEAF._replace(name="MF0;leaf-2:x/U1"))),
        [Value("leaf-1_leaf-2")],
    ),
    "nothing": (known(is_seeded=True), []),
    "a group of before": (known(ib(), group_hold=SILENT), [frozen(SILENT)]),
    "the source is off": (known(ib(last_far=LEAF), off=frozenset({"ib"})), [frozen(OFF)]),
    "another source is off": (
        known(ib(last_far=LEAF), off=frozenset({"lldp"})),
        [Value("leaf-1")],
    ),
    "the source is absent": (known(ib(last_far=LEAF), disabled=frozenset({"ib"})), []),
    "one is missing since the start": (known(ib(far_why=SILENT)), [Value(None, hold=SILENT)]),
    "one is missing of a Node": (known(ib(far_why=SILENT), is_seeded=True), []),
}


@pytest.mark.parametrize(("facts", "values"), GROUPS.values(), ids=GROUPS)
def test_leaf_group(facts: Known, values: list[Value]) -> None:
    assert [*ROWS[LEAF_GROUP].values(facts)] == values


@pytest.mark.parametrize("number", [1, 2])
def test_tiers(number: int) -> None:
    """Of InfiniBand alone, and of what is known; switched off they stay where they were written."""
    row, fabric = ROWS[TIERS[number - 1]], SimpleNamespace(label={1: "spine-1", 2: "core-1"}.get)
    parts: dict[str, Any] = {"fabric": fabric}
    assert [*row.values(known(ib(), **parts))] == [Value({1: "spine-1", 2: "core-1"}[number])]
    assert [*row.values(known(roce(), **parts))] == [*row.values(known(ib()))] == []
    assert [*row.values(known(unread(ib(), has_ended=True), **parts))] == []
    assert [*row.values(known(ib(), fabric=SimpleNamespace(label=lambda _number: None)))] == []
    off = frozenset({"tiers"})
    assert [*row.values(known(ib(), off=off, **parts, **WHOLE))] == [frozen(OFF)]
    others = frozenset({*TIERS}) - {row.key}
    assert [*row.values(known(ib(), off=off, whole=others, **parts))] == []


def interface_values(kind: str, *facts: Fact) -> list[Value]:
    return [*ROWS[f"P/neighbors.current.{{if}}.{kind}"].values(known(*facts))]


@pytest.mark.parametrize(
    ("kind", "text"), [("device", "leaf-1"), ("port-id", "3"), ("port-name", None)]
)
def test_an_interface(kind: str, text: str | None) -> None:
    """A port without name has no label; one whose far end may be there has none that is known."""
    assert interface_values(kind, ib(far=LEAF)) == [Value(text, "ibp0", is_held=True)]
    held = ib(far=LEAF, far_why=SOURCE)
    assert interface_values(kind, held) == [Value(text, "ibp0", SOURCE, is_held=True)]
    assert interface_values(kind, ib(far_why=SILENT)) == [Value(None, "ibp0", SILENT)]
    for fact in (ib(), ib(far_why=HoldReason.LINK_DOWN), ib(far=LEAF)._replace(interface="")):
        assert interface_values(kind, fact) == []


def test_texts_without_a_valid_character() -> None:
    """The device is the chassis ID or GUID, the port ID its hash, and a note says so."""
    [device], [port] = (interface_values(kind, roce(far=PLATE)) for kind in ("device", "port-id"))
    no = "no character of the neighbor's"
    assert device.text == PLATE.id
    assert (
        device.note
        == f"{no} name '\N{SNOWMAN}' is valid in a label: the device label is the chassis ID"
    )
    assert (
        port.note
        == f"{no} port ID '\N{SNOWMAN}' is valid in a label: the port-id label is its hash"
    )
    [device] = interface_values("device", ib(far=LEAF._replace(name="MF0;\N{SNOWMAN}:MQM9700/U1")))
    assert device.text == LEAF.id
    assert device.note
    assert device.note.endswith("the device label is the node GUID")
    [device] = interface_values("device", roce(far=PLATE._replace(id=None)))
    assert device.note
    assert device.note.endswith("the device label is missing")


def test_the_domain() -> None:
    """A remembered one is held; without one there is a reason, or no label at all."""
    values = ROWS["ACC"].values
    assert [*values(known(domain="a.1"))] == [Value("a.1")]
    lost = HoldReason.NO_DOMAIN
    assert [*values(known(domain="a.1", domain_why=lost))] == [
        Value("a.1", hold=lost, is_held=True)
    ]
    assert [*values(known(domain_why=lost))] == [Value(None, hold=lost, is_held=True)]
    assert [*values(known())] == []


def test_every_row_is_complete() -> None:
    """Each row has a key of a known family, its value in words and when it is absent."""
    assert all(row.key.startswith(("P/", "IB/")) or row.key == "ACC" for row in LABELS)
    assert all(row.value and row.absent for row in LABELS)


def test_each_tier_has_a_row() -> None:
    assert [row.tier for row in LABELS if row.tier is not None] == [0, 1, 2]


def test_no_key_has_two_rows() -> None:
    assert len({row.key for row in LABELS}) == len(LABELS)
