"""One Node, read: its labels and its annotation agree, or the label alone counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import encode
from agent.cabling.seen import SeenEnd
from agent.encode import Naming
from agent.fleet.model import FleetNode, FleetPort
from agent.fleet.nodes import NodeReader
from agent.kube.annotation import cut, parse
from agent.memory import Fact, FarEnd
from tests.support import fleet_nodes
from tests.support.fleet_nodes import IB, OBSERVED, TIME, P, annotation, guid, labels, node, whole

NOW = TIME + 60.0
DEVICE = f"{P}/neighbors.current.ibp3.device"


def read(document: dict[str, Any], naming: Naming = Naming()) -> FleetNode:  # noqa: B008
    found = NodeReader(naming, NOW).read(document)
    assert found is not None
    return found


def port(found: FleetNode, name: str = "ibp3") -> FleetPort:
    return next(port for port in found.ports if port.interface == name)


def observed(neighbor: FarEnd, **facts: Any) -> str:
    return annotation(7, interfaces=(Fact("eth0", "0000:18:00.0", **facts, last_far=neighbor),))


def roce(device: str, port_id: str, text: str | None) -> SeenEnd | None:
    """Return the far end of a RoCE interface with these labels."""
    key = f"{P}/neighbors.current.eth0"
    more = {f"{P}/flavor": "roce", f"{key}.device": device, f"{key}.port-id": port_id}
    document = {"metadata": {"name": "n", "labels": more, "annotations": {}}}
    if text is not None:
        document["metadata"]["annotations"] = {OBSERVED: text}
    return port(read(document), "eth0").far_end


def test_a_node_whose_agent_has_a_failing_source() -> None:
    """Its report counts although no observation is full."""
    found = json.loads(annotation(7))
    found |= {"time": None, "boot_id": None, "partial": {"time": found["time"], "boot_id": "b"}}
    document = whole(7)
    document["metadata"]["annotations"] = {OBSERVED: json.dumps(found)}
    node = read(document)
    assert (node.time, node.boot_id) == (read(whole(7)).time, "b")


def test_a_node() -> None:
    """Everything that the model has is read."""
    found = read(whole(7))
    assert found.name == "gpu-00007"
    assert (found.flavor, found.speed_gbps) == ("infiniband", 3200.0)
    assert (found.time, found.boot_id, found.node_boot_id) == (
        TIME,
        fleet_nodes.BOOT,
        fleet_nodes.BOOT,
    )
    assert found.problems == ()
    assert [one.interface for one in found.ports] == [
        f"ibp{rail}" for rail in range(fleet_nodes.RAILS)
    ]
    end = SeenEnd("L0.1.3", "8", None, guid(7, 3), "L0.1.3")
    assert port(found)[:4] == ("ibp3", "0000:1b:00.0", "a088c20300000703", 400)
    assert (port(found).far_end, port(found).last_end) == (end, end)


def test_metadata_is_enough() -> None:
    """Only the boot of the kubelet is unknown without the Node's status."""
    found = read(node(7))
    assert found.node_boot_id is None
    assert found.ports == read(whole(7)).ports


@pytest.mark.parametrize(
    "document",
    [
        {"metadata": {"name": "cpu-1"}},
        {"metadata": {"name": "cpu-1", "labels": None, "annotations": None}},
        {"metadata": {"name": "cpu-1", "labels": {"kubernetes.io/arch": "amd64"}}},
        {"metadata": {"name": "cpu-1", "labels": {f"{P}/speed.expected": "3200G"}}},
        {"metadata": {"name": "cpu-1", "labels": {f"{P}/leafgroup": "a"}}},
        {"metadata": {"name": "cpu-1", "annotations": {"example.com/observed": "{}"}}},
    ],
)
def test_a_node_without_the_agent_is_none(document: dict[str, Any]) -> None:
    """Neither the site's labels nor an annotation of another program make it one."""
    assert NodeReader(Naming(), NOW).read(document) is None


def test_a_newer_label_stands_alone() -> None:
    """The annotation still has the neighbor before it, as the last one."""
    end = port(read(node(7, {DEVICE: "L9.1.3"})))
    assert end.far_end == SeenEnd("L9.1.3", "8")
    assert end.last_end == SeenEnd("L0.1.3", "8", None, guid(7, 3), "L0.1.3")


def test_a_guid_is_the_label_of_a_switch_without_a_name() -> None:
    """Its identifier is known, and its factory text is no name."""
    factory = "Quantum Mellanox Technologies"
    rows = (Fact("ibp3", "0000:1b:00.0", last_far=FarEnd(guid(7, 3), factory, "8")),)
    end = port(read(node(7, {DEVICE: guid(7, 3)}, annotation(7, interfaces=rows)))).far_end
    assert end == SeenEnd(guid(7, 3), "8", None, guid(7, 3), None)


@pytest.mark.parametrize("name", ["leaf 01/rack <b>7</b>", "x" * 80, "leaf\x1b[2J\n01", "交换机-7"])
def test_unaltered_texts_are_those_whose_encoding_is_the_label(name: str) -> None:
    """Hashed, shortened and hostile names, and the port's."""
    text = observed(FarEnd("00:1c:73:aa:bb:cc", name, "Ethernet1/1"))
    end = roce(encode.value(name), "Ethernet1-1", text)
    assert end == SeenEnd(encode.value(name), "Ethernet1/1", None, "00:1c:73:aa:bb:cc", cut(name))
    assert roce(encode.value(name), "Ethernet1-2", text) == end._replace(port_id="Ethernet1-2")


def test_a_name_without_any_valid_character_is_labeled_by_its_chassis_id() -> None:
    """The name is known nevertheless; so is a port whose label is a hash."""
    text = observed(FarEnd("00:1c:73:aa:bb:cc", "机", "口"))
    end = roce("00-1c-73-aa-bb-cc", encode.hashed("口"), text)
    assert end == SeenEnd("00-1c-73-aa-bb-cc", "口", None, "00:1c:73:aa:bb:cc", "机")


def test_hashes_without_an_annotation_are_the_identity() -> None:
    """Nothing else is known of the switch."""
    end = roce("x1f2e3d4c5b6a7988", "swp1", None)
    assert end is not None
    assert (end.switch, end.device, end.port) == ("x1f2e3d4c5b6a7988", "x1f2e3d4c5b6a7988", "swp1")


def test_labels_of_the_ib_prefix_count_where_p_has_none() -> None:
    """A policy may refuse those under P."""
    document = node(7)
    del document["metadata"]["labels"][DEVICE]
    assert port(read(document)).far_end == port(read(node(7))).far_end
    assert read(document).problems == ()


def _without(*keys: str) -> dict[str, Any]:
    document = node(7)
    for key in keys:
        del document["metadata"]["labels"][key]
    return document


def _with(name: str, value: object) -> dict[str, Any]:
    document = node(7)
    document["metadata"][name] = value
    return document


SPEEDS = f"{P}/speed.current", f"{IB}/speed.current"
HALF = f"{P}/neighbors.current.ibp3.port-id", f"{IB}/neighbors.current.ibp3.port-id"
PROBLEMS = {
    "half of the labels": (_without(*HALF), "ibp3 (port-id)"),
    "a port of no device": (_without(DEVICE, DEVICE.replace(P, IB)), "ibp3 (device)"),
    "an empty device": (node(7, {DEVICE: "", DEVICE.replace(P, IB): ""}), "ibp3 (device)"),
    "two values": (node(7, {DEVICE: "L9"}), "device of ibp3: other labels under both prefixes"),
    "another flavor": (node(7, {f"{P}/flavor": "a\x1b"}), r"flavor is 'a\x1b'"),
    "another unit": (node(7, dict.fromkeys(SPEEDS, "3200")), "speed.current is '3200'"),
    "too fast": (node(7, dict.fromkeys(SPEEDS, "9" * 9 + "G")), "speed.current is '999999999G'"),
    "labels that are no object": (_with("labels", [1]), "metadata.labels is no object"),
    "annotations that are no object": (_with("annotations", "x"), "metadata.annotations is no"),
    "labels that are no text": (
        _with("labels", {f"{P}/flavor": 1}),
        f"labels that are no text, ignored: {P}/flavor",
    ),
    "an annotation that is no text": (_with("annotations", {OBSERVED: {}}), OBSERVED),
    "an annotation that is no JSON": (node(7, observed="{"), "malformed annotation"),
    "an annotation of another schema": (node(7, observed='{"schema":4}'), "schema 4"),
    "a number that is a text": (
        node(7, observed=annotation(7).replace("400.0", '"400"')),
        "malformed facts, ignored: gbps of ibp0",
    ),
    "a time to come": (node(7, observed=annotation(7, time=TIME + 9999)), "in the future"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_is_malformed_is_one_line_of_the_node(name: str) -> None:
    """The rest of the Node is read."""
    document, text = PROBLEMS[name]
    (problem,) = read(document).problems
    assert text in problem
    assert problem.isprintable()


def test_a_station_is_no_leaf() -> None:
    """A BMC is the only speaker on the port: it is what a plan is compared with, and no far end."""
    bmc = FarEnd("b0:7b:25:aa:00:01", "PowerEdge-R750", "b0:7b:25:aa:00:01", None, is_station=True)
    text = annotation(7, interfaces=(Fact("eth0", "0000:18:00.0", far=bmc),))
    labels = {"device": "PowerEdge-R750", "port-id": "b0-7b-25-aa-00-01"}
    more = {f"{P}/neighbors.current.eth0.{name}": value for name, value in labels.items()}
    found = port(
        read({"metadata": {"name": "n", "labels": more, "annotations": {OBSERVED: text}}}), "eth0"
    )
    assert (found.far_end, found.last_end) == (None, None)
    assert found.station == SeenEnd("PowerEdge-R750", bmc.port_id, None, bmc.id, bmc.name)


def test_a_lost_interface() -> None:
    """It has its last far end; one that is there again under its name is not lost."""
    rows = parse(annotation(7), OBSERVED)[0].interfaces  # type: ignore[union-attr]
    lost = tuple(row._replace(lost_since=TIME) for row in rows[2:4])
    document = _without(DEVICE, DEVICE.replace(P, IB), *HALF)
    document["metadata"]["annotations"] = {OBSERVED: annotation(7, interfaces=rows[:3], lost=lost)}
    found = read(document)
    assert [one.interface for one in found.ports if one.is_lost] == ["ibp3"]
    assert port(found).far_end is None
    assert port(found).last_end == SeenEnd("L0.1.3", "8", None, guid(7, 3), "L0.1.3")


def test_another_prefix_is_named() -> None:
    """In the middle of a migration a Node has its labels under the former prefix only, or both."""
    old = {f"old.example.com/{key.partition('/')[2]}": text for key, text in labels(7).items()}
    text = annotation(7)
    annotations = {"old.example.com/observed": text}
    former = {"metadata": {"name": "n", "labels": old, "annotations": annotations}}
    assert read(former).problems == ("labels under old.example.com, which were not read",)
    assert read(former).ports == ()
    assert len(read(former, Naming(prefix="old.example.com")).ports) == fleet_nodes.RAILS
    both = node(7, old)
    both["metadata"]["annotations"]["old.example.com/observed"] = text
    assert read(both).problems == ()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(json_values, json_values, json_values, st.sampled_from(sorted(labels(7))))
def test_no_type_is_an_exception(value: object, more: object, status: object, key: str) -> None:
    """Whatever stands in a part of a Node, the Node is read."""
    for part in ("labels", "annotations"):
        read({**_with(part, value), "status": status})
    wrong = node(7)
    wrong["metadata"]["labels"][key] = value
    wrong["metadata"]["annotations"][OBSERVED] = more
    read(wrong)


@given(st.sampled_from(["time", "boot_id", "agent", "ports", "switches", "verdict"]), json_values)
def test_no_annotation_is_an_exception(name: str, value: object) -> None:
    """Nor whatever stands in the annotation."""
    document = json.loads(annotation(7))
    document[name] = value
    for text in (json.dumps(document), json.dumps({**document, "ports": [value]})):
        read(node(7, observed=text))


def test_the_accelerator_and_the_leaf_group() -> None:
    more = {Naming().accelerator: "u.1", f"{P}/leafgroup.current": "L0.1.0_L0.1.1"}
    found = read(node(7, more))
    assert (found.accelerator, found.leaf_group) == ("u.1", "L0.1.0_L0.1.1")
