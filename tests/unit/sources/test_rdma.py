"""The RDMA source over trees in memory and on disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from errno import EACCES, EINVAL, EIO, ENODEV, ENOENT, ETIMEDOUT

import pytest

from agent.host import Host
from agent.model import Absent, Failed, Netdev, Problem, RdmaDevice, RdmaPort, Reading, Seen
from agent.sources.observe import Memories, observe
from agent.sysfs.reader import Root
from agent.sysfs.worker import DeviceReaders, InlineWorker
from tests.support.kernel_tree import (
    BUS,
    CLASS,
    HOME,
    NET,
    BeforeReads,
    Entries,
    Kernel,
    card,
    hca,
    host,
    netdev,
)
from tests.support.sources import memories_of, read_rdma

A, B = "0000:18:00.0", "0000:19:00.0"
LO: Entries = {f"{NET}/lo": "../../devices/virtual/net/lo"}
EMPTY: Entries = {CLASS: None}
PLENTY = 60.0  # seconds that anything may take on a busy machine


def seen(
    root: Kernel, *, excluded: tuple[str, ...] = (), deadline: float = 5.0
) -> dict[str, RdmaDevice]:
    outcome = read_rdma(host(root, excluded, deadline)).outcome
    assert isinstance(outcome, Seen)
    return {device.name: device for device in outcome.value}


def controller(code: bytes = b"0x020700\n", driver: str | None = None) -> Entries:
    link = {f"{HOME}/{A}/driver": f"../../../bus/pci/drivers/{driver}"} if driver else {}
    return {f"{BUS}/{A}": f"../../../devices/pci0000:00/{A}", f"{HOME}/{A}/class": code, **link}


def test_a_populated_class_is_read_whole() -> None:
    """Every fact of a device and its port comes from its own file."""
    port = RdmaPort(
        number=1,
        link_layer="InfiniBand",
        state="ACTIVE",
        phys_state="LinkUp",
        rate_text="400 Gb/sec (4X NDR)",
        rate_gbps=400.0,
        port_guid="a088c20300abcdef",
        has_smi=True,
        link_downed=3,
        netdev=Netdev("ibp24s0", None, "up", None, default_route=False),
        legs=(),
    )
    device = RdmaDevice(
        "ibp0",
        pci=A,
        driver="mlx5_core",
        pci_ids="15b3:1021",
        numa_node=1,
        node_type="CA",
        node_guid="a088c20300abcdef",
        sys_image_guid="a088c20300abcdef",
        hca_type="MT4129",
        board_id="MT_0000000838",
        fw_ver="28.39.1002",
        netdevs=("ibp24s0",),
        ports=(port,),
    )
    assert read_rdma(host(Kernel(hca("ibp0", A), netdev("ibp24s0", A)))) == Reading(Seen((device,)))


def test_a_tree_that_lost_its_links_is_read_by_uevent() -> None:
    """A device copied with folders in place of its links has both in `device/uevent`."""
    uevent = f"DRIVER=irdma\nPCI_SLOT_NAME={B}\n".encode()
    copied = seen(Kernel({f"{CLASS}/x0/ports": None, f"{CLASS}/x0/device/uevent": uevent}))["x0"]
    assert (copied.pci, copied.driver) == (B, "irdma")
    half: Entries = {f"{CLASS}/x0/device": f"../{A}", f"{CLASS}/{A}/uevent": uevent}
    device = seen(Kernel(half))["x0"]
    assert (device.pci, device.driver) == (A, "irdma")
    lost = seen(Kernel({f"{CLASS}/x0/ports": None, f"{CLASS}/x0/node_type": b"1: CA\n"}))["x0"]
    assert (lost.pci, lost.driver) == (None, None)


@pytest.mark.parametrize(
    ("errors", "is_read"),
    [({}, True), ({"device": EIO}, True), ({"": EIO}, True), ({"device": EIO, "": EIO}, False)],
)
def test_a_sub_function_is_one_by_either_of_its_links(
    errors: dict[str, int], *, is_read: bool
) -> None:
    """By one of them it is known; without both its role is not."""
    home, own = f"{HOME}/{A}/mlx5_core.sf.4", f"{HOME}/{A}/mlx5_core.sf.4/infiniband/sf0"
    tree: Entries = {
        path.replace(f"{HOME}/{A}/infiniband/sf0", own): entry
        for path, entry in hca("sf0", A, "Ethernet").items()
    }
    tree |= {
        f"{CLASS}/sf0": f"../../{own.removeprefix('sys/')}",
        f"{own}/device": "../../../mlx5_core.sf.4",
    }
    tree[f"{home}/driver"] = "../../../../bus/auxiliary/drivers/mlx5_core.sf"
    root = Kernel(
        tree, errors={f"{CLASS}/sf0/{path}".rstrip("/"): one for path, one in errors.items()}
    )
    device = seen(root)["sf0"]
    assert (device.sub_function, device.failure is None) == (is_read, is_read)


@pytest.mark.parametrize("what", [{f"{HOME}/{A}/physfn": f"../{B}"}, {f"{HOME}/{A}/physfn": None}])
def test_a_virtual_function_has_a_physical_one(what: Entries) -> None:
    devices = seen(Kernel(hca("vf0", A), hca("pf0", B), what))
    assert (devices["vf0"].virtual_function, devices["pf0"].virtual_function) == (True, False)


def test_devices_come_in_natural_order() -> None:
    root = Kernel(hca("mlx5_10", A), hca("mlx5_9", B))
    assert list(seen(root)) == ["mlx5_9", "mlx5_10"]


@pytest.mark.parametrize("nothing", [{}, EMPTY])
def test_no_hardware_is_absent(nothing: Entries) -> None:
    """Without a device, and without an InfiniBand controller on the bus; that is no problem."""
    words = "is empty" if nothing else "is not there"
    assert read_rdma(host(Kernel(LO, nothing))) == Reading(
        Absent(f"no RDMA device: /{CLASS} {words}")
    )
    for other in (
        controller(b"0x020000\n"),
        controller(driver="vfio-pci"),
        controller(b"0x060400\n"),
    ):
        assert isinstance(read_rdma(host(Kernel(LO, nothing, other))).outcome, Absent)


@pytest.mark.parametrize("nothing", [{}, EMPTY])
@pytest.mark.parametrize("code", [b"0x020700\n", b"0x0c0600\n", b"0x020701\n"])
@pytest.mark.parametrize("driver", [None, "mlx5_core", "not-vfio-pci"])
def test_an_infiniband_controller_without_its_device_is_a_failure(
    nothing: Entries, code: bytes, driver: str | None
) -> None:
    """Its driver reloads or is not loaded; the reason names the function."""
    outcome = read_rdma(host(Kernel(LO, nothing, controller(code, driver)))).outcome
    assert isinstance(outcome, Failed)
    assert A in outcome.reason


@pytest.mark.parametrize(
    "errors", [{BUS: EIO}, {f"{BUS}/{A}/class": EIO}, {BUS: EACCES}, {f"{BUS}/{A}/class": ENODEV}]
)
def test_a_bus_that_cannot_be_read_proves_nothing(errors: dict[str, int]) -> None:
    """Absence removes labels, so it needs a complete read of the bus."""
    reading = read_rdma(host(Kernel(LO, controller(b"0x020000\n"), errors=errors)))
    assert isinstance(reading.outcome, Failed)
    assert len(reading.problems) == 1


def test_an_odd_netdev_name_does_not_keep_a_node_from_having_no_hardware() -> None:
    """A problem in another folder does not make the read of the bus incomplete."""
    odd: Entries = {f"{NET}/caf\u00e9": None}
    reading = read_rdma(host(Kernel(LO, odd, controller(b"0x020000\n"))))
    assert isinstance(reading.outcome, Absent)
    assert len(reading.problems) == 1


def test_no_sys_is_a_failure() -> None:
    """A tree without `lo` is not a mounted sysfs."""
    outcome = read_rdma(host(Kernel({}))).outcome
    assert isinstance(outcome, Failed)
    assert "mounted" in outcome.reason


@pytest.mark.parametrize("path", [CLASS, f"{NET}", f"{BUS}/{A}/class", "proc/net/route"])
@pytest.mark.parametrize("number", [EIO, ETIMEDOUT])
def test_a_class_that_cannot_be_listed_is_a_failure(path: str, number: int) -> None:
    """It is not empty; a routing table that cannot be read does not fail an InfiniBand node."""
    full = path == "proc/net/route"
    parts = (hca("ibp0", A),) if full else (LO, controller(b"0x020000\n"))
    outcome = read_rdma(host(Kernel(*parts, errors={path: number}))).outcome
    assert isinstance(outcome, Seen if full else Failed)


def test_a_device_without_ports_is_no_failure() -> None:
    """`scif0` never has a `ports` folder."""
    root = Kernel({f"{CLASS}/scif0": None}, hca("ibp0", A))
    assert seen(root)["scif0"] == RdmaDevice("scif0")
    assert [problem.subject for problem in read_rdma(host(root)).problems] == [
        f"/{CLASS}/scif0/ports"
    ]


def test_odd_port_folders_are_left_out() -> None:
    """A port number is from 1 to 255, without leading zeros; other names are reported."""
    odd = ["0", "01", "-1", "256", "x", "1x", " 2", "9" * 200]
    root = Kernel(
        hca("ibp0", A, ports={1: None, 255: None}),
        {f"{HOME}/{A}/infiniband/ibp0/ports/{n}": None for n in odd},
    )
    assert [port.number for port in seen(root)["ibp0"].ports] == [1, 255]
    assert len(read_rdma(host(root)).problems) == len(odd)


@pytest.mark.slow
def test_a_device_that_blocks_costs_only_itself() -> None:
    """After its deadline its facts are unknown; the other devices have theirs."""
    root = Kernel(hca("ibp0", A), hca("ibp1", B))
    root.blocks_below = f"{CLASS}/ibp0"
    start = time.monotonic()
    reading = read_rdma(host(root, deadline=1))
    root.unblocked.set()
    assert time.monotonic() - start < PLENTY
    assert isinstance(reading.outcome, Seen)
    blocked, other = reading.outcome.value
    assert blocked == RdmaDevice("ibp0", failure="blocks", pci=A)
    assert other.ports[0].state == "ACTIVE"
    (problem,) = reading.problems
    assert (problem.subject, problem.error) == (f"/{CLASS}/ibp0", "ETIMEDOUT")
    assert "blocked in the kernel, or a CPU limit throttles the agent" in problem.text


class SlowReaders(DeviceReaders):
    """Readers whose reads of ibp0 end when `end` is called."""

    def __init__(self) -> None:
        tasks: list[Callable[[], None]] = []

        class SlowWorker(InlineWorker):
            def put(self, device: str, task: Callable[[], None]) -> None:
                if device == "ibp0":
                    tasks.append(task)
                else:
                    task()

        super().__init__(worker=SlowWorker)
        self._tasks = tasks

    def end(self) -> None:
        while self._tasks:
            self._tasks.pop()()


@pytest.mark.parametrize("at", ["fw_ver", "ports/1/counters/link_downed"])
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("has_begun", [True, False])
def test_facts_of_before_do_not_replace_newer_ones(
    at: str, *, is_known: bool, has_begun: bool
) -> None:
    """A device appears, and is read in two steps; meanwhile a slow read of another one ends."""
    up, down = card("ibp0", A), card("ibp0", A)
    down[f"{HOME}/{A}/infiniband/ibp0/ports/1/state"] = b"1: DOWN\n"
    memories = Memories(readers := SlowReaders())

    def end_at(path: str) -> None:
        if path == f"{CLASS}/ibp1/{at}":
            readers.end()

    def ports_of(root: Root) -> list[RdmaPort]:
        node = Host(root, lambda: 0.0, deadline=0, worker=InlineWorker)
        outcome = read_rdma(node, memories).outcome
        return list(outcome.value[0].ports) if isinstance(outcome, Seen) else []

    for _ in range(2 if is_known else 1):
        ports_of(Kernel(up))
        readers.end()
    readers.refresh()
    if has_begun:
        ports_of(Kernel(up))
        readers.refresh()
    now = BeforeReads(Kernel(down, card("ibp1", B)), end_at)
    ports_of(now)
    readers.end()
    ports_of(now)
    readers.end()
    [port] = ports_of(now)
    assert (port.state, port.link_downed) == ("DOWN", 3)


CONSTANTS = ("sys_image_guid", "hca_type", "board_id")


def constants_asked(root: Kernel) -> list[str]:
    """The attributes of ibp0 that do not change and were read since the last call."""
    found = [name for name in CONSTANTS if f"{CLASS}/ibp0/{name}" in root.asked]
    root.asked.clear()
    return found


def cycle(node: Host, memories: Memories) -> RdmaDevice:
    """Read everything again; the first device."""
    memories.readers.refresh()
    outcome = read_rdma(node, memories).outcome
    assert isinstance(outcome, Seen)
    return outcome.value[0]


def test_what_does_not_change_is_read_once_for_each_pci_address() -> None:
    """For another agent, or another function under the same name, it is read again."""
    root, other = Kernel(hca("ibp0", A)), Kernel(hca("ibp0", B))
    node = host(root)
    memories = memories_of(node)
    first, second = cycle(node, memories), cycle(node, memories)
    assert first == second
    assert (first.hca_type, first.board_id) == ("MT4129", "MT_0000000838")
    root.asked.clear()
    cycle(node, memories)
    assert constants_asked(root) == []
    moved = cycle(node._replace(root=other), memories)
    assert moved.pci == B
    assert constants_asked(other) == list(CONSTANTS)
    cycle(node, memories_of(node))
    assert constants_asked(root) == list(CONSTANTS)


@pytest.mark.parametrize("nothing", [LO, LO | EMPTY, hca("ibp1", B)])
def test_a_device_that_was_gone_is_read_anew(nothing: Entries) -> None:
    root = Kernel(hca("ibp0", A))
    node = host(root)
    memories = memories_of(node)
    cycle(node, memories)
    memories.readers.refresh()
    read_rdma(node._replace(root=Kernel(nothing)), memories)
    root.asked.clear()
    cycle(node, memories)
    assert constants_asked(root) == list(CONSTANTS)


@pytest.mark.parametrize("number", [EIO, ENOENT])
@pytest.mark.parametrize("attribute", CONSTANTS)
def test_a_failed_read_is_not_remembered(attribute: str, number: int) -> None:
    node = host(Kernel(hca("ibp0", A), errors={f"{CLASS}/ibp0/{attribute}": number}))
    memories = memories_of(node)
    sick = cycle(node, memories)
    well = cycle(node._replace(root=Kernel(hca("ibp0", A))), memories)
    assert sick != well
    assert well == seen(Kernel(hca("ibp0", A)))["ibp0"]


def test_a_device_without_a_pci_address_is_read_each_time() -> None:
    """A software device (rxe, siw) has none."""
    root = Kernel(hca("ibp0", "virtual"))
    node = host(root)
    memories = memories_of(node)
    for _ in range(2):
        cycle(node, memories)
        assert constants_asked(root) == list(CONSTANTS)


@pytest.mark.parametrize(
    "attribute", ["ports", "ports/1/state", "fw_ver", "device/net", "device/physfn"]
)
def test_a_read_that_timed_out_is_a_device_that_blocks(attribute: str) -> None:
    """No further attribute of it is read, and those read before are dropped."""
    folder = f"{CLASS}/ibp0"
    root = Kernel(hca("ibp0", A), hca("ibp1", B), errors={f"{folder}/{attribute}": ETIMEDOUT})
    devices = seen(root)
    assert devices["ibp0"] == RdmaDevice("ibp0", failure="blocks", pci=A)
    assert devices["ibp1"].failure is None
    asked = [path for path in root.asked_below(folder) if path != folder]
    assert asked[-1] == f"{folder}/{attribute}"


@pytest.mark.parametrize("layer", ["InfiniBand", "Ethernet"])
def test_an_excluded_device_is_not_touched(layer: str) -> None:
    """Of its folder the links, and of its function what the PCI core has in memory; its netdev only
    for the legs of a bond.
    """
    root = Kernel(
        hca("ibp0", A, layer), netdev("eth0", A), hca("ibp1", B, layer), netdev("eth1", B)
    )
    devices = seen(root, excluded=("ibp0", "x*"))
    assert devices["ibp0"] == RdmaDevice("ibp0", excluded=True, pci=A, pci_ids="15b3:1021")
    assert devices["ibp1"].ports
    touched = (f"{CLASS}/ibp0", f"{HOME}/{A}", f"{NET}/eth0", f"{BUS}/{A}")
    kept = ("class", "vendor", "device", "subsystem_vendor", "subsystem_device", "uevent", "physfn")
    asked = [path for place in touched for path in root.asked_below(place)]
    assert set(asked) <= {
        *(f"{CLASS}/ibp0", f"{CLASS}/ibp0/device", f"{BUS}/{A}", f"{NET}/eth0/master"),
        f"{NET}/eth0/bonding/slaves",
        *(f"{BUS}/{A}/{name}" for name in (*kept, "net")),
    }


def board(*marks: bytes, first: str = "0000:a3:00") -> Entries:
    """The functions of one PCI device with one sys_image_guid, and this in their VPDs."""
    entries: Entries = {}
    for number, mark in enumerate(marks):
        pci = f"{first}.{number}"
        entries |= hca(f"sw{number}", pci) | {f"{HOME}/{pci}/vpd": b"\x82\x10\x00NVIDIA" + mark}
    return entries


SW_MNG, DATA = b" SW_MNG\x90", b" ConnectX-7\x90"
VPD = "device/vpd"
# (the VPDs of the functions, what fails, whether they are told to manage NVSwitches, the roles)
PATTERNS: dict[str, tuple[tuple[bytes, ...], dict[str, int], bool | None, bool]] = {
    "management": ((SW_MNG,) * 4, {}, True, False),
    "data": ((DATA,) * 3, {}, False, True),
    "root only": ((SW_MNG,) * 4, {VPD: EACCES}, None, False),
    "broken": ((SW_MNG,) * 3, {VPD: EIO}, None, False),
    "slow": ((SW_MNG,) * 3, {VPD: ETIMEDOUT}, None, False),
    "a guest without VPD": ((SW_MNG,) * 4, {VPD: ENOENT}, None, False),
}


@pytest.mark.parametrize(("marks", "errors", "told", "counts"), PATTERNS.values(), ids=PATTERNS)
def test_three_functions_of_one_guid_are_asked_for_their_vpd(
    marks: tuple[bytes, ...], errors: dict[str, int], told: bool | None, *, counts: bool
) -> None:
    """Without its word they manage NVSwitches. Their counters are not read: that is logged."""
    names = [f"sw{number}" for number in range(len(marks))]
    root = Kernel(
        board(*marks),
        hca("ibp0", A) | {f"{HOME}/{A}/infiniband/ibp0/sys_image_guid": b"0001:0002:0003:0004\n"},
        errors={
            f"{CLASS}/{name}/{path}": number for name in names for path, number in errors.items()
        },
    )
    observation = observe(host(root))
    assert isinstance(observation.rdma, Seen)
    devices = {device.name: device for device in observation.rdma.value}
    assert {devices[name].nvswitch_management for name in names} == {told}
    assert {devices[name].failure for name in names} == {None}
    roles = {role.interface: role.backend for role in observation.ports}
    assert roles == dict.fromkeys(names, counts) | {"ibp0": True}
    assert not [path for path in root.asked if "/counters" in path and "ibp0" not in path]
    assert not root.asked_below(f"{CLASS}/ibp0/device/vpd")
    assert devices["ibp0"].ports[0].link_downed == 3


@pytest.mark.parametrize(
    "entries",
    [
        board(SW_MNG, SW_MNG),
        board(SW_MNG, SW_MNG)
        | {f"{HOME}/0000:a3:00.2/physfn": "../x"}
        | hca("sw2", "0000:a3:00.2"),
    ],
)
def test_two_functions_are_a_data_card(entries: Entries) -> None:
    """A dual-port card; virtual functions do not count. Its VPD is not asked."""
    root = Kernel(entries)
    roles = {role.interface: role.backend for role in observe(host(root)).ports}
    assert (roles["sw0"], roles["sw1"]) == (True, True)
    assert not [path for path in root.asked if path.endswith("vpd")]


def test_an_unread_function_of_the_same_device_counts() -> None:
    """Of three functions one cannot be read: the two others are no data card for that."""
    root = Kernel(board(SW_MNG, SW_MNG, SW_MNG), errors={f"{CLASS}/sw1/sys_image_guid": EIO})
    assert not any(role.backend for role in observe(host(root)).ports)


@pytest.mark.parametrize("number", [ENOENT, ENODEV])
@pytest.mark.parametrize("after", range(1, 29))
def test_a_device_may_vanish_at_any_read(number: int, after: int) -> None:
    """A partial device is never returned, and the other device is not affected."""
    root = Kernel(hca("ibp0", A), hca("ibp1", B))
    root.vanishes = (f"{CLASS}/ibp0", after, number)
    devices = seen(root)
    assert devices["ibp1"].ports[0].rate_gbps == 400
    whole = seen(Kernel(hca("ibp0", A)))["ibp0"]
    assert devices["ibp0"].failure or not devices["ibp0"].ports or devices["ibp0"] == whole


@pytest.mark.parametrize("layer", ["InfiniBand", "Ethernet"])
def test_a_device_whose_kind_cannot_be_read_fails(layer: str) -> None:
    """A PSID may split a kind. The text of hca_type is no kind where PCI ids are known."""
    errors = {f"{CLASS}/a/board_id": EIO, f"{CLASS}/b/hca_type": EIO}
    devices = seen(Kernel(hca("a", A, layer), hca("b", B, layer), errors=errors))
    failure = f"/{CLASS}/a/board_id cannot be read"
    assert (devices["a"].failure, devices["a"].ports) == (failure, ())
    assert (devices["b"].failure, len(devices["b"].ports)) == (None, 1)


def test_without_pci_ids_the_text_is_the_kind() -> None:
    """In a copied tree, which has no bus."""
    tree = {
        path: entry
        for path, entry in hca("a", A, "Ethernet").items()
        if not path.startswith(BUS) and not path.endswith(("/vendor", f"{A}/device"))
    }
    devices = seen(Kernel(tree, errors={f"{CLASS}/a/hca_type": EIO}))
    assert devices["a"].failure == f"/{CLASS}/a/hca_type cannot be read"


@pytest.mark.parametrize("number", [EINVAL, EIO, ENODEV, EACCES])
@pytest.mark.parametrize("attribute", ["rate", "state", "phys_state", "counters/link_downed"])
def test_one_odd_attribute_costs_itself(attribute: str, number: int) -> None:
    """The problem names the file. What decides a role is in test_role_reads.py."""
    path = f"{CLASS}/ibp0/ports/1/{attribute}"
    reading = read_rdma(host(Kernel(hca("ibp0", A), errors={path: number})))
    assert isinstance(reading.outcome, Seen)
    (port,) = reading.outcome.value[0].ports
    facts = [port.rate_gbps, port.state, port.phys_state]
    facts += [port.has_smi, port.port_guid, port.link_downed]
    assert facts.count(None) == 1
    assert [problem.subject for problem in reading.problems] == [f"/{path}"]
    assert isinstance(reading.problems[0], Problem)


def test_a_class_of_links_that_lead_nowhere_is_a_failure() -> None:
    """A tree that was copied without the targets of its links is not a node without HCAs."""
    links = {f"{CLASS}/{name}": f"../../devices/gone/{name}" for name in ("x0", "x1")}
    outcome = read_rdma(host(Kernel(links))).outcome
    assert outcome == Failed("no device in /sys/class/infiniband can be read")
