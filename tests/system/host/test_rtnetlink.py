"""Link messages of a real kernel, decoded by agent.events.netlink and by pyroute2."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from pyroute2.netlink.rtnl.marshal import MarshalRtnl  # type: ignore[import-untyped]

from agent.events.netlink import LinkMessage, parse
from tests.support.real_parts import require
from tests.support.switch import Namespace, missing

if TYPE_CHECKING:
    from collections.abc import Iterator

RTMGRP_LINK = 1
STEPS = (
    "link add eth0 type veth peer name wire0",
    "link set eth0 up",
    "link set wire0 up",
    "link set eth0 mtu 9000",
    "link add br0 type bridge",
    "link set eth0 master br0",
    "link set eth0 nomaster",
    "link set eth0 down",
    "link set eth0 name a-name-of-15-ch",
    "link property add dev a-name-of-15-ch altname an-alternative-name-which-is-longer",
    "link set a-name-of-15-ch name eth0",
    "link delete br0",
    "link delete eth0",
)


@pytest.fixture(scope="module")
def datagrams() -> list[bytes]:
    """Datagrams of a real kernel while netdevs are created, changed and deleted."""
    require(missing())
    with Namespace() as namespace:
        sock = namespace.call(
            socket.socket, socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0
        )
        with sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
            sock.bind((0, RTMGRP_LINK))
            for step in STEPS:
                namespace.ip(*step.split())
            return list(_received(sock))


def _received(sock: socket.socket) -> Iterator[bytes]:
    with suppress(BlockingIOError):
        while True:
            yield sock.recv(1 << 16)


def by_pyroute2(data: bytes) -> list[LinkMessage]:
    """The messages of a datagram as pyroute2 decodes them."""
    return [
        LinkMessage(
            message["index"],
            message.get_attr("IFLA_IFNAME") or "",
            gone=message["event"] == "RTM_DELLINK" and message["family"] == socket.AF_UNSPEC,
        )
        for message in MarshalRtnl().parse(data)
        if message["event"] in {"RTM_NEWLINK", "RTM_DELLINK"}
    ]


def test_we_read_what_pyroute2_reads(datagrams: list[bytes]) -> None:
    """Index, name and deletion of every netdev in every message."""
    ours = [list(parse(data)) for data in datagrams]
    assert ours == [by_pyroute2(data) for data in datagrams]
    found = {(message.name, message.gone) for messages in ours for message in messages}
    assert {("eth0", False), ("a-name-of-15-ch", False), ("br0", True), ("eth0", True)} <= found


def test_several_messages_in_a_datagram_are_all_read(datagrams: list[bytes]) -> None:
    """The kernel may batch them."""
    together = b"".join(datagrams)
    assert list(parse(together)) == [message for data in datagrams for message in by_pyroute2(data)]


def test_a_truncated_message_is_skipped(datagrams: list[bytes]) -> None:
    """No truncation raises."""
    for length in range(len(datagrams[0])):
        assert len(list(parse(datagrams[0][:length]))) <= 1
