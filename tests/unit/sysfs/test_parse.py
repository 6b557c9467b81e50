"""Parsers of kernel files: a table row is a text and its value; any other text is Malformed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import Malformed
from agent.sysfs import parse
from agent.sysfs.front_end import Hop, best

# drivers/infiniband/core/sysfs.c, rate_show: the speeds of ib_port_attr.active_speed, per lane in
# Gb/s as printed.
SPEEDS = {"SDR": 2.5, "DDR": 5.0, "QDR": 10.0, "FDR10": 10.0, "FDR": 14.0, "EDR": 25.0}
SPEEDS |= {"HDR": 50.0, "NDR": 100.0, "XDR": 200.0}
WIDTHS = (1, 2, 4, 8, 12)
PRINTED = [
    (f"{lane * width:g} Gb/sec ({width}X {name})", lane * width)
    for name, lane in SPEEDS.items()
    for width in WIDTHS
]

RATES = [
    *PRINTED,
    ("2.5 Gb/sec", 2.5),
    ("10 Gb/sec (4X)", 10.0),
    ("400 Gb/sec (4X UNHEARDOF9)", 400.0),
    ("0 GB/sec", 0.0),
    ("999999.5 Gb/sec", 999999.5),
]
NO_RATES = [
    *("", "400", "Gb/sec", "400Gb/sec", "400 gb/sec", "400 Mb/sec", "400 Tb/sec", "٤٠٠ Gb/sec"),
    *(
        "400 Gb/sec ",
        "400 Gb/sec\n",
        " 400 Gb/sec",
        "400 Gb/sec\n800 Gb/sec",
        "-10 Gb/sec (4X SDR)",
    ),
    *("2.4 Gb/sec", "2.55 Gb/sec", ".5 Gb/sec", "2. Gb/sec", "1e309 Gb/sec", "nan Gb/sec"),
    *("inf Gb/sec", "1000000 Gb/sec", "9" * 400 + " Gb/sec", "400 Gb/sec 4X NDR", "400 Gb/sec ()"),
    *("400 Gb/sec (4x NDR)", "400 Gb/sec (4X ndr)", "400 Gb/sec (4X NDR", "400 Gb/sec (X NDR)"),
    "400 Gb/sec (4X NDR) twice",
]

# Other parsers: the values of include/rdma/ib_verbs.h as the kernel prints them, and what it never
# prints.
VALUES: list[tuple[Callable[[str], Any], str, Any]] = [
    (parse.port_state, "1: DOWN", "DOWN"),
    (parse.port_state, "2: INIT", "INIT"),
    (parse.port_state, "3: ARMED", "ARMED"),
    (parse.port_state, "4: ACTIVE", "ACTIVE"),
    (parse.node_type, "1: CA", "CA"),
    (parse.node_type, "6: usNIC UDP", "usNIC UDP"),
    (parse.node_type, "7: unspecified", "unspecified"),
    (parse.node_type, "8: <unknown>", "<unknown>"),
    (parse.enumeration, "4: PortConfigurationTraining", "PortConfigurationTraining"),
    (parse.enumeration, "7: Phy Test", "Phy Test"),
    (parse.enumeration, "0: <unknown>", "<unknown>"),
    (parse.link_layer, "InfiniBand", "InfiniBand"),
    (parse.link_layer, "Unknown", "Unknown"),
    (parse.guid, "a088:c203:00ab:cdef", "a088c20300abcdef"),
    (parse.guid, "0000:0000:0000:0001", "0000000000000001"),
    (parse.guid, "0000:0000:0000:0000", None),
    (parse.gid_guid, "fe80:0000:0000:0000:a088:c203:00ab:cdef", "a088c20300abcdef"),
    (parse.gid_guid, "fe80:0000:0000:0000:8000:0000:0000:0000", "8000000000000000"),
    (parse.gid_guid, "fe80:0000:0000:0000:0000:0000:0000:0000", None),
    (parse.gid_guid, "0000:0000:0000:0000:0000:0000:0000:0000", None),
    (parse.gid_prefix, "fe80:0000:0000:0001:a088:c203:00ab:cdef", 0xFE80000000000001),
    (parse.gid_prefix, "0000:0000:0000:0000:0000:0000:0000:0000", None),
    (parse.number, "0", 0),
    (parse.number, "007", 7),
    (parse.number, "-1", -1),
    (parse.number, "0x020700", 0x020700),
    (parse.number, "18446744073709551615", 2**64 - 1),
    (parse.known, "100000", 100000),
    (parse.known, "0", 0),
    (parse.known, "-1", None),
    (parse.known, "4294967295", None),
    (parse.counter, "12", 12),
    (parse.counter, "N/A (no PMA)", None),
    (
        parse.pci_address,
        "../../devices/pci0000:16/0000:16:01.0/0000:18:00.0/infiniband/ibp0",
        "0000:18:00.0",
    ),
    (parse.pci_address, "../../../10003:00:02.7", "10003:00:02.7"),
    (parse.pci_address, "../../devices/virtual/infiniband/rxe0", None),
    (parse.pci_address, "../../0000:18:00.8", None),
    (parse.pci_address, "", None),
    (
        parse.uevent,
        "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:18:00.0\nno pair\nA=b=c",
        {"DRIVER": "mlx5_core", "PCI_SLOT_NAME": "0000:18:00.0", "A": "b=c"},
    ),
    (parse.uevent, "", {}),
    (parse.netdev_name, "enp24s0f0np0", "enp24s0f0np0"),
    (parse.netdev_name, "a" * 15, "a" * 15),
    (parse.netdev_names, "eth0 eth1", ["eth0", "eth1"]),
    (parse.netdev_names, "", []),
    (parse.mac_address, "a0:88:c2:ab:cd:ef", "a0:88:c2:ab:cd:ef"),
    (parse.mac_address, "A0:88:C2:AB:CD:EF", "a0:88:c2:ab:cd:ef"),
]
NONSENSE: list[tuple[Callable[[str], Any], str]] = [
    *[(parse.port_state, text) for text in ("0: NOP", "5: ACTIVE_DEFER", "6: <unknown>")],
    *[(parse.node_type, text) for text in ("5: ACTIVE_DEFER", "1: RNIC", "CA", "1: CA\n", "")],
    *[(parse.port_state, text) for text in ("4: DOWN", "5: ACTIVE", "ACTIVE", "4: ACTIVE\n", "")],
    *[(parse.enumeration, text) for text in ("ACTIVE", "4:ACTIVE", "4: ", "4: ACTIVE\n", "4: 4")],
    *[(parse.enumeration, text) for text in ("1000: ACTIVE", "4: " + "A" * 33, "4: \x1b[2J")],
    *[(parse.link_layer, text) for text in ("Ether\nnet", "E" * 33)],
    *[(parse.guid, text) for text in ("", "a088:c203:00ab", "a088:c203:00ab:cdef:0000")],
    *[(parse.guid, text) for text in ("a088:c203:00ab:cdeg", "A088:C203:00AB:CDEF")],
    (parse.guid, "0xa088c20300abcdef"),
    (parse.gid_guid, "a088:c203:00ab:cdef"),
    (parse.gid_prefix, "fe80"),
    *[(parse.number, text) for text in ("", "+1", "1.5", "1_000", "0x", "ff", "٣", "9" * 21)],
    (parse.known, "Unknown!"),
    (parse.counter, "n/a"),
    *[(parse.netdev_name, text) for text in ("", ".", "..", "a/b", "a:b", "eth0 eth1", "eth\0")],
    *[(parse.netdev_name, text) for text in ("a" * 16, "é" * 8, "\x1b[2J")],
    (parse.netdev_names, "eth0 ../../etc"),
    *[(parse.mac_address, text) for text in ("", "a0:88:c2:ab:cd", "a088c2abcdef")],
    (parse.mac_address, "80:00:00:48:fe:80:00:00:00:00:00:00:a0:88:c2:03:00:ab:cd:ef"),  # IPoIB
    *[(parse.link_speed, text) for text in ("fast", "32.0", "GT/s", "1e3 GT/s")],
]
PARSERS = [
    parse.rate,
    parse.ipv4_default_routes,
    parse.ipv6_default_routes,
    parse.listed_netdevs,
    *dict.fromkeys(row[0] for row in VALUES),
]

ZERO = "0" * 32
ROUTES = """\
Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
default0	00000000	0101A8C0	0003	0	0	100	00000000	0	0	0
direct0	00000000	00000000	0001	0	0	0	00000000	0	0	0
subnet0	0001A8C0	00000000	0001	0	0	100	00FFFFFF	0	0	0
half0	00000000	0101A8C0	0003	0	0	100	00000080	0	0	0
down0	00000000	0101A8C0	0002	0	0	100	00000000	0	0	0
down1	00000000	0101A8C0	0010	0	0	100	00000000	0	0	0
*	00000000	00000000	0201	0	0	100	00000000	0	0	0
odd0	00000000	00000000	up	0	0	100	00000000	0	0	0
short0	00000000
"""
ROUTES6 = f"""\
{ZERO} 00 {ZERO} 00 fe800000000000000000000000000001 00000064 00000001 00000000 00000003 default0
{ZERO} 01 {ZERO} 00 {ZERO} 00000064 00000001 00000000 00000003 half0
20010db8{ZERO[8:]} 00 {ZERO} 00 {ZERO} 00000064 00000001 00000000 00000003 odd0
{ZERO} 00 {ZERO} 00 {ZERO} ffffffff 00000001 00000000 00200200 lo
{ZERO} 00 {ZERO} 00 {ZERO} 00000064 00000001 00000000 00000002 down0
short 00
"""


@pytest.mark.parametrize(("text", "gbps"), RATES)
def test_a_rate_is_its_number(text: str, gbps: float) -> None:
    """Width and speed behind the number do not matter."""
    assert parse.rate(text) == gbps


@pytest.mark.parametrize("text", NO_RATES)
def test_what_no_kernel_prints_is_no_rate(text: str) -> None:
    with pytest.raises(Malformed):
        parse.rate(text)


@pytest.mark.parametrize(("parser", "text", "value"), VALUES)
def test_values(parser: Callable[[str], Any], text: str, value: object) -> None:
    """A text that the kernel prints has its value; one that means unknown is None."""
    assert parser(text) == value


@pytest.mark.parametrize(("parser", "text"), NONSENSE)
def test_nonsense_is_malformed(parser: Callable[[str], Any], text: str) -> None:
    """A text that the kernel never prints is refused, and the message is printable."""
    with pytest.raises(Malformed) as caught:
        parser(text)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("parser", "words"),
    [
        (parse.rate, "a rate in Gb/sec"),
        (parse.enumeration, "of the form '5: LinkUp'"),
        (parse.link_layer, "a link layer"),
        (parse.guid, "4 groups of four hex digits"),
        (parse.gid_guid, "8 groups of four hex digits"),
        (parse.number, "a number"),
        (parse.netdev_name, "a netdev name"),
        (parse.mac_address, "a MAC address"),
    ],
)
def test_a_message_quotes_only_the_beginning(parser: Callable[[str], Any], words: str) -> None:
    garbage = "\x1b" * 4096
    with pytest.raises(Malformed) as caught:
        parser(garbage)
    assert str(caught.value) == f"{garbage[:64]!r} is not {words}"


def test_default_routes_are_those_that_are_up() -> None:
    """No route of a subnet or half the space, rejecting or down; the lowest metric is the best."""

    def ipv4(table: str) -> set[str]:
        return best(Hop(4, *route) for route in parse.ipv4_default_routes(table))

    def ipv6(table: str) -> set[str]:
        return best(Hop(6, *route) for route in parse.ipv6_default_routes(table))

    assert ipv4(ROUTES) == {"direct0"}
    assert ipv4(ROUTES.replace("direct0\t0", "direct0\t1")) == {"default0"}
    both = ROUTES.replace("\t0\t00000000", "\t100\t00000000")
    assert ipv4(both) == {"default0", "direct0"}
    assert ipv6(ROUTES6) == {"default0"}
    both = ROUTES6.replace("64", "a0").replace("20010db8", ZERO[:8])
    assert ipv6(both) == {"default0", "odd0"}
    assert ipv4("") == ipv6("") == set()


def test_the_netdevs_of_a_namespace() -> None:
    """Two lines of titles, then one line each; a long name leaves no space before its counters."""
    table = "Inter-| Receive\n face |bytes\n    lo:  42 0\nenp24s0f0np0v10: 7 0\n eth0:9 1\n"
    assert parse.listed_netdevs(table) == {"lo", "enp24s0f0np0v10", "eth0"}
    assert parse.listed_netdevs("") == set()


@given(
    text=st.text()
    | st.from_regex(r"[0-9.xX:a-f -]{1,40}")
    | st.sampled_from([row[1] for row in VALUES])
)
def test_any_text_is_a_value_or_malformed(text: str) -> None:
    """For every parser: a text is generated once, which takes longer than to parse it."""
    for parser in PARSERS:
        with suppress(Malformed):
            parser(text)


@given(text=st.text())
def test_a_netdev_name_can_be_part_of_a_path(text: str) -> None:
    """An accepted name has no separator and fits into IFNAMSIZ."""
    try:
        name = parse.netdev_name(text)
    except Malformed:
        return
    assert not set(name) & {"/", "\0"}
    assert len(name.encode()) < 16
