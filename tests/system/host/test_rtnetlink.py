"""Our reading of the kernel's link messages, held against pyroute2's, over what a real kernel
says.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from pyroute2.netlink.rtnl.marshal import MarshalRtnl  # type: ignore[import-untyped]

from agent.events.rtnetlink import LinkMessage, parse
from tests.support.real_parts import require
from tests.support.switch import Namespace, missing

if TYPE_CHECKING:
    from collections.abc import Iterator

RTMGRP_LINK = 1
STORY = (
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
def said() -> list[bytes]:
    """The datagrams that a kernel sends while netdevs come, change and go."""
    require(missing())
    with Namespace() as namespace:
        sock = namespace.call(
            socket.socket, socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0
        )
        with sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
            sock.bind((0, RTMGRP_LINK))
            for step in STORY:
                namespace.ip(*step.split())
            return list(_received(sock))


def _received(sock: socket.socket) -> Iterator[bytes]:
    with suppress(BlockingIOError):
        while True:
            yield sock.recv(1 << 16)


def by_pyroute2(data: bytes) -> list[LinkMessage]:
    """The same facts, as the library reads them."""
    return [
        LinkMessage(
            message["index"],
            message.get_attr("IFLA_IFNAME") or "",
            gone=message["event"] == "RTM_DELLINK" and message["family"] == socket.AF_UNSPEC,
        )
        for message in MarshalRtnl().parse(data)
        if message["event"] in {"RTM_NEWLINK", "RTM_DELLINK"}
    ]


def test_we_read_what_pyroute2_reads(said: list[bytes]) -> None:
    """Index, name and end of every netdev in every message of a real kernel."""
    ours = [list(parse(data)) for data in said]
    assert ours == [by_pyroute2(data) for data in said]
    told = {(message.name, message.gone) for messages in ours for message in messages}
    assert {("eth0", False), ("a-name-of-15-ch", False), ("br0", True), ("eth0", True)} <= told


def test_several_messages_in_a_datagram_are_all_read(said: list[bytes]) -> None:
    """The kernel may batch them; then each is read as when it came alone."""
    together = b"".join(said)
    assert list(parse(together)) == [message for data in said for message in by_pyroute2(data)]


def test_a_message_that_is_cut_short_is_no_accident(said: list[bytes]) -> None:
    """Every truncation is read up to where it ends, and never with an exception."""
    for length in range(len(said[0])):
        assert len(list(parse(said[0][:length]))) <= 1
