"""Equality of names: each tolerance, what it does not reach, and how it is switched off."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import encode
from agent.cabling.names import (
    TOLERANCES,
    compare_device,
    compare_port,
    same_name,
    twin_port,
)
from agent.cabling.seen import SeenEnd

LONG = "leaf-" + "x" * 70
SWITCH = SeenEnd(
    "L90.1.3",
    names=("L90.1.3",),
    guids=("fc6a1c0300aabb00",),
    description="MF0;L90.1.3:MQM9700/U1",
)
UNNAMED = SeenEnd("fc6a1c0300aabb00", guids=("fc6a1c0300aabb00",))
BY_MAC = SeenEnd("00:1c:73:aa:bb:cc", macs=("00:1c:73:aa:bb:cc",))


def leaf(name: str) -> SeenEnd:
    return SeenEnd(name, names=(name,), macs=("00:1c:73:aa:bb:cc",))


DEVICES = [
    ("leaf01", leaf("leaf01"), "exact"),
    ("Leaf01", leaf("leaf01"), "case"),
    ("leaf01", leaf("leaf01.dc1.example.com"), "fqdn"),
    ("LEAF01.dc1.example.com", leaf("leaf01"), "fqdn+case"),
    ("L90.1.3.dc1.example.com", SWITCH, "fqdn"),
    ("L90.1.3", leaf("l90.1.3.example.com"), "fqdn+case"),
    ("leaf1", leaf("leaf01"), "padding"),
    ("su1-leaf007", leaf("SU01-leaf7"), "padding+case"),
    ("leaf01.example.com", leaf("leaf1"), "padding+fqdn"),
    ("leaf-1", leaf("leaf 1"), "label"),
    ("leaf 1", leaf("leaf-1"), "label"),
    ("Leaf-1", leaf("leaf 1"), "label+case"),
    (encode.value(LONG), leaf(LONG), "label"),
    ("001c.73aa.bbcc", BY_MAC, "mac"),
    ("00-1C-73-AA-BB-CC", BY_MAC, "mac"),
    ("001c73aabbcc", leaf("leaf01"), "mac"),
    ("0xFC6A1C0300AABB00", SWITCH, "guid"),
    ("S-fc6a1c0300aabb00", SWITCH, "guid"),
    ("fc6a:1c03:00aa:bb00", UNNAMED, "guid"),
    ("MF0;L90.1.3:MQM9700/U1", SWITCH, "description"),
    ("MF0;L90.1.3:MQM9790/U1", SWITCH, "description"),
]


@pytest.mark.parametrize(("expected", "seen", "by"), DEVICES)
def test_equal_devices(expected: str, seen: SeenEnd, by: str) -> None:
    """Each is equal by its tolerance, and by none when that is switched off."""
    assert compare_device(expected, seen) == (True, by)
    if by != "exact":
        assert compare_device(expected, seen, frozenset(by.split("+"))).equal is not True


@pytest.mark.parametrize(
    ("expected", "seen"),
    [
        ("leaf01", leaf("leaf010")),
        ("leaf1", leaf("leaf10")),
        ("leaf0", leaf("leaf")),
        ("L90", SWITCH),  # "1.3" is no domain
        ("leaf01.dc1.example.com", leaf("leaf01.dc2.example.com")),
        ("0000000000000001", SWITCH),
        ("00:1c:73:aa:bb:cd", BY_MAC),
        (encode.value(LONG), leaf("leaf01")),
    ],
)
def test_different_devices(expected: str, seen: SeenEnd) -> None:
    """The names are of one kind, and not equal."""
    assert compare_device(expected, seen).equal is False


@pytest.mark.parametrize(
    ("expected", "seen"),
    [
        ("leaf01", UNNAMED),
        ("leaf01", BY_MAC),
        ("fc6a1c0300aabb00", leaf("leaf01")),
        ("00:1c:73:aa:bb:cc", UNNAMED),
    ],
)
def test_devices_that_cannot_be_compared(expected: str, seen: SeenEnd) -> None:
    """A name against an address only, or the reverse, is no difference."""
    assert compare_device(expected, seen).equal is None


def ethernet(port_id: str, port_name: str | None = None) -> SeenEnd:
    return SeenEnd("", port_id, port_name)


def infiniband(number: int, twin: bool | None = None) -> SeenEnd:
    return SeenEnd("", str(number), infiniband=True, twin_port=twin)


PORTS = [
    ("swp5", ethernet("swp5"), "exact"),
    ("Ethernet1-1", ethernet("Ethernet1/1"), "label"),
    ("Ethernet1/1", ethernet("Ethernet1-1"), "label"),
    ("ethernet1/1", ethernet("Ethernet1/1"), "case"),
    ("Eth1/1", ethernet("Ethernet1/1"), "abbreviation"),
    ("Et1-1", ethernet("Ethernet1/1"), "abbreviation"),
    ("Gi0/1", ethernet("GigabitEthernet0/1"), "abbreviation"),
    ("5", ethernet("swp5"), "number"),
    ("P5", ethernet("swp5"), "number"),
    ("Port 5", ethernet("5"), "number"),
    ("1/5", ethernet("Ethernet1/5"), "number"),
    ("1/2", ethernet("swp1s1"), "split"),
    ("Ethernet32", ethernet("etp5a", "Ethernet32"), "exact"),
    ("etp5a", ethernet("ETP5A"), "case"),
    ("5a", ethernet("etp5a"), "number"),
    ("001c.73aa.bbcc", ethernet("00:1c:73:aa:bb:cc"), "mac"),
    ("5", infiniband(5), "exact"),
    ("P5", infiniband(5), "number"),
    ("port 05", infiniband(5), "number"),
    ("IB1/5", infiniband(5, twin=False), "number"),
    ("3/1", infiniband(5, twin=True), "twin-port"),
    ("IB1/3/2", infiniband(6, twin=True), "twin-port"),
    ("sw3p1", infiniband(5, twin=True), "twin-port"),
]


@pytest.mark.parametrize(("expected", "seen", "by"), PORTS)
def test_equal_ports(expected: str, seen: SeenEnd, by: str) -> None:
    """Each is equal by its tolerance, and by none when all are switched off."""
    assert compare_port([expected], seen) == (True, by)
    if by != "exact":
        assert compare_port([expected], seen, frozenset(TOLERANCES)).equal is not True


@pytest.mark.parametrize(
    ("expected", "seen"),
    [
        ("eth1/1", ethernet("eth1/10")),
        ("Eth1/1", ethernet("Ethernet1/10")),
        ("Ethernet1-1", ethernet("Ethernet1/11")),
        ("swp5", ethernet("swp50")),
        ("5", ethernet("swp50")),
        ("1/2", ethernet("swp1s2")),
        ("etp5a", ethernet("etp5b")),
        ("etp5a", ethernet("etp15a")),
        ("1/2", ethernet("Ethernet1/3")),
        ("5", infiniband(50)),
        ("3/1", infiniband(3, twin=True)),
        ("IB1/3", infiniband(5, twin=False)),
    ],
)
def test_different_ports(expected: str, seen: SeenEnd) -> None:
    """Two numbers of one scheme are compared as wholes."""
    assert compare_port([expected], seen).equal is False


@pytest.mark.parametrize(
    ("expected", "seen"),
    [
        ("Ethernet32", ethernet("etp5a")),
        ("etp5", ethernet("etp5a")),
        ("5/1", ethernet("etp5a")),
        ("32", ethernet("Ethernet32")),  # SONiC numbers lanes, not ports
        ("5", ethernet("517", "et-0/0/5")),  # an ifIndex
        ("swp1", ethernet("swp1s0")),
        ("Ethernet1/1", ethernet("Ethernet1/1/1")),
        ("1/2", infiniband(3)),  # cage 1 port 2, or slot 1 port 2
        ("sw1p1", infiniband(1)),
        ("leaf-uplink", ethernet("swp5")),
        ("swp5", ethernet("00:1c:73:aa:bb:cc")),
    ],
)
def test_ports_that_cannot_be_compared(expected: str, seen: SeenEnd) -> None:
    """Names of different schemes are no difference."""
    assert compare_port([expected], seen).equal is None


def test_a_description_proves_no_difference() -> None:
    """People write it; it may be equal, or out of date."""
    seen = SeenEnd("", "00:1c:73:aa:bb:cc", port_description="swp5")
    assert compare_port(["swp5"], seen) == (True, "exact")
    assert compare_port(["swp6"], seen).equal is None


def test_one_of_several_names_is_enough() -> None:
    """The port ID of a plan may be an index that changed, and its name still be right."""
    assert compare_port(["7", "swp5"], ethernet("9", "swp5")) == (True, "exact")
    assert compare_port(["swp7", "swp8"], ethernet("9", "swp5")).equal is False


@pytest.mark.parametrize(
    ("text", "twin"),
    [
        ("MF0;L90.1.3:MQM9700/U1", True),
        ("MF0;x:Q3400_RA/U3", True),
        ("MF0;x:MQM8700/U1", False),
        ("Quantum Mellanox Technologies", None),
        (None, None),
    ],
)
def test_platforms(text: str | None, twin: bool | None) -> None:
    """The model stands in the NodeDescription of a managed switch."""
    assert twin_port(text) is twin


@given(st.integers(1, 999), st.integers(1, 999))
def test_numbers_are_equal_only_to_themselves(one: int, other: int) -> None:
    """No notation makes port 1 of port 10."""
    notations = ["eth1/{}", "Ethernet1/{}", "Ethernet1-{}", "Eth1/{}", "1/{}"]
    for first in notations:
        for second in notations[:3]:
            match = compare_port([first.format(one)], ethernet(second.format(other)))
            assert (match.equal is True) == (one == other)


@given(st.text(max_size=80), st.text(max_size=80))
def test_equality_of_names_is_symmetric(one: str, other: str) -> None:
    """A tolerance does not depend on which side the plan is."""
    assert (same_name(one, other) is None) == (same_name(other, one) is None)
    assert same_name(one, one) == "exact"
