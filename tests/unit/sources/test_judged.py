"""Machines that earlier rules labeled wrongly, each with what is right by the label contract.

They are made after public reports; PCI addresses, switches and the order of devices are filled in,
and so are the CPU nodes, after the front ends that docs/labels.md names.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agent.model import Failed, RdmaDevice, Seen
from agent.sources.observe import Memories, observe
from agent.sources.roles import Decision
from agent.sysfs.bus import Bus, Function
from agent.sysfs.front_end import FrontEnd
from tests.support.devices import PORT, decide, eth, ib, netdev, plain, port
from tests.support.kernel_tree import HOME, Kernel, bdf, card, hca, host, nic, routes
from tests.support.machines import evidence_of

OTHER = {"pci_ids": "15b3:101d"}  # ConnectX-6 Dx
ELSEWHERE = FrontEnd(frozenset({"eno1"}), frozenset({"eno1"}))  # on a NIC without RDMA


def gpus(count: int, ids: str = "10de:2330", code: int = 0x0302, *, near: bool = False) -> Bus:
    """GPUs on a flat bus, or each below a switch, where a NIC of the same number may be."""
    return Bus(
        {
            f"0000:{0xC0 + n:02x}:00.0": beside(n, f"0000:{0xC0 + n:02x}:00.0", ids, code)
            if near
            else Function(f"0000:{0xC0 + n:02x}:00.0", code, ids)
            for n in range(count)
        }
    )


def beside(switch: int, address: str, ids: str | None, code: int = 0x0200) -> Function:
    root, port = f"pci00{switch + 16:02x}:00", f"00{switch + 16:02x}:00:01.0"
    return Function(
        address, code, ids, host_bridge=root, bridges=(port,), bridge_ids=("1000:c030",)
    )


def near(bus: Bus, devices: Iterable[RdmaDevice]) -> Bus:
    """The bus with each device below the switch of its number."""
    nics = {str(d.pci): beside(n, str(d.pci), d.pci_ids) for n, d in enumerate(devices)}
    return Bus({**bus.functions, **nics}, bus.unread, bus.failure)


def rails(count: int, *, routed: int = 0, down: int = 0, **facts: Any) -> list[RdmaDevice]:
    """RoCE NICs of 400G, the first ones with the default route, the last ones without a link."""
    found = []
    for number in range(count):
        of_netdev = netdev(f"rail{number}", default_route=number < routed)
        device = eth(f"rail{number}", number + 1, port(netdev=of_netdev), **facts)
        found.append(plain(device, state="DOWN") if number >= count - down else device)
    return found


def front(bus: int = 0x70, gbps: int = 25, *, routed: bool = True, **facts: Any) -> RdmaDevice:
    of_netdev = netdev("front", speed_mbps=gbps * 1000, default_route=routed)
    one = port(netdev=of_netdev, rate_gbps=float(gbps))
    return eth("front", bus, one, **({"pci_ids": "15b3:101f"} | facts))


def storage(count: int, gbps: float, ids: str, bus: int = 0x60) -> list[RdmaDevice]:
    one = PORT._replace(rate_gbps=gbps)
    return [ib(f"store{n}", bus + n, one._replace(port_guid=f"{n:016x}"), pci_ids=ids)
            for n in range(count)]  # fmt: skip


class Judged(NamedTuple):
    """A machine, and its flavor, speed, backend ports, and whether a hint is due (`told`)."""

    devices: list[RdmaDevice]
    verdict: str
    bus: Bus = Bus()
    facts: dict[str, Any] = {}  # noqa: RUF012 - of `decide`


def dark(ids: str) -> list[RdmaDevice]:
    """Two RoCE NICs without a link; the rate is what ib_get_eth_speed makes of no speed."""
    one = port(state="DOWN", netdev=netdev("dark", speed_mbps=None), rate_gbps=2.5)
    return [eth(f"d{n}", 0x60 + n, one, pci_ids=ids, subsystem="1dd8:5201") for n in range(2)]


QUAD = [
    eth(f"q{n}", 0x50, port(netdev=netdev(f"q{n}", speed_mbps=25000), rate_gbps=25.0),
        pci=f"0000:50:00.{n}", pci_ids="8086:159b")
    for n in range(4)
]  # fmt: skip
LOM = [  # onboard
    eth(f"lom{n}", 0x20, port(netdev=netdev(f"lom{n}", speed_mbps=10000), rate_gbps=10.0),
        pci=f"0000:20:00.{n}", pci_ids="14e4:16d8")
    for n in range(2)
]  # fmt: skip
BOND = port(
    legs=(netdev("b0", speed_mbps=200_000, default_route=True), netdev("b1", speed_mbps=200_000))
)
UPLINKS = [
    eth(f"up{n}", 0x71, port(netdev=netdev(f"u{n}", speed_mbps=25000), rate_gbps=25.0),
        pci=f"0000:71:00.{n}", pci_ids="15b3:101f")
    for n in range(2)
]  # fmt: skip
BOTH = frozenset({"u0", "u1"})
ECMP = FrontEnd(BOTH, BOTH)
ON_VF = FrontEnd(frozenset({"v0"}), frozenset({"v0"}), frozenset({"0000:71:00.2", "0000:71:00.0"}))
HFIS = "0000:01:00.0", "0000:02:00.0"
NO_NIC = FrontEnd(frozenset({"wg0"}), unknown="no NIC carries the default route: it is on wg0")

JUDGED: dict[str, Judged] = {
    "DHCP of equal metric on every NIC, and one rail down": Judged(
        [*rails(8, routed=7, down=1), front()], "roce, 2800G, 8 ports, told", gpus(8)
    ),
    "gateways on rails, and the front end's route gone (nccl#1109)": Judged(
        [*rails(8, routed=8), front(routed=False)], "roce, 3200G, 8 ports, told", gpus(8)
    ),
    "ECMP over all rails (hedgehog/fabric#1533)": Judged(
        rails(8, routed=8), "roce, 3200G, 8 ports, told", gpus(8)
    ),
    "GB200 with four 400G RoCE NICs and one HDR HCA": Judged(
        [*rails(4), *storage(1, 200.0, "15b3:101b")], "roce, 1600G, 4 ports, told", gpus(4)
    ),
    "a guest with eight rails and one HCA": Judged(
        [*rails(8, pci_ids="15b3:101e"), *storage(1, 100.0, "15b3:1013")],
        "roce, 3200G, 8 ports, told", gpus(8),
    ),
    "four and one HCAs of one model on a flat bus (topograph#488)": Judged(
        storage(5, 400.0, "15b3:1021"), "infiniband, 2000G, 5 ports, told", gpus(4)
    ),
    "eight InfiniBand HCAs and an Ethernet bond of their rate": Judged(
        [*storage(8, 400.0, "15b3:1021"), *rails(2)], "infiniband, 3200G, 8 ports, told", gpus(8)
    ),
    "a CPU node whose front end is not seen": Judged(
        rails(2), "none, no label, 0 ports", facts={"front_end": NO_NIC}
    ),
    "a CPU node whose front end is ECMP over two uplinks (routing on the host)": Judged(
        UPLINKS, "none, 0G, 0 ports", facts={"front_end": ECMP}
    ),
    "a CPU node whose route is on a VF": Judged(
        [UPLINKS[0], eth("vf", 0x71, port(netdev=netdev("v0", speed_mbps=25000)),
                         virtual_function=True, pci="0000:71:00.2", pci_ids="15b3:101e")],
        "none, 0G, 0 ports", facts={"front_end": ON_VF},
    ),
    "a CPU node without a route yet": Judged(
        UPLINKS, "none, no label, 0 ports",
        facts={"front_end": FrontEnd(unknown="no NIC carries the default route")},
    ),
    "the netdev of one of four Thor2 tells no speed": Judged(
        [*rails(3, pci_ids="14e4:1760"),
         eth("odd", 9, port(netdev=netdev("odd", speed_mbps=None), rate_gbps=100.0),
             pci_ids="14e4:1760")],
        "roce, 1300G, 4 ports, told", gpus(4),
    ),
    "two HFIs of Omni-Path (hfi2) beside GPUs, and a port of 25G": Judged(
        [*(ib(f"hfi2_{n}", n + 1, driver="hfi2", pci_ids="8086:24f0") for n in range(2)),
         front(routed=False)],
        "roce, 25G, 1 ports, told",
        Bus({**gpus(8).functions, **{pci: Function(pci, 0x0208, "8086:24f0") for pci in HFIS}}),
    ),
    "four rails, of which two fell off the bus, and two storage NICs of their model": Judged(
        [*rails(2), *rails(6)[4:]], "roce, 1600G, 4 ports, told",
        near(gpus(4, near=True), rails(2)),
    ),
    "an L40S server with a quad 25G card onboard": Judged(
        [*QUAD, *rails(2)], "roce, 800G, 2 ports", gpus(4)
    ),
    "two Pollara 400 without a link, of which the kernel prints 2.5 Gb/s": Judged(
        [*dark("1dd8:1002"), *LOM], "roce, 0G, 2 ports, told"
    ),
    "two NICs without a link, of a model that the table lacks": Judged(
        [*dark("14e4:1770"), *LOM], "roce, 20G, 2 ports, told"
    ),
    "a bonded front end beside one 200G rail (2-4-3-200)": Judged(
        [eth("bond", 9, BOND, pci="0000:09:00.0", **OTHER),
         eth("rail", 1, port(netdev=netdev("r", speed_mbps=200_000), rate_gbps=200.0),
             pci_ids="15b3:101b")],
        "roce, 200G, 1 ports", gpus(2),
    ),
    "MetaX C500: two storage NICs are far from the GPUs": Judged(
        rails(10), "roce, 3200G, 8 ports", near(gpus(8, "9999:4000", 0x0380, near=True), rails(8))
    ),
}  # fmt: skip


def outcome(decision: Decision) -> str:
    backend = [role for role in decision.roles if role.backend]
    layers = {role.port.link_layer for role in backend}
    flavor = (
        {"InfiniBand": "infiniband", "Ethernet": "roce"}[str(layers.pop())] if layers else "none"
    )
    speed = f"{sum(role.counted_gbps or 0.0 for role in backend):g}G"
    return f"{flavor}, {'no label' if decision.undecided else speed}, {len(backend)} ports"


@pytest.mark.parametrize("judged", JUDGED.values(), ids=JUDGED)
def test_a_machine_is_right_and_told_where_that_is_due(judged: Judged) -> None:
    facts = {"front_end": ELSEWHERE, **judged.facts}
    decision = decide(judged.devices, bus=judged.bus, **facts)
    assert outcome(decision) + (", told" if decision.hints else "") == judged.verdict


def test_an_infiniband_hca_that_is_excluded_by_name_makes_no_node_infiniband() -> None:
    """RoCE rails and one storage HCA; its PCI function stays excluded under another name."""
    tree = nic(0) | nic(1) | card("ibp9", bdf(9))
    found, memories = host(Kernel(tree))._replace(excluded=("ibp9",)), Memories()
    for _ in range(2):
        ports = observe(found, memories=memories).ports
        assert [role.device.name for role in ports if role.backend] == ["mlx5_0", "mlx5_1"]
    renamed = nic(0) | nic(1) | card("mlx5_9", bdf(9))
    found = found._replace(root=Kernel(renamed))
    ports = observe(found, memories=memories).ports
    assert {role.device.name for role in ports} == {"mlx5_0", "mlx5_1"}


def test_a_cpu_node_without_the_rdma_module_is_told() -> None:
    """NICs of mlx5_core without RDMA devices, on a node without GPU."""
    tree = {
        path: entry
        for path, entry in (nic(0) | hca("x", bdf(1), "Ethernet")).items()
        if "infiniband" not in path
    }
    tree[f"{HOME}/{bdf(0)}/driver"] = "../../../bus/pci/drivers/mlx5_core"
    problems = observe(host(Kernel(tree))).problems
    assert [one for one in problems if "modprobe mlx5_ib" in one.text]


def test_a_nic_of_the_backend_without_its_rdma_device_is_told() -> None:
    """The module of one of two NICs failed; the speed is that of the other one."""
    tree = nic(0) | {path: entry for path, entry in nic(1).items() if "infiniband" not in path}
    whole, observation = observe(host(Kernel(nic(0) | nic(1)))), observe(host(Kernel(tree)))
    assert (len(whole.backend), len(observation.backend)) == (2, 1)
    assert not [problem for problem in whole.problems if problem.subject == bdf(1)]
    (problem,) = [problem for problem in observation.problems if problem.subject == bdf(1)]
    assert problem.text == "a NIC without RDMA device: has it failed, is its driver loaded?"


def test_infiniband_without_its_module_beside_another_rdma_device_is_no_count() -> None:
    """A fresh node: no state of a backend port was ever read."""
    tree = nic(0) | routes("eth0")
    tree |= {path: entry for path, entry in card("ibp1", bdf(1)).items() if "ibp1" not in path}
    observation = observe(host(Kernel(tree)))
    assert isinstance(observation.rdma, Failed)
    reason = f"PCI function {bdf(1)}: no RDMA device: is its driver loaded?"
    assert observation.rdma.reason == reason


def without(machine: Path, kind: str, number: int) -> Decision:
    """The decision of a fresh agent without one GPU, or one backend NIC."""
    evidence, observation = evidence_of(machine)
    assert isinstance(observation.rdma, Seen)
    devices, bus = list(observation.rdma.value), evidence.bus.bus
    names = [role.device.name for role in observation.backend]
    gone = bus.gpus[number].address if kind == "gpu" else None
    if kind == "nic":
        gone = next(device.pci for device in devices if device.name == names[number])
        devices = [device for device in devices if device.pci != gone]
    functions = {address: one for address, one in bus.functions.items() if address != gone}
    bus = Bus(functions, bus.unread, bus.failure)
    return decide(devices, bus=bus, front_end=evidence.front_end)


@pytest.mark.parametrize("name", ["mixed-ib-storage", "h200-roce-replaced-card"])
def test_a_loss_raises_no_speed(name: str, repository: Path) -> None:
    """A fresh agent, without any GPU or NIC of eight."""
    machine = repository / "sysfs_fixtures" / name
    for number in range(8):
        assert outcome(without(machine, "nic", number)).endswith(", 2800G, 7 ports")
        assert outcome(without(machine, "gpu", number)).endswith(", 3200G, 8 ports")
