"""Default routes by rtnetlink: messages in octets, and the snapshot that has them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import Malformed, Unavailable
from agent.netlink import attributes, messages
from agent.snapshot.recordings import ROUTES, RecordedRoutes
from agent.snapshot.replay import replay
from agent.sysfs.front_end import Hop, best
from agent.sysfs.routes import _default_routes, hops_of

INET, MAIN, UNICAST, DONE = 2, 254, 1, 3


def attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def number(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body + bytes(-len(body) % 4)


def route(*parts: bytes, prefix: int = 0, table: int = MAIN, kind: int = UNICAST) -> bytes:
    head = struct.pack("=BBBBBBBBI", INET, prefix, 0, 0, table, 0, 0, kind, 0)
    return message(24, head + b"".join(parts))


def nexthops(*interfaces: int) -> bytes:
    gateway = attribute(5, b"\x0a\x00\x00\x01")
    hops = (struct.pack("=HBBi", 8 + len(gateway), 0, 0, one) + gateway for one in interfaces)
    return attribute(9, b"".join(hops))


def found(*datagrams: bytes, family: int = INET) -> list[tuple[int, int]]:
    return list(_default_routes(iter(datagrams), family))


ONE = route(number(4, 7), number(6, 100))
MANY = route(nexthops(2, 3, 4), number(6, 20))
BEYOND = route(attribute(1, b"\x0a\x00\x00\x00"), number(4, 9), prefix=8)
END = message(DONE, bytes(4))


@pytest.mark.parametrize(
    ("datagrams", "hops"),
    [
        ([ONE + END], [(100, 7)]),
        ([ONE, MANY, END], [(100, 7), (20, 2), (20, 3), (20, 4)]),
        ([route(number(4, 7)) + END], [(0, 7)]),
        ([route(number(4, 7), table=100), ONE + END], [(100, 7)]),
        ([route(number(4, 7), number(15, 1000), table=0), ONE + END], [(100, 7)]),
        ([route(number(4, 1), kind=6) + ONE + END], [(100, 7)]),
        ([ONE + BEYOND, ONE + END], [(100, 7)]),
        ([message(2, struct.pack("=i", -2))], []),
        ([END], []),
    ],
)
def test_the_next_hops_of_default_routes(
    datagrams: list[bytes], hops: list[tuple[int, int]]
) -> None:
    """Of all unicast ones of the main table; IPv4 is read no further than its default routes."""
    assert found(*datagrams) == hops


def test_a_table_of_millions_of_routes_is_not_read() -> None:
    """What follows the default routes is never asked for."""

    def answers() -> Iterator[bytes]:
        yield ONE + BEYOND
        raise AssertionError

    assert list(_default_routes(answers(), INET)) == [(100, 7)]


def test_an_error_of_the_kernel_is_one() -> None:
    with pytest.raises(OSError, match="Operation not permitted"):
        found(message(2, struct.pack("=i", -1)))


def test_next_hops_that_are_objects_only_are_not_known() -> None:
    with pytest.raises(Unavailable):
        list(hops_of(attributes(number(30, 5))))


@given(st.binary(max_size=200), st.integers(0, len(ONE + MANY)))
def test_no_octets_raise(noise: bytes, length: int) -> None:
    """A truncated message ends the datagram; garbage is skipped."""
    for data in (noise, (ONE + MANY)[:length], ONE + noise):
        for _, body in messages(data):
            attributes(body)


HOPS = (Hop(4, 100, "eth0"), Hop(4, 100, "eth1"), Hop(6, 1024, "eth2"))


def test_the_best_routes() -> None:
    assert best(HOPS) == {"eth0", "eth1"}
    assert best([Hop(4, 0, "lo"), *HOPS[2:]]) == {"eth2"}
    assert best([]) == set()


def snapshot(folder: Path, routes: Any) -> Path:
    (folder / "sys/class/infiniband").mkdir(parents=True)
    (folder / ROUTES).write_text(routes if isinstance(routes, str) else json.dumps(routes))
    return folder


def test_a_snapshot_has_what_was_recorded(tmp_path: Path) -> None:
    (data,) = RecordedRoutes(HOPS).files().values()
    assert replay(str(snapshot(tmp_path, (data or b"").decode()))).routes() == HOPS
    assert RecordedRoutes().files() == {}


def test_a_snapshot_may_have_the_output_of_iproute2(tmp_path: Path) -> None:
    rows = [
        {"dst": "default", "metric": 20, "nexthops": [{"dev": "eth0"}, {"dev": "eth1"}]},
        {"dst": "10.0.0.0/8", "dev": "eth3"},
        {"dst": "default", "type": "blackhole"},
        {"dst": "default", "gateway": "fe80::1", "dev": "eth2", "metric": 1024, "pref": "medium"},
    ]
    hops = replay(str(snapshot(tmp_path, rows))).routes()
    assert hops == (Hop(4, 20, "eth0"), Hop(4, 20, "eth1"), Hop(6, 1024, "eth2"))


BAD = [
    "{}", "[", "[1]", [{"dst": "default"}], [{"dst": "default", "dev": "a/b"}],
    [{"dst": "default", "dev": "a", "metric": -1}], [{"dst": "default", "nexthops": [3]}],
    [{"dst": "default", "dev": "a", "family": 5}], [{"dst": "default", "nexthops": {}}],
]  # fmt: skip


@pytest.mark.parametrize("routes", BAD)
def test_malformed_routes_refuse_the_snapshot(tmp_path: Path, routes: Any) -> None:
    with pytest.raises(Malformed, match=ROUTES):
        replay(str(snapshot(tmp_path, routes)))
