"""`bwagent explain`: where a label comes from, on every machine, and what holds it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.encode import Naming
from agent.infiniband.fabric_memory import FabricMemory, TreeSwitch
from agent.infiniband.tiers import TreeLink
from agent.labels.render import keys_for, render, subject_of
from agent.labels.table import LABELS
from agent.memory import Fact, FarEnd, Known, known_of
from agent.model import Failed, Link, LldpNeighbor, Neighbor, Observation, Seen
from agent.nic.driver import HealthReporter, LinkState, NicHealth, Nics
from agent.output import explain
from agent.output.explain import OF_ROWS, of_row
from agent.output.layout import WIDTH
from agent.reasons import HoldReason
from agent.snapshot.replay import replay
from agent.sources.observe import observe
from tests.support.devices import ib
from tests.support.documents import validator
from tests.support.machines import FOLDERS, MACHINES, observed
from tests.support.nodes import LEAF, LEAF_GROUP, SPEED
from tests.support.observations import observation
from tests.support.remembering import alone, completed, knowing

NAMING = Naming()
SCHEMA = validator("explain")
FIXTURES = MACHINES[0].parent


def of_machine(name: str) -> Observation:
    return observed(FIXTURES / name)[1]


def document(
    key: str,
    found: Observation,
    previous: Mapping[str, str] | None = None,
    known: Known | None = None,
    **on_node: Any,
) -> dict[str, Any]:
    subject = subject_of(key, NAMING)
    assert subject
    seen, own = completed(found, previous) if previous else alone(found)
    known = known or own
    rendered = render(known, NAMING).over(previous or {})
    explained = explain.explained(subject, seen, known, rendered, on_node or None)
    if (
        not on_node
    ):  # the tests give a part of it; the real one is of system/kube/test_node_commands.py
        SCHEMA.validate(explained)
    return explained


def lines(found: dict[str, Any]) -> list[str]:
    """The lines of the table, without their indentation."""
    return [line.strip() for line in explain.text_of(found).splitlines()]


def facts(found: dict[str, Any]) -> dict[str, str | None]:
    return {f"{one['subject']} {one['fact']}": one["value"] for one in found["evidence"]}


def test_every_row_has_its_evidence() -> None:
    """A new row of the label table needs a function here."""
    assert {of_row(row.key) for row in LABELS} == {*OF_ROWS.values()}


@pytest.mark.slow
@pytest.mark.parametrize("machine", FOLDERS)
def test_every_key_of_every_machine(machine: Path) -> None:
    """The value is that of the labels, a missing one has a reason, and lines fit a terminal."""
    seen = of_machine(machine.name)
    known = known_of(seen)
    rendered = render(known, NAMING)
    labels = rendered.labels
    keys = {*keys_for(NAMING, explain.known_interfaces(seen, known)), *labels}
    for key in keys:
        subject = subject_of(key, NAMING)
        assert subject
        found = explain.explained(subject, seen, known, rendered, None)
        SCHEMA.validate(found)
        assert found["value"] == labels.get(key)
        assert (found["state"] == "absent") == bool(found["reason"])
        assert found["evidence"] or found["reason"] or not seen.ports
        for line in explain.text_of(found).splitlines()[1:]:
            assert len(line) <= WIDTH or " " not in line.strip()


def test_the_sum_of_ports() -> None:
    """The speed has state and rate of each port, by their files, and what each adds."""
    found = document(SPEED, of_machine("half-failed"))
    path = "/sys/class/infiniband/mlx5_10/ports/1"
    assert found["value"] == "810G"
    assert found["evidence"][-7] == {
        "interface": "mlx5_10",
        "via": "sysfs",
        "subject": f"{path}/state",
        "fact": "state",
        "value": "ACTIVE",
        "seen": "2026-03-08T08:00:00Z",
    }
    assert f"{path}/rate: 400 Gb/sec (4X NDR)" in lines(found)
    roles = {one["value"] for one in found["evidence"] if one["fact"] == "role"}
    assert roles == {"8 of 8 beside a GPU, ConnectX-7 15b3:1021"}
    assert lines(found).count("part of the sum: 400 Gb/s") == 2
    assert found["problems"] == [
        "/sys/class/infiniband/mlx5_5/ports/1/rate: Invalid argument",
        "mlx5_9: mlx5_9 port 1: Connection timed out",
    ]


def test_the_legs_of_a_bond() -> None:
    """Each has the speed of its netdev, and its state in the bond."""
    found = facts(document(SPEED, of_machine("bond-roce")))
    assert found["/sys/class/net/eth2/speed speed"] == "200000 Mb/s"
    assert found["/sys/class/net/eth5/bonding_slave/state bonding_slave/state"] == "backup"


def test_a_frame() -> None:
    """A RoCE neighbor has the frame's addresses, its TLVs, and the time of its arrival."""
    key = "backend.coreweave.cloud/neighbors.current.bnxt_re0.port-name"
    found = document(key, of_machine("bnxt-re"))
    assert (found["value"], found["raw"]) == ("Ethernet17-1", "Ethernet17/1")
    subject = "gpu0_eth: frame from 00:1c:73:9a:01:11 to 01:80:c2:00:00:0e"
    assert facts(found)[f"{subject} Port ID TLV (subtype 5)"] == "Ethernet17/1"
    assert found["evidence"][0]["seen"] == "2026-03-05T07:59:39Z"
    assert "raw       Ethernet17/1" in lines(found)


def test_an_answer() -> None:
    """An InfiniBand neighbor has the port that was asked through, and the attributes."""
    key = LEAF.replace("ibp0", "mlx5_10")
    found = document(key, of_machine("half-failed"))
    assert facts(found) == {
        "mlx5_10 port 1: directed route 0,1 NodeDescription.NodeString": "MF0;ib-leaf-7:MQM9700/U1",
        "mlx5_10 port 1: directed route 0,1 NodeInfo.NodeGUID": "b0cf0e0300da7740",
        "mlx5_10 port 1: directed route 0,1 NodeInfo.LocalPortNum": "44",
    }


def test_the_fabric_of_the_gpus() -> None:
    found = document(NAMING.accelerator, of_machine("gb200-nvl72"))
    assert found["state"] == "seen"
    assert sum(one["fact"] == ".cliqueId" for one in found["evidence"]) == 4
    found = document(NAMING.accelerator, of_machine("half-failed"))
    assert found["reason"] == "the cluster UUID is zero: no fabric beyond this node"


@pytest.mark.parametrize(
    ("interface", "reason"),
    [
        ("mlx5_0", "link-down: no link"),
        ("mlx5_1", "front end: carries the default route, 1 of 4 of its kind"),
    ],
)
def test_why_there_is_no_label(interface: str, reason: str) -> None:
    """A port without neighbor has the reason and its state, an ignored one the rule."""
    found = document(LEAF.replace("ibp0", interface), of_machine("half-failed"))
    assert (found["state"], found["reason"]) == ("absent", reason)
    assert f"state     absent: {reason}" in lines(found)


@pytest.mark.parametrize(
    ("machine", "source", "key", "reason"),
    [
        ("half-failed", "lldp", "flavor", "switched off by --source"),
        ("half-failed", "lldp", "speed.current", "switched off by --source"),
        ("half-failed", "rdma", "neighbors.current.mlx5_10.device", "switched off by --source"),
        ("half-failed", "rdma", "neighbors.current.mlx5_1.device", "front end: carries the de"),
        ("half-failed", "lldp", "neighbors.current.mlx5_10.device", "switched off by --source"),
        ("bnxt-re", "ib", "neighbors.current.gpu0_eth.device", "switched off by --source"),
        ("half-failed", "ib", "neighbors.current.mlx5_0.device", "link-down: no link"),
        ("half-failed", "rdma", "IB/leaves.current", "switched off by --source"),
        ("bnxt-re", "rdma", "IB/speed.current", "flavor is not infiniband"),
        ("half-failed", "rdma", "ACC", "switched off by --source"),
    ],
)
def test_a_source_that_is_switched_off(machine: str, source: str, key: str, reason: str) -> None:
    """It is the reason, unless the port has one of its own."""
    seen = observe(replay(str(FIXTURES / machine)), [source])
    full = f"{NAMING.prefix}/{key}".replace(f"{NAMING.prefix}/IB", NAMING.ib_prefix)
    found = document(NAMING.accelerator if key == "ACC" else full, seen)
    assert (found["state"], found["reason"][: len(reason)]) == ("absent", reason)


@pytest.mark.parametrize("key", ["speed.current", "leaves.current", "ports.current"])
def test_the_infiniband_family_of_a_roce_node(key: str) -> None:
    """The flavor is the reason, though neighbors are known; a port without one is no other case."""
    found = document(f"{NAMING.ib_prefix}/{key}", of_machine("bond-roce"))
    assert found["reason"] == "flavor is not infiniband"
    silent = f"{NAMING.ib_prefix}/neighbors.current.mlx5_1.device"
    assert document(silent, of_machine("odd-neighbors"))["reason"] == "flavor is not infiniband"


def test_a_class_that_is_not_there_is_no_reason_of_the_gpus() -> None:
    """The accelerator label is not read from it."""
    seen = of_machine("driver-reloading")
    found = document(NAMING.accelerator, seen)
    assert found["reason"] == "the snapshot has no answer of NVML"
    assert document(SPEED, seen)["reason"].startswith("/sys/class/infiniband is not there")


def test_what_the_driver_tells_follows_the_schema() -> None:
    """Why a link is down, and a reporter in error."""
    seen = of_machine("bnxt-re")
    device, netdev = seen.backend[0].device.pci or "", seen.backend[0].netdev
    assert netdev
    down = LinkState(netdev.name, is_up=False, text="no cable")
    reporters = (HealthReporter("fw", "error"),)
    nics = Nics({netdev.name: down}, {device: NicHealth(device, reporters=reporters)})
    found = document(SPEED, seen._replace(nics=Seen(nics)))
    told = [(row["via"], row["value"]) for row in found["evidence"]]
    assert {("ethtool", "no cable"), ("devlink", "error")} <= {*told}


def test_the_meaning_stands_alone() -> None:
    """A row of the IB family says "the same" in the table; here there is no other row."""
    seen = of_machine("half-failed")
    theirs = document(f"{NAMING.ib_prefix}/speed.current", seen)
    assert theirs["meaning"] == document(SPEED, seen)["meaning"]


def test_a_switch_that_tells_no_port_name() -> None:
    """The fabric of a RoCE node has port names; this frame has none."""
    seen = of_machine("bnxt-re")
    assert isinstance(seen.lldp, Seen)
    links = tuple(
        link._replace(neighbors=tuple(one._replace(port_name=None) for one in link.neighbors))
        for link in seen.lldp.value
    )
    key = f"{NAMING.prefix}/neighbors.current.bnxt_re0.port-name"
    found = document(key, seen._replace(lldp=Seen(links)))
    assert found["reason"] == "no port name in the neighbor's frame"


def test_a_lost_port() -> None:
    """It has a reason, and is part of the evidence for the speed."""
    lost = (Fact("ibp3", "0000:5e:00.0", lost_since=1_800_000_000),)
    seen, known = knowing(observation(("ibp0", "0000:18:00.0")), lost=lost)
    assert "ibp3" in explain.known_interfaces(seen, known)
    assert (
        "gone from the bus" in document(LEAF.replace("ibp0", "ibp3"), seen, known=known)["reason"]
    )
    found = facts(document(SPEED, seen, known=known))
    assert found["/sys/bus/pci/devices/0000:5e:00.0 pci"] == "gone"
    nothing, known = knowing(observation(), lost=lost)
    of_family = f"{NAMING.ib_prefix}/neighbors.current.ibp3.device"
    assert "gone from the bus" in document(of_family, nothing, known=known)["reason"]


def test_what_holds_a_label() -> None:
    """A failed source, a part that is held, and facts that are missing."""
    seen = observation(rdma=Failed("the class is unread"), ports=())
    found = document(SPEED, seen, {SPEED: "400G"})
    assert (found["state"], found["value"]) == ("held", "400G")
    assert "state     held, source-failed: its source could not be read" in lines(found)
    assert document(SPEED, seen)["reason"] == "the class is unread"

    failed = ib("ibp1", 1)._replace(failure="blocks", ports=())
    unread = {"ibp1": "InfiniBand"}
    seen = observation(("ibp0", "0000:18:00.0"), rdma=Seen((failed,)), unread=unread)
    why = HoldReason.DEVICE_FAILED
    row = Fact("ibp1", failed.pci, layer="InfiniBand", gbps=400.0, state_since=0.0, state_why=why)
    found = document(SPEED, seen, known=knowing(seen, row, unknown=None)[1])
    assert (found["state"], found["hold"]["reason"]) == ("held", "last-count")
    assert facts(found)["what it did last counted_gbps"] == "400 Gb/s"
    found = document(SPEED, seen)
    assert (found["state"], found["hold"]["reason"]) == ("incomplete", "device-failed")


ROW: dict[str, Any] = {
    "interface": "ibp0",
    "pci": "0000:18:00.0",
    "neighbor": {"name": "MF0;L90", "port_id": "3"},
}


def test_what_the_node_has() -> None:
    """Value, managers, and the facts of the interface in the annotation."""
    facts_there: dict[str, Any] = {
        "value": "1G",
        "managers": ["bwagent", "kubectl-edit"],
        "agent": "0.1.0",
        "boot_id": "another",
        "observed": "2026-11-22T09:30:00Z",
        "interfaces": [ROW],
    }
    found = document(SPEED, observation(("ibp0", None)), **facts_there)
    assert found["on_node"] == facts_there
    shown = lines(found)
    assert "1G, held by bwagent, kubectl-edit" in shown
    assert "last full observation 2026-11-22T09:30:00Z, another boot, bwagent 0.1.0" in shown
    text = "annotation, ibp0: pci 0000:18:00.0, neighbor name MF0;L90, neighbor port_id 3"
    assert text in " ".join(shown)
    assert "not read: no" in lines(document(SPEED, observation(), fault="no"))
    nothing: dict[str, Any] = {"value": None, "managers": [], "observed": None, "interfaces": []}
    assert "no such label" in lines(document(SPEED, observation(), **nothing))


@pytest.mark.parametrize(
    ("known", "here", "line"),
    [
        ({"boot_id": "one"}, "one", "at an unknown time, this boot, bwagent version unknown"),
        ({"agent": "0.1.0"}, "one", "at an unknown time, boot unknown, bwagent 0.1.0"),
        ({"agent": "0.1.0"}, None, "at an unknown time, boot unknown, bwagent 0.1.0"),
        ({"agent": "0.1.0", "boot_id": "one"}, None, "at an unknown time, boot unknown"),
        ({"observed": "2026-11-22T09:30:00Z"}, "one", "2026-11-22T09:30:00Z, boot unknown"),
    ],
)
def test_what_the_node_does_not_tell(known: dict[str, str], here: str | None, line: str) -> None:
    """What is unknown of the last observation is said so, and two unknown boots are not equal."""
    gone = {**ROW, "lost_since": None}
    there: dict[str, Any] = {
        "observed": None,
        "boot_id": None,
        "agent": None,
        "interfaces": [gone],
        **known,
    }
    seen = observation(("ibp0", None), boot_id=here)
    shown = " ".join(lines(document(LEAF, seen, value=None, managers=[], **there)))
    assert f"last full observation {line}" in shown
    assert "lost_since unknown" in shown


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("speed.curent", "nearest: backend.coreweave.cloud/speed.current"),
        ("backend.coreweave.cloud/speed.expected", "backend.coreweave.cloud/speed.current"),
        ("neighbors.current.ibp99.device", "neighbors.current.ibp9.device"),
        ("x" * 5000, "`bwagent probe -o labels` lists them"),
    ],
)
def test_an_unknown_key(key: str, nearest: str) -> None:
    text = explain.unknown_key(key, NAMING, ["ibp9"])
    assert nearest in text
    assert len(text) <= explain.MAX_ERROR


def test_keys_of_ports_with_labels_are_named() -> None:
    """No ignored port, and as many as fit the line."""
    names = explain.backend_interfaces(*alone(of_machine("half-failed")))
    assert "mlx5_10" in names
    assert "mlx5_1" not in names
    key = "neighbors.current.mlx5_1.port-id"
    text = explain.unknown_key(key, NAMING, names)
    assert "neighbors.current.mlx5_1" in text
    assert len(text) <= explain.MAX_ERROR


@pytest.mark.parametrize(
    ("key", "field", "flag"),
    [
        ("leaves.current", "ib_prefix", "--ib-label-prefix"),
        ("ib.coreweave.cloud/neighbors.current.ibp0.device", "ib_prefix", "--ib-label-prefix"),
        ("accelerator", "accelerator", "--accelerator-label"),
        (NAMING.accelerator, "accelerator", "--accelerator-label"),
    ],
)
def test_a_key_that_is_turned_off(key: str, field: str, flag: str) -> None:
    """The error names the flag instead of near keys."""
    empty: Any = {field: ""}
    text = explain.unknown_key(key, NAMING._replace(**empty), ["{if}"])
    assert text == f"{key!r} is turned off by an empty {flag}"


def test_a_leaf_that_is_remembered() -> None:
    """A port without neighbor has the one of the annotation, beside its state."""
    seen = of_machine("half-failed")
    last = FarEnd("b" * 16, "MF0;L90.1.3:MQM9700/U1", "3")
    _, known = knowing(seen)
    rows = [one._replace(last_far=last) if one.interface == "mlx5_0" else one
            for one in known.facts]  # fmt: skip
    found = document(LEAF_GROUP, seen, known=known._replace(facts=tuple(rows)))
    assert found["state"] == "seen"
    assert "L90.1.3" in found["value"]
    shown = [one["fact"] for one in found["evidence"] if one["interface"] == "mlx5_0"]
    assert shown == ["state", "phys_state", "neighbor"]
    assert "remembered in the annotation: L90.1.3" in lines(found)


def test_a_way_to_the_highest_tier() -> None:
    """Each link as its switch told it: by the subnet administrator, or by SMPs."""
    first, second = TreeLink("a" * 16, 41, "b" * 16, 1), TreeLink("b" * 16, 31, "c" * 16, 2)
    switches = {
        guid: TreeSwitch(guid, name, 1) for guid, name in (("b" * 16, "s1"), ("c" * 16, "c1"))
    }
    fabric = FabricMemory(
        tier_1=frozenset({"b" * 16}),
        tier_2=frozenset({"c" * 16}),
        switches=switches,
        paths=((first, second),),
        by_smps=frozenset({"a" * 16}),
    )
    seen = of_machine("half-failed")
    known = known_of(seen)._replace(fabric=fabric)
    explained = document(f"{NAMING.prefix}/tier-2.current", seen, known=known)
    assert explained["value"] == "c1"
    assert [(row["via"], row["fact"], row["value"]) for row in explained["evidence"]] == [
        ("smp", "NodeInfo", "s1 port 1"),
        ("sa", "LinkRecord", "c1 port 2"),
    ]


def test_a_neighbor_that_is_no_leaf_is_the_reason() -> None:
    """It says that it is a station: its frame is shown, and why the joined labels lack it."""
    facts = LldpNeighbor("m", "m", "b0:7b:25:aa:00:01", 4, "p1", 7, 120, None, "R750", 0x80)
    link = Link("mlx5_0", "eth0", (Neighbor("R750", "p1", None, facts, 1.0),))
    seen = observation(("mlx5_0", "0000:18:00.0"))
    ports = (seen.ports[0]._replace(port=seen.ports[0].port._replace(link_layer="Ethernet")),)
    seen = seen._replace(ports=ports, lldp=Seen((link,)))
    for name in ("leaves", "leafgroup"):
        found = document(f"{NAMING.prefix}/{name}.current", seen)
        text = "no leaf: the neighbor says that it is neither Bridge nor Router: mlx5_0"
        assert (found["value"], found["reason"]) == (None, text)
        row = {"System Capabilities TLV, enabled", "Station Only"}
        assert any(row <= {*one.values()} for one in found["evidence"])
