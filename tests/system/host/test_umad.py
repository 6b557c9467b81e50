"""Queries over libibumad in this process: a stand-in library for what ibsim does not do."""

from __future__ import annotations

import ctypes
import struct
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from agent.errors import Malformed, Unavailable
from agent.infiniband import sa, smp
from agent.infiniband.devices import DEFAULT_PREFIX, SubnetPort
from agent.infiniband.exploration import Exploration, explore
from agent.infiniband.query import PortQuery, SaQueries, query_ports, query_sa
from agent.infiniband.smp import Attribute, PortUnavailable
from agent.infiniband.umad import QP1_KEY, global_route, load, opener
from tests.support.fabric import missing
from tests.support.real_parts import require

ASK_INFO = smp.get(Attribute.NODE_INFO, 1, 1)
PREFIX = 0xFE80000000000001  # of the stand-in's subnet


def queried(library: str, timeout_ms: int = 500) -> PortQuery:
    """Return the ended query of port 1 of mlx5_0, with one try for each request."""
    [query] = query_ports(opener(library), [("mlx5_0", 1)], timeout_ms, 1)
    return query


@pytest.mark.parametrize(
    ("device", "port"), [("", 1), ("mlx5_0", 0), ("mlx5_0", -1), ("mlx5\0_0", 1)]
)
def test_a_port_that_libibumad_would_choose_itself_is_never_opened(
    library: str, device: str, port: int
) -> None:
    """No name and port 0 mean "any" to the library."""
    with pytest.raises(PortUnavailable, match="no such port"):
        opener(library)(device, port)


@pytest.mark.parametrize("library_name", ["libbwagent-no-such.so.3", "libc.so.6"])
def test_a_missing_or_strange_library_is_no_umad(library_name: str) -> None:
    """Not there, or without the functions."""
    with pytest.raises(PortUnavailable) as shut:
        load(library_name)
    assert shut.value.reason == "no-umad"
    assert str(shut.value).count(library_name) == 1


def administered(library: str, timeout_ms: int = 500, prefix: int | None = None) -> PortQuery:
    """Return the ended query of port 1 of mlx5_0 at the subnet administrator, LID 9."""
    port = SubnetPort("mlx5_0", 1, 22, sm_lid=9, sm_sl=2, pkey_index=0, subnet_prefix=prefix)
    [query] = query_sa(opener(library), [port], timeout_ms)
    return query


def test_the_subnet_administrator_answers(library: str) -> None:
    """To its LID by its service level, on queue pair 1; two questions."""
    query = administered(library)
    assert (query.error, len(query.exchanges)) == (None, 2)
    found = sa.replay(query.exchanges)
    assert (found.node_description, found.port, found.via) == ("MF0;L90.1.3:MQM9700/U1", 3, "sa")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("silent", "no-answer"),
        ("deaf", "no-answer"),
        ("flood", "no-answer"),
        ("huge", "malformed"),
        ("offset", "malformed"),
        ("short", "malformed"),
        ("foreign", "sa-foreign"),
        ("sa-busy", "sa-busy"),
        ("denied", "sa-refused"),
        ("lossy", "no-answer"),
        ("crowd", "malformed"),
        ("echo", "malformed"),
        ("abort", "malformed"),
        ("not-permitted", "not-permitted"),
        ("send-fails", "send-failed"),
    ],
)
def test_a_hostile_administrator_is_a_reason(
    library: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str, reason: str
) -> None:
    """Bounded in time, two questions at most, and one line."""
    log = tmp_path / "sent"
    monkeypatch.setenv("STAND_IN", f"mlx5_0:{fault}")
    monkeypatch.setenv("STAND_IN_LOG", str(log))
    started = time.monotonic()
    query = administered(library, 50)
    assert time.monotonic() - started < 2
    assert query.error == reason
    assert "\n" not in str(query.text)
    assert not log.exists() or len(log.read_text().splitlines()) <= 2


LEAF_GUID = "b0cf0e0300d60001"


def explored(
    library: str, seconds: float = 5, timeout_ms: int = 500, prefix: int | None = None
) -> Exploration:
    """Return the tiers above the leaf of port 1 of mlx5_0."""
    port = SubnetPort("mlx5_0", 1, 22, sm_lid=9, sm_sl=2, pkey_index=0, subnet_prefix=prefix)
    queries = SaQueries(opener(library), timeout_ms)
    ask = partial(queries.ask, end=time.monotonic() + seconds)
    return explore([(port, LEAF_GUID)], ask, 1)


def test_a_subnet_is_explored_by_tables_of_many_segments(library: str) -> None:
    """One of 75 kB, of all switches; one of the CAs inside them; one of each leaf and spine."""
    found = explored(library)
    assert [found.tiers.names[guid] for guid in found.tiers.tier_1] == [
        "s005",
        "s006",
        "s007",
        "s008",
    ]
    assert (found.tiers.uplinks[LEAF_GUID][41], found.faults) == ("b0cf0e0300d60005", ())


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("no-end", "mlx5_0 port 1: Connection timed out"),
        ("deaf", "no answer in 50 ms"),
        ("flood", "no answer in 50 ms"),
        ("lossy", "Connection timed out"),
        ("million", "a reply of more than 1120056 bytes"),
        ("offset", "AttributeOffset of 104 bytes"),
        ("all-nodes", "NodeRecord of the CA d2f2"),
        ("itself", "from port 10 to itself"),
        ("denied", "request denied"),
        ("sa-busy", "busy"),
        ("abort", "given up"),
        ("echo", "Method"),
        ("not-permitted", "Permission denied"),
    ],
)
def test_a_hostile_administrator_has_no_tiers(
    library: str, monkeypatch: pytest.MonkeyPatch, fault: str, text: str
) -> None:
    """Bounded in time, and one line."""
    monkeypatch.setenv("STAND_IN", f"mlx5_0:{fault}")
    started = time.monotonic()
    with pytest.raises(Unavailable, match=text) as failure:
        explored(library, timeout_ms=50)
    assert "\n" not in str(failure.value)
    assert time.monotonic() - started < 2


def test_a_slow_administrator_has_a_deadline(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is left to ask."""
    monkeypatch.setenv("STAND_IN", "mlx5_0:moving")
    with pytest.raises(Unavailable, match=r"no answer in 200 ms|no time is left to ask"):
        explored(library, seconds=0.2, timeout_ms=200)


def test_a_virtual_port_explores_with_a_global_route(
    library: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It waits in vain for one question only."""
    log = tmp_path / "sent"
    monkeypatch.setenv("STAND_IN", "mlx5_0:virtual")
    monkeypatch.setenv("STAND_IN_LOG", str(log))
    assert len(explored(library, timeout_ms=50, prefix=PREFIX).tiers.tier_1) == 4
    asked = log.read_text().splitlines()
    assert len(asked) == len(set(asked)) + 1


def test_smps_that_a_driver_does_not_send_are_refused(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As mlx5 does of a virtual function: no privilege changes that, and the SA is asked."""
    monkeypatch.setenv("STAND_IN", "mlx5_0:no-smi")
    query = queried(library, 50)
    assert (query.error, query.text) == (
        "refused",
        "mlx5_0 port 1: umad_send: Operation not permitted",
    )
    assert administered(library).error is None


@pytest.mark.parametrize("fault", ["wrong-tid", "lying", "m-key"])
def test_what_harms_no_answer_of_the_administrator(
    library: str, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A reply to somebody else comes first, the library's length is wrong, or an M_Key drops the
    SMPs, which is the reason to ask.
    """
    monkeypatch.setenv("STAND_IN", f"mlx5_0:{fault}")
    query = administered(library)
    assert query.error is None
    found = sa.replay(query.exchanges)
    assert (found.node_description, found.port) == ("MF0;L90.1.3:MQM9700/U1", 3)
    if fault == "m-key":
        assert queried(library, 50).error == "no-answer"


@pytest.mark.parametrize(
    ("prefix", "outcome"),
    [(PREFIX, (None, 3)), (None, ("no-answer", 1)), (DEFAULT_PREFIX, ("no-answer", 2))],
)
def test_a_virtual_port_needs_a_global_route(
    library: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    prefix: int | None,
    outcome: tuple[str | None, int],
) -> None:
    """It shares its LID, so a reply without one reaches another port; one question is lost."""
    log = tmp_path / "sent"
    monkeypatch.setenv("STAND_IN", "mlx5_0:virtual")
    monkeypatch.setenv("STAND_IN_LOG", str(log))
    query = administered(library, 100, prefix)
    assert (query.error, len(log.read_text().splitlines())) == outcome
    if query.error is None:
        assert sa.replay(query.exchanges).node_description == "MF0;L90.1.3:MQM9700/U1"
    assert queried(library, 50).error == "refused"


def test_a_global_route_is_where_the_kernel_reads_it() -> None:
    """In struct ib_user_mad_hdr, include/uapi/rdma/ib_user_mad.h, by libibumad itself."""
    require(missing())
    lib = load()
    buffer = ctypes.create_string_buffer(lib.umad_size() + smp.LENGTH)
    lib.umad_set_addr(buffer, 9, 1, 2, QP1_KEY)
    lib.umad_set_grh(buffer, global_route(PREFIX))
    address, present, rest, gid, flow = struct.unpack_from("20x 12s B 3s 16s I", buffer)
    assert address == bytes.fromhex("00000001 80010000 0009 02 00")  # qpn, qkey, lid, sl, path bits
    assert (present, rest, flow) == (1, bytes(3), 0)
    assert gid == bytes.fromhex("fe80000000000001 0200000000000002")


@pytest.mark.parametrize("fault", ["silent", "deaf", "moving"])
def test_sixteen_ports_are_asked_about_within_the_time_of_the_process(
    library: str, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Or it would be killed with the answers of all, the good one's too: a port has its own time,
    however slowly each question is answered.
    """
    monkeypatch.setenv("STAND_IN", ",".join(f"mlx5_{number}:{fault}" for number in range(15)))
    ports = [SubnetPort(f"mlx5_{number}", 1, 22, 9, 2, 0) for number in range(16)]
    started = time.monotonic()
    queries = query_sa(opener(library), ports, 200, 0.4)
    assert time.monotonic() - started < 0.4 * 16
    assert [query.error for query in queries] == ["no-answer"] * 15 + [None]


@pytest.mark.parametrize(
    ("place", "value"), [(1, 0x01), (1, 0x03), (1, 0x04), (3, 0x02), (3, 0x81), (17, 0x20)]
)
def test_nothing_but_a_get_of_class_0x81_is_sent(
    library: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: int, value: int
) -> None:
    """Another class, method or attribute does not reach umad_send()."""
    log = tmp_path / "sent"
    monkeypatch.setenv("STAND_IN_LOG", str(log))
    changed = bytearray(ASK_INFO)
    changed[place] = value
    with closing(opener(library)("mlx5_0", 1)) as port, pytest.raises(Malformed):
        port.send(bytes(changed), 50)
    assert not log.exists()
