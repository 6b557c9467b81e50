"""The JSON document: its hints, the problems it lists, and the facts it leaves unaltered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_type_hints

import jsonschema
import pytest

from agent.labels.render import Rendered
from agent.memory import Fact
from agent.model import (
    Absent,
    Failed,
    Gpu,
    IbNeighbor,
    Link,
    LldpNeighbor,
    Neighbor,
    Observation,
    Problem,
    RdmaDevice,
    Seen,
)
from agent.nvml.domain import domain_of
from agent.output.backend import is_suspect, speed_gbps
from agent.output.document import NEIGHBOR_FACTS, Choices, Hardware, document
from agent.reasons import HoldReason
from agent.sources.pci import PcieFunction
from tests.support.devices import assign, eth, ib, netdev, plain, port
from tests.support.remembering import alone, knowing
from tests.support.sas import CABLES, Administrator

NONE = Absent("no such port")
SDR = "10 Gb/sec (4X SDR)"
WITHOUT_WORD = [
    "10 Gb/sec (4X)",
    "2.5 Gb/sec",
    "2.5 Gb/sec (1X)",
    "5 Gb/sec (2X)",
    "30 Gb/sec (12X)",
]
FASTER = ["10 Gb/sec (1X QDR)", "20 Gb/sec (4X DDR)", "400 Gb/sec (4X NDR)", "40 Gb/sec", "", "x"]
LLDP_FACTS = LldpNeighbor(
    "00:1c:73:00:00:01", "01:80:c2:00:00:0e", "00:1c:73:00:00:01", 4, "swp1", 5, 120
)
IB_FACTS = IbNeighbor("switch", "b0cf0e0300d66c81", None, 3, "leaf")


def observed(*devices: RdmaDevice, **facts: Any) -> Observation:
    """An observation of these devices, in which the other sources are absent."""
    outcomes: dict[str, Any] = {
        "rdma": Seen(devices),
        "lldp": NONE,
        "ib": NONE,
        "nvml": NONE,
    } | facts
    outcomes["accelerator"] = domain_of(outcomes["nvml"])
    return Observation(0.0, "Node-1", None, ports=assign(devices), **outcomes)


def problems(observation: Observation, choices: Choices | None = None) -> list[str]:
    found = document(*alone(observation), choices or Choices())["problems"]
    return [f"{problem['subject']}: {problem['text']}" for problem in found]


def test_an_operators_name_wins_over_the_host_name() -> None:
    """A host name is lower-cased, as the kubelet does."""
    assert document(*alone(observed()), Choices(node_name="gpu-7"))["node"] == "gpu-7"
    assert document(*alone(observed()), Choices())["node"] == "node-1"


def test_a_flag_that_matches_no_device_is_a_problem() -> None:
    """A typo, or the flags of another machine."""
    choices = Choices(backend_devices=("ibp*", "mlx4_*"), excluded_devices=("bond*",))
    assert problems(observed(ib("ibp0", 1)), choices) == [
        "--exclude-device bond*: names no RDMA device here",
        "--backend-device mlx4_*: names no RDMA device here",
    ]


@pytest.mark.parametrize(
    ("device", "suspect"),
    [
        (plain(ib("ibp0", 1), rate_text=SDR), True),
        (plain(ib("ibp0", 1, driver="mlx4_core", hca_type="MT26428"), rate_text=SDR), True),
        (plain(ib("ibp0", 1, driver="mlx4_core", hca_type="MT4099"), rate_text=SDR), False),
        (plain(ib("ibp0", 1, driver="qib", hca_type=None), rate_text=SDR), False),
        (plain(ib("ibp0", 1), rate_text=SDR, state="INIT"), False),
        *((plain(ib("ibp0", 1), rate_text=text), True) for text in WITHOUT_WORD),
        *((plain(ib("ibp0", 1), rate_text=text), False) for text in FASTER),
        (plain(ib("ibp0", 1), rate_text="400 Gb/sec (4X NDR)"), False),
        (plain(ib("ibp0", 1), rate_text=None), False),
        (plain(eth("mlx5_0", 1), rate_text=SDR), False),
    ],
)
def test_a_modern_hca_at_sdr_is_suspect(device: RdmaDevice, suspect: bool) -> None:
    """The kernel prints a speed that it does not know as SDR."""
    (role,) = observed(device).ports
    assert is_suspect(role) is suspect


def test_held_and_refused_labels_are_problems() -> None:
    """After the notes of the caller, before the problems of the sources."""
    note, refused, failed, odd = (Problem("labels", name, None, "x") for name in "nrfo")
    held = {"k": HoldReason.LENT}
    rendered = Rendered({"k": "v"}, held=held, problems=(refused,), notes=(odd,))
    observation = observed(problems=(failed,))
    found = document(*alone(observation), Choices(), [note], rendered)["problems"]
    assert [problem["subject"] for problem in found] == ["n", "k", "o", "r", "f"]
    assert found[1]["text"] == f"label kept: {HoldReason.LENT.text}"


def test_neighbors_keep_their_facts_unaltered() -> None:
    """Escape sequences stay in it: the printer of the document replaces them."""
    evil = LLDP_FACTS._replace(system_name="leaf\x1b[2J")
    roce = Link("mlx5_0", "eth0", (Neighbor("leaf\x1b[2J", "swp1", "swp1", evil, 1.5),))
    nic = eth("mlx5_0", 0, port(netdev=netdev("eth0")))
    (row,) = document(*alone(observed(nic, lldp=Seen((roce,)))), Choices())["neighbors"]
    assert (row["via"], row["system_name"], row["age_s"]) == ("lldp", "leaf\x1b[2J", 1.5)
    assert (row["node_guid"], row["chassis_id"]) == (None, "00:1c:73:00:00:01")


def test_of_several_neighbors_the_first_is_selected() -> None:
    """All of them are marked ambiguous."""
    two = tuple(Neighbor(name, "3", None, IB_FACTS) for name in ("a", "b"))
    observation = observed(ib("ibp0", 0), ib=Seen((Link("ibp0", None, two),)))
    rows = document(*alone(observation), Choices())["neighbors"]
    assert [(row["device"], row["selected"]) for row in rows] == [("a", True), ("b", False)]
    assert {(row["via"], row["ambiguous"], row["node_type"]) for row in rows} == {
        ("smp", True, "switch")
    }


def test_the_speed_is_unknown_while_the_class_cannot_be_read() -> None:
    assert speed_gbps(*alone(observed(rdma=Failed("EIO")))) is None
    assert speed_gbps(*alone(observed())) == 0.0


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [
        (Gpu(0, state="in-progress"), "in-progress"),
        (Gpu(0, state="completed", status="no-data"), "unhealthy"),
        (Gpu(0, state="not-supported"), None),
    ],
)
def test_a_missing_domain_is_a_problem(gpu: Gpu, reason: str | None) -> None:
    """Unless the GPUs support none: they are as they should be."""
    texts = [text.partition(": ")[2] for text in problems(observed(nvml=Seen((gpu,))))]
    assert [text.partition(":")[0] for text in texts] == ([reason] if reason else [])


def test_a_gpu_without_health_mask_has_unknown_health() -> None:
    """Structures before version 2 have none."""
    gpus = (
        Gpu(0, state="completed", status="success", health_mask=None),
        Gpu(
            *(1, "GPU-1", "0000:01:00.0"),
            state="completed",
            status="success",
            health_mask=1,
            health=(("degraded_bandwidth", "true"),),
        ),
    )
    found = document(*alone(observed(nvml=Seen(gpus))), Choices())
    assert [gpu["health"] for gpu in found["accelerator"]["gpus"]] == [
        None,
        {"degraded_bandwidth": "true", "summary": None},
    ]
    assert found["problems"][-1]["text"] == "degraded_bandwidth: true"


def test_labeled_ports_without_a_device_have_rows() -> None:
    """The Node's annotation knows them; nothing else is known of them."""
    since = 1_800_000_000
    lost = Fact("ibp3", "0000:5e:00.0", port_guid="a088c20300abcdef", lost_since=since)
    unbound = Fact("ibp4", "0000:5f:00.0", state_why=HoldReason.DEVICE_GONE)
    seen = knowing(observed(ib("ibp0", 1), ib("ibp10", 2)), unbound, lost=(lost,))
    ports = document(*seen, Choices())["ports"]
    assert [port["interface"] for port in ports] == ["ibp0", "ibp3", "ibp4", "ibp10"]
    assert {key: value for key, value in ports[1].items() if value is not None} == {
        "interface": "ibp3",
        "pci": "0000:5e:00.0",
        "port_guid": "a088c20300abcdef",
        "state": "absent",
        "role": "backend",
        "reason": "gone from the bus, missing since 2027-01-15T08:00:00Z",
        "counted_gbps": 0.0,
    }
    assert [*ports[1]] == [*ports[0]]
    assert ports[2]["counted_gbps"] is None


def test_devices_without_ports_have_rows_with_their_reason() -> None:
    """What `verify` says of an interface that it does not find: excluded, unread, lost."""
    lost = Fact("ibp3", "0000:5e:00.0", port_guid="a088c20300abcdef", lost_since=1_800_000_000)
    unbound = Fact("", "0000:5f:00.0", state_why=HoldReason.DEVICE_GONE)
    nics = (
        RdmaDevice("ibp1", excluded=True, pci="0000:1a:00.0"),
        RdmaDevice("ibp2", failure="EIO"),
        plain(ib("ibp5", 1, pci="0000:60:00.0"), link_layer=None),
    )
    facts = document(*knowing(observed(*nics), unbound, lost=(lost,)), Choices())
    assert facts["excluded"] == [{"device": "ibp1", "pci": "0000:1a:00.0"}]
    assert [tuple(row.values()) for row in facts["unread"]] == [
        ("ibp2", None, "EIO"),
        ("ibp5", "0000:60:00.0", "the link layer of a port could not be read"),
        (None, "0000:5f:00.0", HoldReason.DEVICE_GONE.text),
    ]
    assert [tuple(row.values()) for row in facts["lost"]] == [
        ("ibp3", "0000:5e:00.0", "a088c20300abcdef", "2027-01-15T08:00:00Z")
    ]


def test_surroundings_that_were_not_read_are_unknown() -> None:
    """Not read is null, and so is what could not be read; a path that is not known is empty."""
    names = ("pcie", "pci_functions", "netdevs")
    facts = document(*alone(observed()), Choices())
    assert [facts[name] for name in names] == [None, None, None]
    path = (PcieFunction("0000:10:00.0", 0x15B3, 32.0, 32.0, 8, 16),)
    paths = {"0000:10:00.0": path, "0000:11:00.0": ()}
    hardware = Hardware(paths, frozenset(), frozenset({"eth10", "eth9"}))
    facts = document(*alone(observed()), Choices(), hardware=hardware)
    assert facts["pci_functions"] is None
    assert facts["netdevs"] == ["eth9", "eth10"]
    known, unknown = facts["pcie"]
    assert unknown == {"pci": "0000:11:00.0", "path": []}
    assert [*known["path"][0].values()] == ["0000:10:00.0", "15b3", 32.0, 32.0, 8, 16]


def test_the_facts_of_a_neighbor_are_in_the_schema(repository: Path, update_golden: bool) -> None:
    """Each has the type of its field, or is null; a new one is added to the schema."""
    path = repository / "docs/probe.schema.json"
    schema = json.loads(path.read_text())
    row = schema["properties"]["neighbors"]["items"]
    if update_golden:
        types = get_type_hints(LldpNeighbor) | get_type_hints(IbNeighbor)
        for name in [fact for fact in NEIGHBOR_FACTS if fact not in row["properties"]]:
            kind = "integer" if types[name] in {int, int | None} else "string"
            row["properties"][name] = {"type": [kind, "null"]}
            row["required"].append(name)
        path.write_text(json.dumps(schema, indent=2) + "\n")
    assert {*NEIGHBOR_FACTS} <= row["properties"].keys() & {*row["required"]}


def test_the_switches_above_follow_the_schema(repository: Path) -> None:
    """The tiers with their switches, the uplinks of the leaf, and a way to the core."""
    schema = json.loads((repository / "docs/probe.schema.json").read_text())["properties"]["tiers"]
    administrator = Administrator(*CABLES)
    seen = administrator.explore([administrator.port("leaf1")])
    top = Administrator(("leaf1/1", "host1/1")).explore([administrator.port("leaf1")])
    outcomes = (None, Seen(seen), Seen(top), NONE, Failed("no answer"))
    found = [document(*alone(observed(tiers=tiers)), Choices())["tiers"] for tiers in outcomes]
    for tiers in found:
        jsonschema.validate(tiers, schema | {"$defs": {"guid": {"type": "string"}}})
    assert [tiers and tiers["reason"] for tiers in found] == [None, None, "top", "absent", "failed"]
    assert [(row["tier"], row["value"]) for row in found[1]["tiers"]] == [
        (1, "spine1"),
        (2, "core1"),
    ]
    assert [row["name"] for row in found[1]["tiers"][0]["switches"]] == ["spine1", "spine2"]
    assert [row["port"] for row in found[1]["uplinks"]] == [41, 42]
    [[first, second]] = found[1]["paths"]
    assert (first["far_guid"], second["far_guid"]) == (second["guid"], seen.tiers.tier_2)
    by_smps = document(*alone(observed(tiers=Seen(seen._replace(walked=("refused",))))), Choices())
    assert [found[1]["walked"], by_smps["tiers"]["walked"]] == [[], ["refused"]]
