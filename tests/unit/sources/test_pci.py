"""Labels of devices that are missing while their PCI function is on the bus."""

from __future__ import annotations

import pytest

from agent.encode import Naming
from agent.kube.annotation import Annotation
from agent.labels.render import render
from agent.memory import known_of
from agent.sources.observe import Memories, observe
from agent.sources.pci import Place, unbound
from tests.support.devices import ib
from tests.support.kernel_tree import BUS, CLASS, HOME, NET, Entries, Kernel, hca, host, netdev
from tests.support.nodes import rows
from tests.support.remembering import completed

A, B = "0000:18:00.0", "0000:19:00.0"
BOTH = hca("ibp0", A) | hca("ibp1", B) | {f"{NET}/lo": None}
WITHOUT = {path: entry for path, entry in BOTH.items() if path != f"{CLASS}/ibp1"}
P = "backend.coreweave.cloud"
BEFORE = {
    f"{P}/flavor": "infiniband",
    f"{P}/speed.current": "800G",
    f"{P}/neighbors.current.ibp1.device": "leaf",
}
LABELED = {"ibp0": A, "ibp1": B}


def remembered(labeled: dict[str, str]) -> Annotation:
    return Annotation(1, "b", rows(*labeled.items()))


def test_the_labels_of_a_driver_that_reloads_stay() -> None:
    """Speed and neighbor are held, with a problem; without the annotation the device is unknown."""
    seen = observe(host(Kernel(WITHOUT)), labeled=LABELED)
    found, known = completed(seen, BEFORE, remembered(LABELED), Place.BUS)
    text = "its PCI function 0000:19:00.0 is on the bus"
    assert any(text in problem.text for problem in found.problems)
    assert BEFORE.items() <= render(known, Naming()).over(BEFORE).labels.items()
    _, known = completed(observe(host(Kernel(WITHOUT))), BEFORE)
    forgotten = render(known, Naming()).labels
    assert forgotten[f"{P}/speed.current"] == "400G"
    assert f"{P}/neighbors.current.ibp1.device" not in forgotten


def test_a_roce_node_whose_driver_is_unloaded_keeps_its_flavor() -> None:
    """The class is missing, but the labeled function is on the bus."""
    tree = {
        path: entry
        for path, entry in (hca("mlx5_0", A, "Ethernet") | netdev("eth0", A)).items()
        if not path.startswith(CLASS)
    }
    seen = observe(host(Kernel(tree)), labeled={"mlx5_0": A})
    before = {f"{P}/flavor": "roce", f"{P}/speed.current": "400G"}
    _, known = completed(seen, before, remembered({"mlx5_0": A}), Place.BUS)
    assert render(known, Naming()).over(before).labels == before


def test_a_front_end_does_not_replace_infiniband_whose_driver_is_unloaded() -> None:
    """Its speed and neighbors are not the backend's; after the hold there is no backend."""
    front = hca("mlx5_bond_0", "0000:aa:00.0", "Ethernet", {1: "eth0"}) | netdev(
        "eth0", "0000:aa:00.0"
    )
    tree = {
        path: entry for path, entry in (BOTH | front).items() if not path.startswith(f"{CLASS}/ibp")
    }
    seen = observe(host(Kernel(tree)), labeled=LABELED)
    assert [(role.interface, role.backend) for role in seen.ports] == [("mlx5_bond_0", False)]
    before = BEFORE | {"ib.coreweave.cloud/speed.current": "800G"}
    _, known = completed(seen, before, remembered(LABELED), Place.BUS)
    leaf = {f"{P}/leaves.current": "leaf", "ib.coreweave.cloud/leaves.current": "leaf",
            "ib.coreweave.cloud/neighbors.current.ibp1.device": "leaf"}  # fmt: skip
    assert render(known, Naming()).over(before).labels == before | leaf
    assert render(known_of(seen), Naming()).labels == {f"{P}/speed.current": "0G"}


PULLED_OUT = {
    path: entry
    for path, entry in WITHOUT.items()
    if not path.startswith((f"{BUS}/{B}", f"{HOME}/{B}"))
}
GIVEN_AWAY = WITHOUT | {f"{HOME}/{B}/driver": "../../../bus/pci/drivers/vfio-pci"}


@pytest.mark.parametrize("tree", [PULLED_OUT, GIVEN_AWAY], ids=["pulled out", "given to a VM"])
def test_a_function_that_was_removed_has_no_missing_device(tree: Entries) -> None:
    assert unbound(host(Kernel(tree)), (ib("ibp0", 0x18),), LABELED, Memories()) == set()


def test_a_device_that_is_present_is_not_missing() -> None:
    """A device that was renamed, failed, is excluded or has several ports is present."""
    root = host(Kernel(BOTH))
    renamed = ib("mlx5_1", 0x19)
    sick = ib("ibp1", 0x19)._replace(pci=None, failure="blocks", ports=())
    for device, interface in ((renamed, "ibp1"), (sick, "ibp1"), (sick, "ibp1-3")):
        assert unbound(root, (device,), {interface: B}, Memories()) == set()
    assert unbound(root, (), LABELED, Memories()) == {A, B}


def test_a_device_listed_without_a_port_is_missing() -> None:
    """The class still lists a device that has just been unbound."""
    hollow = ib("ibp1", 0x19)._replace(pci=None, ports=())
    assert unbound(host(Kernel(BOTH)), (hollow,), {"ibp1": B}, Memories()) == {B}
