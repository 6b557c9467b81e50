"""Labeled ports that left the bus: which are lost, and which are the same port elsewhere."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pytest

from agent.host import Host
from agent.kube.annotation import Annotation, parse, render
from agent.kube.remembered import annotate, published
from agent.memory import Fact, FarEnd, Known, Memory
from agent.model import Absent, Failed, Observation, PortRole, RdmaDevice, Seen
from agent.output.backend import absent_ports
from agent.sources.pci import place
from tests.support.kernel_tree import BUS, HOME, Entries, Kernel
from tests.support.nodes import BOOT, KEYS, NOW
from tests.support.observations import PORT, observation
from tests.support.observations import role as role_of
from tests.support.remembering import alone

A, B, C = "0000:18:00.0", "0000:2a:00.0", "0000:5e:00.0"
GUID_A, GUID_B, GUID_C, GUID_D = (f"a088c203000000{number:02x}" for number in range(1, 5))
TWO = (Fact("ibp0", A, port_guid=GUID_A), Fact("ibp1", B, port_guid=GUID_B))
THREE = (*TWO, Fact("ibp3", C, port_guid=GUID_C, gbps=400.0))
SINCE = NOW - 60


class Gone(NamedTuple):
    """A row that is lost."""

    interface: str
    pci: str
    guid: str | None
    since: int | None


GONE = Gone("ibp3", C, GUID_C, NOW)


def role(name: str, pci: str, guid: str | None, *, backend: bool = True) -> PortRole:
    return role_of(name, PORT._replace(port_guid=guid), pci=pci, backend=backend)


def seen(*roles: PortRole, **changes: Any) -> Observation:
    devices = tuple(one.device for one in roles)
    return observation(**{"ports": roles, "rdma": Seen(devices), **changes})


PAIR = (role("ibp0", A, GUID_A), role("ibp1", B, GUID_B))


def lost(
    annotation: Annotation | None, found: Observation, *, tree: Entries | None = None, **flags: Any
) -> tuple[Gone, ...]:
    agent = Agent(annotation, Host(Kernel(tree or {}), lambda: 0.0, **flags))
    agent.sees(found)
    return agent.lost


class Agent:
    """An agent that starts with an annotation."""

    def __init__(self, annotation: Annotation | None, host: Host | None = None) -> None:
        self.host, self.annotation = host or Host(Kernel(), lambda: 0.0), annotation
        self.memory = Memory(600.0)
        globs = self.host.excluded, self.host.backend
        self.memory.seed(published(annotation, {}, KEYS, BOOT, globs), 0.0)

    def sees(self, found: Observation) -> tuple[Observation, Known]:
        """Observe this, two minutes after the start."""
        found, self.known = self.memory.complete(found, partial(place, self.host), 120.0)
        self.annotation = annotate(found, self.known, self.annotation)
        return found, self.known

    @property
    def lost(self) -> tuple[Gone, ...]:
        rows = self.known.lost
        return tuple(Gone(*one.identity, one.lost_since or None) for one in rows)  # type: ignore[arg-type]


def labeled(*rows: Fact, gone: tuple[Fact, ...] = ()) -> Annotation:
    return Annotation(SINCE, BOOT, rows, lost=gone)


ALREADY = labeled(*TWO, gone=(THREE[2]._replace(lost_since=SINCE),))


def on_bus(pci: str, driver: str = "mlx5_core") -> Entries:
    return {
        f"{BUS}/{pci}": f"../../../devices/pci0000:00/{pci}",
        f"{HOME}/{pci}/driver": f"../../../bus/pci/drivers/{driver}",
    }


def test_an_hca_that_falls_off_the_bus() -> None:
    """It is lost from the first observation without it, with one problem for the operator."""
    agent = Agent(labeled(*THREE))
    found, _ = agent.sees(seen(*PAIR))
    assert agent.lost == (GONE,)
    (problem,) = found.problems
    assert (problem.source, problem.subject) == ("rdma", "ibp3")
    assert problem.text == "ibp3 (0000:5e:00.0) is gone from the bus"
    assert lost(ALREADY, seen(*PAIR)) == (GONE._replace(since=SINCE),)
    none = observation(rdma=Absent("no RDMA device"))
    assert [one.interface for one in lost(labeled(*THREE), none)] == ["ibp0", "ibp1", "ibp3"]


@pytest.mark.parametrize(
    "present",
    [
        pytest.param(role("mlx5_2", "0000:6e:00.0", GUID_C), id="another name and address"),
        pytest.param(role("ibp3", C, None), id="the GUID cannot be read"),
        pytest.param(role("ibp3", C, GUID_D), id="another HCA in the slot"),
        pytest.param(role("mlx5_2", C, GUID_C, backend=False), id="ignored now"),
    ],
)
def test_renumbering_is_no_loss(present: PortRole) -> None:
    """A port is the same by its GUID, then by its address; if it was lost, it is back."""
    assert lost(labeled(*THREE), seen(*PAIR, present)) == ()
    assert lost(ALREADY, seen(*PAIR, present)) == ()


def test_addresses_that_shift_hide_no_loss() -> None:
    """After a reboot the next HCA may have the address and the name of the one that is gone."""
    shifted = [role("ibp0", A, GUID_A), role("ibp1", C, GUID_B)]
    found = lost(labeled(*THREE), seen(*shifted), tree=on_bus(C))
    assert found == (GONE,)


def test_a_guid_that_several_functions_have_identifies_none() -> None:
    """With equal GUIDs, or zeros, the address decides."""
    for guid in (GUID_A, "0" * 16):
        rows = [row._replace(port_guid=guid) for row in THREE]
        found = seen(role("ibp0", A, guid), role("ibp1", B, guid))
        assert [one.pci for one in lost(labeled(*rows), found)] == [C]


def test_ports_of_one_function() -> None:
    """A port that is not used any more is no loss while its function is there."""
    rows = [Fact(f"mlx5_0-{number}", A, port_guid=f"{number:016x}") for number in (3, 6)]
    one = role("mlx5_0", A, f"{3:016x}")
    assert lost(labeled(*rows), seen(one), tree=on_bus(A)) == ()


FAILING = Seen((*(one.device for one in PAIR), RdmaDevice("ibp3", failure="blocks", pci=C)))
STILL = (GONE._replace(since=SINCE),)


@pytest.mark.parametrize(
    ("found", "tree", "still"),
    [
        pytest.param(observation(rdma=Failed("blocked")), {}, STILL, id="unread"),
        pytest.param(seen(*PAIR), on_bus(C), STILL, id="without driver"),
        pytest.param(seen(*PAIR, rdma=FAILING), on_bus(C), STILL, id="failed"),
        pytest.param(seen(*PAIR), on_bus(C, "vfio-pci"), (), id="given to a virtual machine"),
    ],
)
def test_what_may_be_there(found: Observation, tree: Entries, still: tuple[Gone, ...]) -> None:
    """A port of which this is seen is not lost, and one that was lost is so until it is read."""
    assert lost(labeled(*THREE), found, tree=tree) == ()
    assert lost(ALREADY, found, tree=tree) == still


@pytest.mark.parametrize(
    ("name", "flags", "is_lost"),
    [
        ("ibp3", {"excluded": ("ibp3",)}, False),
        ("ibp3", {"excluded": ("ibp[24]",)}, True),
        ("ibp3", {"backend": ("mlx5_*",)}, False),
        ("ibp3", {"backend": ("mlx5_*", "ibp*")}, True),
        ("mlx5_bond_0-eth-2", {"excluded": ("mlx5_bond_0",)}, False),
        ("mlx5_bond_0-3", {"excluded": ("mlx5_bond_0",)}, False),
        ("mlx5_bond_0-3", {"excluded": ("mlx5_bond_1", "eth*")}, True),
    ],
)
def test_flags_that_leave_a_device_out(name: str, flags: dict[str, Any], *, is_lost: bool) -> None:
    """An operator who excludes it, or names others as the backend, does not miss it: the device,
    of which an interface is a port or a leg.
    """
    row = THREE[2]._replace(interface=name)
    for before in (labeled(*TWO, row), labeled(*TWO, gone=(row._replace(lost_since=SINCE),))):
        assert bool(lost(before, seen(*PAIR), **flags)) is is_lost


def test_a_new_hca_takes_its_place() -> None:
    """A backend port that was never known replaces one lost port, that of its name first."""
    new = role("ibp3", "0000:77:00.0", GUID_D)
    assert lost(ALREADY, seen(*PAIR, new)) == ()
    assert lost(labeled(*THREE), seen(*PAIR, new)) == ()
    assert lost(ALREADY, seen(*PAIR, new._replace(backend=False))) != ()
    fourth = Fact("ibp2", "0000:4c:00.0", port_guid=f"{4:016x}")
    left = lost(labeled(*THREE, fourth), seen(*PAIR, new))
    assert [one.interface for one in left] == ["ibp2"]


def test_a_new_hca_at_the_former_address_of_another() -> None:
    """The one that moved is known by its GUID, so the one in its slot is new."""
    moved = role("ibp1", "0000:30:00.0", GUID_B)
    new = role("ibp2", B, GUID_D)
    assert lost(labeled(*THREE), seen(PAIR[0], moved, new), tree=on_bus(B)) == ()


def test_a_front_end_that_becomes_the_backend_replaces_nothing() -> None:
    """A device that was there, and ignored, in the observation before is not new."""
    agent = Agent(ALREADY)
    front = role("mlx5_9", "0000:90:00.0", GUID_D, backend=False)
    for one in (front, front._replace(backend=True)):
        agent.sees(seen(*PAIR, one))
        assert agent.lost


def test_ports_that_the_annotation_does_not_tell_of() -> None:
    """At a start without a row of a present port, none of those that are there is new."""
    agent = Agent(replace(ALREADY, interfaces=()))
    agent.sees(seen(*PAIR))
    assert [one.interface for one in agent.lost] == ["ibp3"]
    agent.sees(seen(*PAIR, role("ibp3", "0000:77:00.0", GUID_D)))
    assert agent.lost == ()


def test_the_only_hca_is_replaced() -> None:
    """After an observation without a port, one that comes is new."""
    agent = Agent(labeled(gone=ALREADY.lost))
    agent.sees(observation(rdma=Absent("no RDMA device")))
    assert agent.lost
    agent.sees(seen(role("ibp3", A, GUID_A)))
    assert agent.lost == ()


def test_more_lost_ports_than_a_node_has() -> None:
    """The first 64 rows are read, with one problem for the rest; a loss of now comes first."""
    gone = [Fact(f"a{n}", f"0001:{n % 256:02x}:00.0", lost_since=SINCE) for n in range(99)]
    found, problem = parse(render(labeled(*THREE, gone=tuple(gone))), KEYS.annotation)
    assert found
    assert len(found.lost) == 64
    assert problem
    assert problem.text == "malformed facts, ignored: 35 of 99 lost rows"
    kept = lost(found, seen(*PAIR))
    assert (len(kept), GONE in kept) == (64, True)


def test_the_annotation_keeps_the_last_row() -> None:
    """The row goes to `lost` with all its facts, and leaves it when the port is back."""
    last = THREE[2]._replace(last_far=FarEnd("b0cf0e0300d4ee40", "MF0;L90.1.3", "3"))
    before = labeled(*TWO, last)
    agent = Agent(before)
    agent.sees(seen(*PAIR))
    now = agent.annotation
    assert now
    assert now.lost == (last._replace(lost_since=NOW, gbps=None, layer="InfiniBand"),)
    assert [*now.addresses] == ["ibp0", "ibp1"]
    assert '"lost":"2027-01-15T08:00:00Z"' in render(now)
    assert now.facts != before.facts
    agent.sees(seen(*PAIR, role("ibp3", C, GUID_C)))
    again = agent.annotation
    assert again
    assert (again.lost, len(again.interfaces)) == ((), 3)


def test_before_the_node_is_read_the_rows_stay() -> None:
    """An observation that does not know the lost ports keeps those of the annotation."""
    assert annotate(*alone(seen(*PAIR)), ALREADY).lost == ALREADY.lost


@pytest.mark.parametrize(
    "since", ["7", '"\\ud800"', '"0001-01-01T00:00:00+14:00"', '"yesterday"', "null", "[]"]
)
def test_a_lost_row_without_a_time(since: str) -> None:
    """The row stays, is still lost, and its time is unknown; a malformed one is a problem."""
    row = f'{{"interface":"ibp3","pci":"{C}","port_guid":"{GUID_C}","lost":{since}}}'
    found, problem = parse(f'{{"schema":3,"ports":[{row}]}}', KEYS.annotation)
    assert found
    assert found.lost == (THREE[2]._replace(gbps=None, lost_since=0),)
    assert (problem is None) == (since == "null")
    assert problem is None or "lost of lost ibp3" in problem.text
    assert '"lost":null' in render(found)
    before = replace(found, interfaces=TWO)
    agent = Agent(before)
    (absent,) = absent_ports(*agent.sees(seen(*PAIR)))
    assert agent.lost == (GONE._replace(since=None),)
    assert absent.reason == "gone from the bus, missing since an unknown time"
