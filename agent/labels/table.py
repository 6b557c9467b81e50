"""The table of label keys: the contract with the programs that read them.

A row of LABELS names a key, describes its value and when it is absent, and has the function that
reads its values out of an observation (agent/labels/values.py). The README's label table is held
equal to it by a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from agent.labels import values
from agent.labels.leaf_group import leaf_group
from agent.model import Observation


class Naming(NamedTuple):
    """The prefixes and keys that the operator chose."""

    prefix: str = "backend.coreweave.cloud"
    ib_prefix: str = "ib.coreweave.cloud"  # "": the family is not written
    accelerator: str = "network.topology.nvidia.com/accelerator"  # a whole key; "": not written


class Label(NamedTuple):
    """One row of the label table."""

    key: str  # P and IB are prefixes, {if} an interface; ACC is a whole key
    value: str  # in words
    absent: str  # in words
    values: Callable[[Observation], Iterable[values.Value]]


LABELS = (
    Label(
        "P/flavor",
        "`infiniband` or `roce`, from the link layer of the backend ports",
        "no backend port",
        values.flavor,
    ),
    Label(
        "P/speed.current",
        "sum of the rates of the ACTIVE backend ports in Gb/s, then `G`: `3200G`, `2.5G`; "
        "`0G` when none is active",
        "never, once sysfs could be read",
        values.speed,
    ),
    Label(
        "P/neighbors.current.{if}.device",
        "the switch at the other end: InfiniBand its name, else its node GUID; "
        "RoCE the LLDP System Name, else the Chassis ID",
        "no neighbor known",
        values.neighbor_device,
    ),
    Label(
        "P/neighbors.current.{if}.port-id",
        "the port there: InfiniBand the switch's port number; RoCE the LLDP Port ID",
        "no neighbor known",
        values.neighbor_port_id,
    ),
    Label(
        "P/neighbors.current.{if}.port-name",
        "the name of that port: RoCE the LLDP Port ID where it is a name, "
        "else the Port Description",
        "the fabric has no port names (InfiniBand)",
        values.neighbor_port_name,
    ),
    Label(
        "P/leaves.current",
        "the distinct neighbor devices in natural order, joined with `_`",
        "no neighbor known",
        values.leaves,
    ),
    Label(
        "P/leafgroup.current",
        "the distinct devices that the backend ports are connected to, or were last, joined like "
        "`leaves.current`: a port that is down keeps its leaf",
        "no backend port ever had a neighbor",
        leaf_group,
    ),
    Label("IB/speed.current", "the same", "flavor is not infiniband", values.speed),
    Label(
        "IB/neighbors.current.{if}.device",
        "the same",
        "flavor is not infiniband",
        values.neighbor_device,
    ),
    Label(
        "IB/neighbors.current.{if}.port-id",
        "the same",
        "flavor is not infiniband",
        values.neighbor_port_id,
    ),
    Label(
        "IB/leaves.current",
        "the same",
        "flavor is not infiniband, or no neighbor known",
        values.leaves,
    ),
    Label(
        "IB/ports.current",
        "the neighbor port-ids in interface order, joined with `_`",
        "no neighbor known",
        values.ports,
    ),
    Label(
        "ACC",
        "`<ClusterUUID>.<CliqueID>`, the string that GPU Feature Discovery writes as "
        "`nvidia.com/gpu.clique`",
        "the GPUs report no common NVLink domain",
        values.accelerator,
    ),
)
