"""The NVML source: every GPU and its position in the NVLink fabric.

The PCI bus is read first. It distinguishes a node without NVIDIA GPUs, which needs no library and
starts no helper process, from one whose driver is not loaded yet. A GPU that is bound to vfio-pci
belongs to a virtual machine and does not count. A library that --nvml-library names is asked in any
case; where it cannot be loaded or reports no GPU, the bus decides.

agent/nvml/decode.py decodes the answer; agent/nvml/domain.py derives the domain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.errors import Malformed, Pending, Unavailable
from agent.host import Host
from agent.model import Absent, Failed, Gpu, PortRole, Problem, Reading, Seen
from agent.nvml import decode
from agent.nvml.domain import Gpus
from agent.sources.pci import given_to_vm
from agent.sysfs import parse
from agent.sysfs.bus import DEVICES as PCI
from agent.sysfs.reader import Reader

if TYPE_CHECKING:  # it imports the sources
    from agent.sources.observe import Memories

SOURCE = "nvml"
NVIDIA = 0x10DE  # include/linux/pci_ids.h: PCI_VENDOR_ID_NVIDIA
DISPLAY = 0x03  # PCI_BASE_CLASS_DISPLAY: 0x0302 is a GPU without a display


def read(host: Host, _ports: tuple[PortRole, ...], memories: Memories) -> Reading[Gpus]:
    """Query all GPUs through NVML, if the PCI bus has one or a library was named."""
    reader = Reader(host.root, SOURCE)
    outcome: Seen[Gpus] | Absent | Failed | None
    try:
        outcome = _bus_without_gpus(reader, memories.bus.nvidia)
    except Unavailable as error:
        outcome = Failed(str(error))
    if outcome is None or host.gpus_off_bus:
        outcome = _query(host, outcome, reader.problems)
    problems = reader.problems
    for gpu in outcome.value if isinstance(outcome, Seen) else ():
        if gpu.error is not None and gpu.state is None:
            subject = gpu.pci or f"GPU {gpu.number}"
            problems.append(Problem(SOURCE, subject, None, f"{gpu.error}: {gpu.text}"))
    return Reading(outcome, tuple(problems))


def _bus_without_gpus(reader: Reader, known: dict[str, bool]) -> Absent | Failed | None:
    """Return the outcome of a bus without GPUs; None if a GPU is on it.

    `known` has the functions that were read before: a node has hundreds, and they do not change.
    """
    functions = reader.names(PCI)
    if functions is None:
        if not reader.problems and reader.names("sys/class/net"):
            return Absent("no PCI bus, so no NVIDIA GPU on it")
        return Failed(f"/{PCI} could not be listed")
    for gone in known.keys() - set(functions):
        del known[gone]
    for function in functions:
        if function not in known:
            code = reader.value(f"{PCI}/{function}/class", parse.number)
            is_display = code is not None and code >> 16 == DISPLAY
            vendor = reader.value(f"{PCI}/{function}/vendor", parse.number) if is_display else 0
            if code is None or vendor is None:
                continue
            known[function] = vendor == NVIDIA
        if known[function] and not given_to_vm(reader, function):
            return None
    if reader.problems:
        return Failed("the PCI bus could not be read completely")
    return Absent("no NVIDIA GPU on the PCI bus")


def _query(
    host: Host, bus: Absent | Failed | None, problems: list[Problem]
) -> Seen[Gpus] | Absent | Failed:
    """Query the GPUs through NVML; Failed if there is no answer, or not one to use.

    `bus` is the outcome of a bus without GPUs. A missing library, driver or GPU is none where the
    bus has no GPU either.
    """
    try:
        refused, entries = decode.answer(host.gpus())
    except (Malformed, Unavailable) as error:
        return Failed(str(error), pending=isinstance(error, Pending))
    if refused:
        text = f"{refused.error}: {refused.call}: {refused.text}"
        if isinstance(bus, Absent) and refused.error in decode.NO_GPUS:
            return Absent(f"{bus.reason} ({text})")
        return Failed(text)
    if not entries:
        return bus or Failed("NVML reports no GPU, while one is on the PCI bus")
    gpus = []
    for index, entry in enumerate(entries):
        try:
            gpu = decode.gpu(entry)
        except Malformed as error:  # so that the others stay
            gpus.append(Gpu(index, error="malformed", text=str(error)))
            continue
        try:
            gpu = gpu._replace(**decode.platform(entry.get("platform")))
        except Malformed as error:
            problems.append(Problem(SOURCE, gpu.pci or f"GPU {index}", None, str(error)))
        gpus.append(gpu)
    return Seen(tuple(gpus))
