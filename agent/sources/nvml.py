"""The NVML source: every GPU and its position in the NVLink fabric.

The PCI bus is read first. It distinguishes a node without NVIDIA GPUs, which needs no library and
starts no helper process, from one whose driver is not loaded yet. A GPU that is bound to vfio-pci
belongs to a virtual machine and does not count. A library that --nvml-library names is asked in any
case; where it cannot be loaded or reports no GPU, the bus decides.

agent/nvml/decode.py decodes the answer; agent/nvml/domain.py derives the domain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import Malformed, Pending, Unavailable
from agent.model import Absent, Failed, Gpu, Problem, Reading, Seen
from agent.nvml import decode
from agent.sources.pci import PCI, given_to_vm
from agent.sysfs import parse as kernel
from agent.sysfs.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.host import Host
    from agent.model import PortRole
    from agent.nvml.decode import Refusal

    Gpus = tuple[Gpu, ...]
    Outcome = Seen[Gpus] | Absent | Failed

SOURCE = "nvml"
NVIDIA = 0x10DE  # include/linux/pci_ids.h: PCI_VENDOR_ID_NVIDIA
DISPLAY = 0x03  # PCI_BASE_CLASS_DISPLAY: 0x0302 is a GPU without a display


def read(host: Host, _ports: tuple[PortRole, ...] = ()) -> Reading[Gpus]:
    """Query all GPUs through NVML, if the PCI bus has one or a library was named."""
    reader = Reader(host.root, SOURCE)
    bus = _without_gpus(reader)
    outcome = _query(host, bus) if bus is None or host.gpus_off_bus else bus
    return Reading(outcome, (*reader.problems, *_problems(outcome)))


def _problems(outcome: Outcome) -> Iterable[Problem]:
    """Return the problems of single GPUs."""
    gpus = outcome.value if isinstance(outcome, Seen) else ()
    return filter(None, map(_problem, gpus))


def _without_gpus(reader: Reader) -> Absent | Failed | None:
    """Return the outcome of a node without GPUs, or whose bus blocks; None if it has one."""
    try:
        return _bus_without_gpus(reader)
    except Unavailable as error:
        return Failed(str(error))


def _bus_without_gpus(reader: Reader) -> Absent | Failed | None:
    """Return the outcome of a bus without GPUs; None if one is on it."""
    functions = reader.names(PCI)
    if functions is None:
        return _no_bus(reader)
    # any() stops at the first: a node has hundreds of functions, read in every observation.
    if any(_is_gpu(reader, function) for function in functions):
        return None
    if reader.problems:
        return Failed("the PCI bus could not be read completely")
    return Absent("no NVIDIA GPU on the PCI bus")


def _no_bus(reader: Reader) -> Absent | Failed:
    """Return Absent if there is no PCI bus, Failed if that is not certain."""
    if not reader.problems and reader.names("sys/class/net"):
        return Absent("no PCI bus, so no NVIDIA GPU on it")
    return Failed(f"/{PCI} could not be listed")


def _is_gpu(reader: Reader, function: str) -> bool:
    """Return True for a GPU that is not given to a virtual machine."""
    return _is_nvidia_display(reader, f"{PCI}/{function}") and not given_to_vm(reader, function)


def _is_nvidia_display(reader: Reader, path: str) -> bool:
    code = reader.value(f"{path}/class", kernel.number)
    if code is None or code >> 16 != DISPLAY:
        return False
    return reader.value(f"{path}/vendor", kernel.number) == NVIDIA


def _query(host: Host, bus: Absent | Failed | None) -> Outcome:
    """Query the GPUs through NVML; Failed if there is no answer, or not one to use.

    `bus` is the outcome of a bus without GPUs.
    """
    try:
        return _decoded(host.gpus(), bus)
    except (Malformed, Unavailable) as error:
        return Failed(str(error), pending=isinstance(error, Pending))


def _decoded(answer: Any, bus: Absent | Failed | None) -> Outcome:
    refused, entries = decode.answer(answer)
    if refused:
        return _refused(refused, bus)
    if not entries:
        return bus or Failed("NVML reports no GPU, while one is on the PCI bus")
    return Seen(tuple(_gpu(index, entry) for index, entry in enumerate(entries)))


def _refused(refused: Refusal, bus: Absent | Failed | None) -> Absent | Failed:
    """Return the outcome of a query that ended with an error.

    A missing library, driver or GPU is none where the bus has no GPU either.
    """
    text = f"{refused.error}: {refused.call}: {refused.text}"
    if isinstance(bus, Absent) and refused.error in decode.NO_GPUS:
        return Absent(f"{bus.reason} ({text})")
    return Failed(text)


def _gpu(index: int, entry: Any) -> Gpu:
    """Decode one GPU; a malformed entry becomes a GPU with an error, so that the others stay."""
    try:
        return decode.gpu(entry)
    except Malformed as error:
        return Gpu(index, error="malformed", text=str(error))


def _problem(gpu: Gpu) -> Problem | None:
    if gpu.error is None or gpu.state is not None:
        return None
    return Problem(SOURCE, gpu.pci or f"GPU {gpu.index}", None, f"{gpu.error}: {gpu.text}")
