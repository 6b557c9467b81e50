"""Reads that decide the role of a port: a device of which one fails has failed, and so has no role.

tests/simulation/test_failed_reads.py has every read of every machine folder fail; here are the
rules that those machines follow from, and what is no failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from errno import EINVAL, EIO, ENODATA, ENODEV, ENOENT, ENOTDIR, ENXIO, EOPNOTSUPP

import pytest

from agent.model import Absent, Failed, Observation, RdmaDevice, Seen
from agent.sources.observe import observe
from tests.support.kernel_tree import (
    BUS,
    CLASS,
    HOME,
    NET,
    Entries,
    Kernel,
    card,
    gpu,
    hca,
    host,
    netdev,
)
from tests.support.sources import memories_of, read_rdma

A, B, C = "0000:18:00.0", "0000:19:00.0", "0000:1a:00.0"
ABSENT = (ENOENT, ENOTDIR, EOPNOTSUPP, ENODATA)
FAILED = (EIO, ENODEV, ENXIO)
LO: Entries = {f"{NET}/lo": None}
# ibp0 is the device whose reads fail. mlx5_0 has a bond over both ports of its function.
INFINIBAND = LO | card("ibp0", A) | card("ibp1", B) | netdev("ibp24s0", A)
BOND = "../../../../virtual/net/bond0"
ETHERNET: Entries = (
    LO
    | hca("mlx5_0", A, "Ethernet", {1: "eth1", 2: None})
    | hca("mlx5_1", B, "Ethernet", {1: "eth3"})
    | netdev("eth1", A, master=BOND)
    | netdev("eth2", A, dev_port="1", master=BOND)
    | netdev("eth3", B)
    | {
        f"{NET}/bond0/bonding/slaves": b"eth1 eth2\n",
        f"{HOME}/{A}/infiniband": None,
        f"{HOME}/{B}/infiniband": None,
    }
)
INFINIBAND_INPUTS = (
    *("ports", "ports/1/link_layer", "ports/1/has_smi", "ports/1/gids/0", "sys_image_guid"),
    *("node_type", "device/driver", "device/physfn", "board_id"),
)
ETHERNET_INPUTS = (
    *(f"{CLASS}/mlx5_0/ports", f"{CLASS}/mlx5_0/ports/1/link_layer"),
    *(f"{CLASS}/mlx5_0/ports/1/gid_attrs/ndevs/0", f"{CLASS}/mlx5_0/node_type"),
    *(f"{CLASS}/mlx5_0/sys_image_guid", f"{CLASS}/mlx5_0/board_id"),
    *(f"{CLASS}/mlx5_0/device/driver", f"{CLASS}/mlx5_0/device/physfn"),
    *(f"{CLASS}/mlx5_0/device/net", f"{CLASS}/mlx5_0/device/net/eth2/dev_port"),
    f"{NET}/eth1",  # the listing has its upper devices
    f"{NET}/eth1/master",
    f"{NET}/bond0/bonding/slaves",
    f"{BUS}/{A}/infiniband",  # whether the legs have RDMA devices of their own
)
NO_INPUTS = ("fw_ver", "node_guid", "device/numa_node", "ports/1/phys_state")


def multi_plane(name: str = "smi0", make: Callable[[str, str], Entries] = card) -> Entries:
    """A multi-plane HCA ibp0 with its SMI sub-device, and another HCA."""
    parent = make("ibp0", A)
    parent[f"{HOME}/{A}/infiniband/ibp0/ports/1/has_smi"] = b"0\n"
    return LO | parent | make(name, A) | card("ibp1", B)


def socket_direct() -> Entries:
    twin = hca("ibp1", B)
    twin[f"{HOME}/{B}/infiniband/ibp1/ports/1/has_smi"] = b"0\n"
    return LO | hca("ibp0", A) | twin | card("ibp2", C)


def observed(tree: Entries, errors: Mapping[str, int] | None = None) -> Observation:
    return observe(host(Kernel(tree, errors=errors)))


def failures(observation: Observation) -> dict[str, str | None]:
    assert isinstance(observation.rdma, Seen)
    devices: tuple[RdmaDevice, ...] = observation.rdma.value
    return {device.name: device.failure for device in devices}


def backend(observation: Observation) -> list[str]:
    return [role.interface for role in observation.ports if role.backend]


@pytest.mark.parametrize("number", FAILED)
@pytest.mark.parametrize("attribute", INFINIBAND_INPUTS)
def test_a_role_input_that_cannot_be_read_fails_an_infiniband_device(
    attribute: str, number: int
) -> None:
    """Its rule is not one that does not apply; the other device keeps its role."""
    path = f"{CLASS}/ibp0/{attribute}"
    observation = observed(INFINIBAND, {path: number})
    assert failures(observation)["ibp0"]
    assert [role.interface for role in observation.ports] == ["ibp1"]
    assert backend(observation) == ["ibp1"]
    assert f"/{path}" in [problem.subject for problem in observation.problems]


@pytest.mark.parametrize("number", FAILED)
@pytest.mark.parametrize("path", ETHERNET_INPUTS)
def test_a_role_input_that_cannot_be_read_fails_an_ethernet_device(path: str, number: int) -> None:
    """No bond or leg is published under another name; the other device keeps its role."""
    assert backend(observed(ETHERNET)) == ["mlx5_0-1-eth1", "mlx5_0-1-eth2", "mlx5_0-2-eth1",
                                           "mlx5_0-2-eth2", "mlx5_1"]  # fmt: skip
    observation = observed(ETHERNET, {path: number})
    assert failures(observation)["mlx5_0"]
    assert backend(observation) == ["mlx5_1"]


@pytest.mark.parametrize("number", ABSENT)
@pytest.mark.parametrize("attribute", [*INFINIBAND_INPUTS[2:], "hca_type"])
def test_a_role_input_that_is_absent_fails_no_device(attribute: str, number: int) -> None:
    """Old kernels and other drivers lack the attribute; its rule does not apply then."""
    observation = observed(INFINIBAND, {f"{CLASS}/ibp0/{attribute}": number})
    assert failures(observation) == {"ibp0": None, "ibp1": None}
    assert backend(observation) == ["ibp0", "ibp1"]
    assert observation.problems == observed(INFINIBAND).problems


@pytest.mark.parametrize(
    ("path", "number"),
    [
        *((f"{NET}/eth3/{name}", number)
          for name in ("phys_port_name", "master", "bonding/slaves") for number in ABSENT),
        (f"{CLASS}/mlx5_1/ports/1/gid_attrs/ndevs/0", EINVAL),
        (f"{NET}/eth3/speed", EINVAL),
    ],
)  # fmt: skip
def test_an_attribute_that_most_netdevs_lack_fails_no_device(path: str, number: int) -> None:
    """EINVAL of an empty GID, and of the speed without a link, means unset."""
    observation = observed(ETHERNET, {path: number})
    assert failures(observation) == {"mlx5_0": None, "mlx5_1": None}
    assert "mlx5_1" in backend(observation)
    assert observation.problems == observed(ETHERNET).problems


@pytest.mark.parametrize("attribute", NO_INPUTS)
def test_a_fact_that_decides_no_role_fails_no_device(attribute: str) -> None:
    """It is unknown, with a problem, and the device stays what it is."""
    observation = observed(INFINIBAND, {f"{CLASS}/ibp0/{attribute}": EIO})
    assert failures(observation) == {"ibp0": None, "ibp1": None}
    assert backend(observation) == ["ibp0", "ibp1"]
    assert len(observation.problems) == 1 + len(observed(INFINIBAND).problems)


@pytest.mark.parametrize("attribute", ["ports", "node_type", "ports/1/has_smi"])
@pytest.mark.parametrize("name", ["smi0", "ibp9"])
def test_what_sits_behind_the_function_of_a_failed_device_is_hidden(
    attribute: str, name: str
) -> None:
    """The SMI sub-device of a failed HCA becomes no backend port, whatever its name."""
    tree = multi_plane(name, hca)
    assert backend(observed(tree)) == ["ibp0", "ibp1"]
    observation = observed(tree, {f"{CLASS}/ibp0/{attribute}": EIO})
    assert backend(observation) == ["ibp1"]
    assert [role.interface for role in observation.ports] == ["ibp1"]


GOING: dict[str, tuple[Entries, list[str], list[str]]] = {
    "smi0": (multi_plane("smi0", hca), ["ibp0", "ibp1"], ["ibp1"]),
    "ibp9": (multi_plane("ibp9", hca), ["ibp0", "ibp1"], ["ibp1"]),
    "the twin of a Socket-Direct function": (socket_direct(), ["ibp0", "ibp2"], ["ibp2"]),
}


@pytest.mark.parametrize(("tree", "before", "after"), GOING.values(), ids=GOING)
def test_what_sits_behind_the_function_of_a_device_that_goes_is_hidden(
    tree: Entries, before: list[str], after: list[str]
) -> None:
    """The first one is in the class, and has no ports or nothing any more when it is read."""
    root = Kernel(tree)
    node = host(root)
    memories = memories_of(node)
    assert backend(observe(node, memories=memories)) == before
    for gone in ("ports", ""):
        root.vanishes = f"{CLASS}/ibp0/{gone}".rstrip("/"), 0, ENOENT
        memories.readers.refresh()
        ports = observe(node, memories=memories).ports
        assert [role.interface for role in ports] == after


def test_an_smi_sub_device_with_a_parent_is_not_hidden() -> None:
    """It is told by its parent, though there is a device that nobody can look into.

    No PCI function of that one is known, so the node is undecided until it has labels.
    """
    errors = {f"{CLASS}/odd": EIO, f"{CLASS}/odd/ports": EIO}
    tree = multi_plane() | {f"{CLASS}/odd": None}
    outcome = read_rdma(host(Kernel(tree, errors=errors))).outcome
    assert isinstance(outcome, Seen)
    assert {device.name for device in outcome.value if device.failure} == {"odd"}
    assert isinstance(observed(tree, errors).rdma, Failed)
    labels = {"ibp0": A, "ibp1": B}
    labeled = observe(host(Kernel(tree, errors=errors)), labeled=labels)
    assert backend(labeled) == ["ibp0", "ibp1"]


@pytest.mark.parametrize("attribute", ["ports/1/gids/0", "ports/1/has_smi", "sys_image_guid"])
@pytest.mark.parametrize("text", [b"", b"\n"])
def test_an_empty_role_input_fails_a_device(attribute: str, text: bytes) -> None:
    """The kernel never writes that, so no rule may take it for an absent attribute."""
    tree = multi_plane()
    tree[f"{HOME}/{A}/infiniband/ibp0/{attribute}"] = text
    observation = observed(tree)
    assert failures(observation)["ibp0"] == f"/{CLASS}/ibp0/{attribute} is malformed"
    assert [role.interface for role in observation.ports] == ["ibp1"]


@pytest.mark.parametrize("attribute", ["sys_image_guid", "ports/1/has_smi", "ports"])
def test_the_twin_of_a_failed_socket_direct_function_is_no_backend_port(attribute: str) -> None:
    """One cable: its second function does not count because the first one cannot be read."""
    assert backend(observed(socket_direct())) == ["ibp0", "ibp2"]
    assert backend(observed(socket_direct(), {f"{CLASS}/ibp0/{attribute}": EIO})) == ["ibp2"]


@pytest.mark.parametrize("attribute", ["class", "vendor"])
def test_a_function_that_may_be_a_gpu_is_not_no_gpu(attribute: str) -> None:
    """While its class or vendor cannot be read the GPUs have failed: the label is held."""
    observation = observed(LO | gpu(C), {f"{HOME}/{C}/{attribute}": EIO})
    assert not isinstance(observation.nvml, Absent)
    assert observation.accelerator.holds
