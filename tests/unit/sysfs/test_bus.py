"""The PCI functions that roles depend on: what is read once, and input that is no bus."""

from __future__ import annotations

import os
from collections.abc import Mapping
from errno import EACCES, EIO, ENODEV, ENOENT, ETIMEDOUT

import pytest

from agent.sysfs.bus import NOWHERE, Beside, Bus, BusMemory, read_bus
from agent.sysfs.reader import Reader
from tests.support.kernel_tree import BUS, Entries, Kernel

SWITCH = "pci0000:10/0000:10:01.0/0000:11:00.0"
NIC, GPU, FAR = "0000:13:00.0", "0000:15:00.0", "0000:23:00.0"


def function(address: str, above: str, code: int, ids: str = "15b3:1021") -> Entries:
    home = f"sys/devices/{above}/{address}"
    vendor, device = ids.split(":")
    texts = {"class": f"0x{code:06x}", "vendor": f"0x{vendor}", "device": f"0x{device}"}
    return {
        f"{BUS}/{address}": f"../../../devices/{above}/{address}",
        **{f"{home}/{name}": f"{text}\n".encode() for name, text in texts.items()},
    }


# A NIC and a GPU below one switch, and a NIC below another root port.
TREE: Entries = (
    function("0000:10:01.0", "pci0000:10", 0x060400, "8086:352a")
    | function("0000:11:00.0", "pci0000:10/0000:10:01.0", 0x060400, "1000:c030")
    | function("0000:12:00.0", SWITCH, 0x060400, "1000:c030")
    | function("0000:12:01.0", SWITCH, 0x060400, "1000:c030")
    | function(NIC, f"{SWITCH}/0000:12:00.0", 0x020700)
    | function(GPU, f"{SWITCH}/0000:12:01.0", 0x030200, "10de:2330")
    | function(FAR, "pci0000:20/0000:20:01.0", 0x020700)
    | function("0000:00:1f.0", "pci0000:00", 0x060100, "8086:1b81")
)


def read(tree: Entries, errors: Mapping[str, int] | None = None) -> Bus:
    return read_bus(Reader(Kernel(tree, errors=errors), "rdma"), BusMemory())


def facts(bus: Bus) -> tuple[object, ...]:
    """What was read of a bus, without what it has computed of that since."""
    return bus.functions, bus.unread, bus.failure


@pytest.mark.parametrize(
    ("code", "ids", "is_gpu"),
    [
        (0x030000, "10de:2e12", True),  # VGA compatible controller: GB10
        (0x038000, "1002:740c", True),  # display controller: MI250
        (0x120000, "1002:74a1", True),  # processing accelerator: MI300X
        (0x030000, "1a03:2000", False),  # the BMC's VGA controller
        (0x040300, "10de:22ba", False),  # the audio function of a GPU
    ],
)
def test_gpus_are_known_by_class_and_vendor(code: int, ids: str, is_gpu: bool) -> None:
    bus = read(TREE | function(GPU, f"{SWITCH}/0000:12:01.0", code, ids))
    assert [one.address for one in bus.gpus] == ([GPU] if is_gpu else [])


@pytest.mark.parametrize("error", [EIO, ENODEV, ETIMEDOUT])
def test_a_nic_has_its_place_though_a_read_of_it_fails(error: int) -> None:
    """By the link of its RDMA device, and the class in `uevent`: else affinity would abstain."""
    home = f"sys/devices/{SWITCH}/0000:12:00.0/{NIC}"
    tree = TREE | {
        "sys/class/infiniband/mlx5_0": f"../../{home.removeprefix('sys/')}/infiniband/mlx5_0",
        f"{home}/infiniband/mlx5_0/node_type": b"1: CA\n",
        f"{home}/uevent": b"PCI_CLASS=20700\n",
    }

    class Odd(Kernel):
        def link(self, path: str) -> str:
            if path == f"{BUS}/{NIC}":
                raise OSError(error, os.strerror(error), path)
            return super().link(path)

    place = read(tree).functions[NIC].bridges
    assert place
    odd = read_bus(Reader(Odd(tree, errors={f"{BUS}/{NIC}/class": error}), "rdma"), BusMemory())
    assert odd.functions[NIC].bridges == place
    assert NIC not in odd.unread


def test_the_place_of_a_function_is_its_real_path() -> None:
    """With the ids of the bridges; other functions than NICs and GPUs are left out."""
    bus = read(TREE)
    assert sorted(bus.functions) == [NIC, GPU, FAR]
    nic = bus.functions[NIC]
    assert (nic.host_bridge, nic.ids, nic.is_nic, nic.is_gpu) == (
        "pci0000:10",
        "15b3:1021",
        True,
        False,
    )
    assert nic.bridge_ids == ("8086:352a", "1000:c030", "1000:c030")
    assert bus.beside(NIC) == Beside(GPU, "PIX")
    assert bus.beside(FAR, 1) == Beside(None, "SYS")
    assert bus.beside("0000:99:00.0") == NOWHERE


def test_nothing_is_read_twice_while_the_list_of_names_is_the_same() -> None:
    """An observation of a resident agent costs one listing."""
    memory, root = BusMemory(), Kernel(TREE)
    first = read_bus(Reader(root, "rdma"), memory)
    root.asked.clear()
    assert read_bus(Reader(root, "rdma"), memory) is first
    assert root.asked == [BUS]
    other = Kernel(TREE | function("0000:24:00.0", "pci0000:20/0000:20:02.0", 0x020000))
    assert "0000:24:00.0" in read_bus(Reader(other, "rdma"), memory).functions
    assert not other.asked_below(f"{BUS}/{NIC}")


@pytest.mark.parametrize("number", [EIO, ETIMEDOUT, EACCES])
def test_a_bus_that_cannot_be_listed_is_the_last_one(number: int) -> None:
    """At first nothing is known, which is no bus without functions."""
    memory = BusMemory()
    sick = Kernel(TREE, errors={BUS: number})
    assert read_bus(Reader(sick, "rdma"), memory).failure
    known = read_bus(Reader(Kernel(TREE), "rdma"), memory)
    assert read_bus(Reader(sick, "rdma"), memory) is known
    assert facts(read(TREE, {BUS: ENOENT})) == facts(Bus())


def test_a_bus_that_was_away_is_there_again() -> None:
    memory = BusMemory()
    known = read_bus(Reader(Kernel(TREE), "rdma"), memory)
    assert facts(read_bus(Reader(Kernel({}), "rdma"), memory)) == facts(Bus())
    assert facts(read_bus(Reader(Kernel(TREE), "rdma"), memory)) == facts(known)


ODD_PATHS = {
    "a circle": f"../../../devices/pci0000:10/0000:10:01.0/0000:10:01.0/{NIC}",
    "cut": "../../../devices/pci0000:10/0000:10:01.0",
    "no host bridge": f"../../../devices/platform/{NIC}",
    "another function": "../../../devices/pci0000:10/0000:10:01.0/0000:77:00.0",
    "no address between": f"../../../devices/pci0000:10/x/{NIC}",
    "too long": "../../../devices/pci0000:10/"
    + "/".join(f"0000:{number:02x}:00.0" for number in range(0x20, 0x60))
    + f"/{NIC}",
}


def assert_nowhere(root: Kernel) -> None:
    """The NIC is there, near nothing, and the problem names it."""
    reader = Reader(root, "rdma")
    bus = read_bus(reader, BusMemory())
    assert bus.functions[NIC].bridges is None
    assert bus.beside(NIC) == NOWHERE
    assert [one.subject for one in reader.problems] == [f"/{BUS}/{NIC}"]


@pytest.mark.parametrize("target", ODD_PATHS.values(), ids=ODD_PATHS)
def test_an_odd_path_is_no_place(target: str) -> None:
    class Odd(Kernel):
        def link(self, path: str) -> str:
            return target if path == f"{BUS}/{NIC}" else super().link(path)

    assert_nowhere(Odd(TREE))


def test_a_function_without_a_path_is_near_nothing() -> None:
    """A copied tree that lost its links has a folder there."""
    home = f"sys/devices/{SWITCH}/0000:12:00.0/{NIC}"
    copied = {path.replace(home, f"{BUS}/{NIC}"): one for path, one in TREE.items()}
    del copied[f"{BUS}/{NIC}"]
    assert_nowhere(Kernel(copied))


def test_a_class_of_garbage_is_a_function_of_which_nothing_is_known() -> None:
    """It may be a GPU; it is read again until there is a value."""
    odd = TREE | {f"sys/devices/{SWITCH}/0000:12:01.0/{GPU}/class": b"display\n"}
    memory = BusMemory()
    assert read_bus(Reader(Kernel(odd), "rdma"), memory).unread == {GPU}
    assert read_bus(Reader(Kernel(TREE), "rdma"), memory).unread == frozenset()


def test_a_guest_below_vmbus_has_no_common_bridge() -> None:
    """Each function has a host bridge of its own."""
    above = "LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/{}/pci0{}:00"
    bus = read(
        function("0101:00:00.0", above.format("guid-1", "101"), 0x020700, "15b3:101e")
        | function("0001:00:00.0", above.format("guid-2", "001"), 0x030200, "10de:2330")
    )
    assert bus.functions["0101:00:00.0"].host_bridge == "pci0101:00"
    assert not bus.beside("0101:00:00.0").is_near


def test_512_functions() -> None:
    """None of which is near a GPU."""
    tree: Entries = {}
    for number in range(512):
        address = f"0000:{number // 2:02x}:{number % 2:02x}.0"
        tree |= function(address, "pci0000:00", 0x020000)
    bus = read(tree)
    assert len(bus.nics) == 512
    assert {bus.beside(one.address) for one in bus.nics} == {NOWHERE}
