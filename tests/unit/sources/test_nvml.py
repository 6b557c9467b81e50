"""The NVML source: when it queries, and the outcomes of its answers."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.errors import Pending, Unavailable
from agent.host import Host
from agent.model import Absent, Failed, PlatformPosition, Seen
from agent.nvml.domain import domain_of, hints
from agent.sources.observe import Memories, observe
from agent.sysfs.reader import LiveRoot
from tests.support.gpus import FABRIC, GPU, PLATFORM, answer
from tests.support.kernel_tree import BUS, Kernel
from tests.support.sources import read_nvml


def never() -> dict[str, Any]:
    pytest.fail("NVML was asked")


def refusal(call: str, code: int, text: str) -> Callable[[], dict[str, Any]]:
    return lambda: answer(error={"call": call, "code": code, "text": text})


def late() -> dict[str, Any]:
    raise Unavailable("helper nvml: no answer within 30 s")


class Machine:
    """A node's PCI bus in a folder."""

    def __init__(self, top: Path) -> None:
        self.sys = top / "sys"
        self._devices = self.sys / "bus/pci/devices"
        self._devices.mkdir(parents=True)

    def add(
        self, address: str, vendor: str = "0x10de", code: str = "0x030200", driver: str = ""
    ) -> Machine:
        """Put a function on the bus."""
        function = self._devices / address
        function.mkdir()
        (function / "vendor").write_text(f"{vendor}\n")
        (function / "class").write_text(f"{code}\n")
        if driver:
            (function / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")
        return self

    def host(self, gpus: Callable[[], dict[str, Any]], *, named: bool = False) -> Host:
        return Host(LiveRoot(str(self.sys)), lambda: 0.0, gpus=gpus, gpus_off_bus=named)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_node_without_gpus_is_not_asked(machine: Machine) -> None:
    """A VGA console, an NVIDIA sound function and a BlueField-3 are no GPUs."""
    machine.add("0000:01:00.0", vendor="0x1a03", code="0x030000").add(
        "0000:02:00.1", code="0x040300"
    )
    machine.add("0000:03:00.0", vendor="0x15b3", code="0x020000")
    assert read_nvml(machine.host(never)).outcome == Absent("no NVIDIA GPU on the PCI bus")


@pytest.mark.parametrize("code", ["0x030000", "0x030200", "0x038000"])
def test_any_display_controller_of_nvidia_is_one(machine: Machine, code: str) -> None:
    """An NVIDIA GPU counts with and without a display."""
    reading = read_nvml(machine.add("0008:01:00.0", code=code).host(lambda: answer(GPU)))
    assert isinstance(reading.outcome, Seen)
    assert domain_of(reading.outcome).value == "9c6f5af3-53bf-49b5-a436-b66766c413c3.4026"
    assert reading.problems == ()


def test_a_function_is_read_once_while_it_is_on_the_bus() -> None:
    """An observation of a resident agent costs one listing, and the driver of the first GPU."""
    gpu, other, failed = "0008:01:00.0", "0000:02:00.0", "0000:03:00.0"
    tree = {
        f"{BUS}/{address}/{name}": text
        for address, code in ((gpu, b"0x030200"), (other, b"0x020000"), (failed, b"0x030000"))
        for name, text in (("class", code), ("vendor", b"0x10de"))
    }
    errors = {f"{BUS}/{failed}/class": errno.EIO}
    root = Kernel(tree, errors=errors)
    host = Host(root, lambda: 0.0, gpus=lambda: answer(GPU))
    memories = Memories()
    first = read_nvml(host, memories)
    root.asked.clear()
    assert read_nvml(host, memories) == first
    # a failed read is repeated, and reported
    assert root.asked == [BUS, f"{BUS}/{failed}/class", f"{BUS}/{gpu}/driver"]
    assert [problem.error for problem in first.problems] == ["EIO"]
    gone = {path: text for path, text in tree.items() if gpu not in path}
    without = host._replace(root=Kernel(gone, errors=errors))
    assert read_nvml(without, memories).outcome == Failed(
        "the PCI bus could not be read completely"
    )
    assert memories.bus.nvidia == {other: False}


def test_a_gpu_of_a_virtual_machine_is_none_of_ours(machine: Machine) -> None:
    """Bound to vfio-pci, it is not there for this node."""
    machine.add("0008:01:00.0", driver="vfio-pci")
    assert isinstance(read_nvml(machine.host(never)).outcome, Absent)
    machine.add("0009:01:00.0", driver="nvidia")
    assert isinstance(read_nvml(machine.host(lambda: answer(GPU))).outcome, Seen)


def test_a_named_library_is_asked_without_a_gpu_on_the_bus(machine: Machine) -> None:
    """The GPUs that it reports count as those of any other."""
    reading = read_nvml(machine.host(lambda: answer(GPU), named=True))
    assert domain_of(reading.outcome).value == "9c6f5af3-53bf-49b5-a436-b66766c413c3.4026"
    assert reading.problems == ()


def test_a_named_library_is_asked_without_a_bus(tmp_path: Path) -> None:
    """A bus that cannot be listed stays a failure if there is no GPU either."""
    host = Host(LiveRoot(str(tmp_path), str(tmp_path)), lambda: 0.0, gpus_off_bus=True)
    assert isinstance(read_nvml(host._replace(gpus=lambda: answer(GPU))).outcome, Seen)
    bus = Failed("/sys/bus/pci/devices could not be listed")
    assert read_nvml(host._replace(gpus=answer)).outcome == bus
    missing = refusal("dlopen", 12, "nowhere")
    assert isinstance(read_nvml(host._replace(gpus=missing)).outcome, Failed)


@pytest.mark.parametrize(
    ("call", "code", "error"),
    [
        ("dlopen", 12, "library-missing"),
        ("nvmlInitWithFlags", 13, "symbol-missing"),
        ("nvmlInitWithFlags", 9, "driver-not-loaded"),
        ("nvmlInitWithFlags", 28, "gpu-not-found"),
    ],
)
def test_a_named_library_that_has_none_leaves_not_found(
    machine: Machine, call: str, code: int, error: str
) -> None:
    """The same flag on every node of a fleet costs the nodes without GPUs nothing but a text."""
    none = Absent("no NVIDIA GPU on the PCI bus")
    assert read_nvml(machine.host(answer, named=True)).outcome == none
    reading = read_nvml(machine.host(refusal(call, code, "because"), named=True))
    assert reading.outcome == Absent(f"{none.reason} ({error}: {call}: because)")
    assert domain_of(reading.outcome).reason == "not-found"
    assert reading.problems == ()


def test_a_named_library_that_fails_otherwise_is_a_failure(machine: Machine) -> None:
    """A call that fails proves nothing, nor does a query without an answer."""
    for gpus in (refusal("nvmlInitWithFlags", 18, "mismatch"), lambda: {"count": 7, "gpus": []}):
        assert isinstance(read_nvml(machine.host(gpus, named=True)).outcome, Failed)


def test_a_shut_door_is_a_failure(machine: Machine) -> None:
    """A snapshot without NVML's answer has no facts of the GPUs that it shows."""
    assert read_nvml(
        Host(LiveRoot(str(machine.add("0008:01:00.0").sys)), lambda: 0.0)
    ).outcome == Failed("the GPUs were not queried")


def test_a_bus_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    """It does not prove that there is no GPU."""
    host = Host(LiveRoot(str(tmp_path), str(tmp_path)), lambda: 0.0, gpus=never)
    assert read_nvml(host).outcome == Failed("/sys/bus/pci/devices could not be listed")


def test_a_bus_that_blocks_is_a_failure(machine: Machine) -> None:

    class Blocked(LiveRoot):
        def read(self, path: str, limit: int) -> bytes:  # noqa: ARG002 - the Root protocol's
            raise TimeoutError(errno.ETIMEDOUT, "timed out", path)

    top = str(machine.add("0008:01:00.0").sys)
    outcome = read_nvml(Host(Blocked(top), lambda: 0.0, gpus=never)).outcome
    assert outcome == Failed("/sys/bus/pci/devices/0008:01:00.0/class: timed out in the kernel")


def test_a_first_answer_that_is_pending_is_no_problem(machine: Machine) -> None:
    """The source failed, so its labels are held; there is nothing for an operator to look at."""

    def pending() -> dict[str, Any]:
        raise Pending("NVML was not asked yet")

    seen = observe(machine.add("0008:01:00.0").host(pending), ("nvml",))
    assert seen.nvml == Failed("NVML was not asked yet", pending=True)
    assert not [problem for problem in seen.problems if problem.source == "nvml"]


@pytest.mark.parametrize(
    ("gpus", "reason"),
    [
        (late, "helper nvml: no answer within 30 s"),
        (
            refusal("nvmlInitWithFlags", 18, "Driver/library version mismatch"),
            "version-mismatch: nvmlInitWithFlags: Driver/library version mismatch",
        ),
        (answer, "NVML reports no GPU, while one is on the PCI bus"),
    ],
    ids=["a helper that hangs or dies", "a driver that does not fit", "success without a GPU"],
)
def test_a_failure_has_its_reason(
    machine: Machine, gpus: Callable[[], dict[str, Any]], reason: str
) -> None:
    assert read_nvml(machine.add("0008:01:00.0").host(gpus)).outcome == Failed(reason)


@pytest.mark.parametrize(
    "nonsense", [None, [], {}, {"count": 2**32 - 1, "gpus": []}, {"count": 1, "gpus": {}}]
)
def test_an_answer_that_makes_no_sense_is_a_failure(machine: Machine, nonsense: Any) -> None:
    assert isinstance(read_nvml(machine.add("0008:01:00.0").host(lambda: nonsense)).outcome, Failed)


def test_one_gpu_that_makes_no_sense_costs_itself(machine: Machine) -> None:
    """It keeps its position in the list and has a problem; so has one that was lost."""
    error = {"call": "nvmlDeviceGetUUID", "code": 15, "text": "GPU is lost"}
    entries = (GPU, GPU | {"fabric": FABRIC | {"state": 77}}, GPU | {"index": 2, "error": error}, 5)
    reading = read_nvml(machine.add("0008:01:00.0").host(lambda: answer(*entries)))
    assert isinstance(reading.outcome, Seen)
    errors = [gpu.error for gpu in reading.outcome.value]
    assert errors == [None, "malformed", "gpu-lost", "malformed"]
    assert [problem.subject for problem in reading.problems] == ["GPU 1", "0008:01:00.0", "GPU 3"]
    assert {problem.source for problem in reading.problems} == {"nvml"}
    assert reading.problems[1].text == "gpu-lost: nvmlDeviceGetUUID: GPU is lost"
    assert domain_of(reading.outcome).reason == "failed"


def test_a_gpu_without_a_fabric_is_no_problem(machine: Machine) -> None:
    """An older driver or a plain board has nothing to be fixed."""
    refused = {"call": "nvmlDeviceGetGpuFabricInfo", "code": 13, "text": "no such function"}
    plain = GPU | {"error": refused, "fabric": None}
    reading = read_nvml(machine.add("0008:01:00.0").host(lambda: answer(plain)))
    assert (reading.problems, domain_of(reading.outcome).reason) == ((), "unsupported")


def test_the_position_that_all_gpus_tell(machine: Machine) -> None:
    """One malformed position is a problem, and costs neither the GPU nor the others' position."""
    gpus = [GPU | {"platform": PLATFORM}, GPU | {"platform": PLATFORM | {"slot_number": "5"}}, GPU]
    host = machine.add("0008:01:00.0").host(lambda: answer(*gpus))
    observation = observe(host)
    assert observation.position == PlatformPosition("1823825185529", slot=5, tray=4, host=1)
    assert [gpu.module_id for gpu in observation.gpus] == [2, None, None]
    assert observation.accelerator.value is not None
    problems = [problem.text for problem in observation.problems if problem.source == "nvml"]
    assert problems == ["slot_number '5' is no number of 32 bits"]


def test_gpus_in_two_positions_have_none(machine: Machine) -> None:
    """It is a hint, and changes no label."""
    gpus = [GPU | {"platform": PLATFORM}, GPU | {"platform": PLATFORM | {"tray_index": 3}}]
    observation = observe(machine.add("0008:01:00.0").host(lambda: answer(*gpus)))
    assert observation.position is None
    expected = "the GPUs tell 2, none is taken: " + ", ".join(map(str, observation.positions))
    assert [hint.text for hint in hints(observation)] == [expected]
