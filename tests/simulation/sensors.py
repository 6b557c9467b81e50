"""Faults of the agent's reads, queries and events: the true state stays, and is hidden or reported
late.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from random import Random

from agent.errors import Unavailable
from agent.events.event import Event
from tests.simulation.hardware import of_a_port
from tests.simulation.node import Hca, Node
from tests.simulation.sysfs import BOOT_ID, BUS, CLASS, NET, Fault
from tests.simulation.world import World

DEVICE = (
    *("node_type", "node_guid", "sys_image_guid", "hca_type", "board_id", "fw_ver", "device/vpd"),
    *("device/driver", "device/physfn", "device/numa_node", "device/net", "device"),
    *("ports/1/link_layer", "ports/1/state", "ports/1/phys_state", "ports/1/rate"),
    *("ports/1/has_smi", "ports/1/gids/0", "ports/1/counters/link_downed", "ports"),
)
NETDEV = ("operstate", "speed", "address")
TREES = (CLASS, BUS, "proc", BOOT_ID)
FREE_TEXT = ("hca_type", "board_id", "fw_ver")
ERRNOS = (errno.EIO, errno.EINVAL, errno.ENODEV, errno.EACCES, errno.ENXIO)
GARBAGE = (
    *(b"", b"\n", b"\xff\xfe\n", b"garbage 4: X\n", b"N/A (no PMA)\n"),
    b"0" * 5000,
    b"\0\0\0\n",
    b"9" * 30 + b"\n",
    b"5: ACTIVE_DEFER\n",
)


def lasting(rng: Random) -> float:
    return rng.choice([5.0, 40.0, 400.0, 590.0, 900.0])


def lay(world: World, seconds: float, fault: Fault, *counts: tuple[Hca | Node, str]) -> float:
    """Add a fault of the tree for a while; `counts` are the fields in which the node has it."""

    def count(by: int) -> None:
        (world.sysfs.faults.append if by > 0 else world.sysfs.faults.remove)(fault)
        for of, name in counts:
            setattr(of, name, getattr(of, name) + by)
        world.node.is_bus_read |= not world.node.busless
        world.changed()

    return world.for_a_while(seconds, count)


def _attribute(hca: Hca, rng: Random) -> str:
    if hca.netdev and rng.random() < 0.3:
        return f"{NET}/{hca.netdev}/{rng.choice(NETDEV)}"
    return f"{CLASS}/{hca.name}/{rng.choice(DEVICE)}"


@of_a_port()
def attribute_fails(world: World, rng: Random, hca: Hca) -> float:
    """Let reads of one file of one device fail."""
    path, number, seconds = _attribute(hca, rng), rng.choice(ERRNOS), lasting(rng)
    world.note(f"{path}: {errno.errorcode[number]} for {seconds} s")
    return lay(world, seconds, Fault(path, number), (hca, "murky"))


@of_a_port()
def attribute_is_garbage(world: World, rng: Random, hca: Hca) -> float:
    """Replace the content of one file by text that no kernel writes."""
    path, text, seconds = _attribute(hca, rng), rng.choice(GARBAGE), lasting(rng)
    if path.endswith(FREE_TEXT):
        text = b"\0\xff\n"  # any other text would be a valid value
    world.note(f"{path}: {text[:20]!r} for {seconds} s")
    return lay(world, seconds, Fault(path, text), (hca, "murky"))


@of_a_port()
def device_fails(world: World, rng: Random, hca: Hca) -> float:
    """Let all reads of one device fail."""
    number, seconds = rng.choice(ERRNOS), lasting(rng)
    world.note(f"{hca.name}: {errno.errorcode[number]} everywhere for {seconds} s")
    return lay(world, seconds, Fault(f"{CLASS}/{hca.name}", number), (hca, "sick"))


@of_a_port()
def device_blocks(world: World, rng: Random, hca: Hca) -> float:
    """Let reads of one device block."""
    paths = ["", "/ports/1/state", "/ports/1/rate", *(["/device/vpd"] if hca.infiniband else [])]
    path, seconds = rng.choice(paths), lasting(rng)
    world.note(f"{hca.name}: reads{path} block for {seconds} s")
    # A VPD is read once: it hides a device only from an agent that has not read it.
    count = "murky" if path == "/device/vpd" else "sick"
    return lay(world, seconds, Fault(f"{CLASS}/{hca.name}{path}", "blocks"), (hca, count))


def class_fails(world: World, rng: Random) -> float:
    """Let reads of the class, the bus, the routes or the boot ID fail."""
    return tree_fails(world, rng.choice(TREES), rng.choice(ERRNOS), lasting(rng))


def tree_fails(world: World, path: str, number: int, seconds: float) -> float:
    """Let reads of one of TREES fail."""
    world.note(f"/{path}: {errno.errorcode[number]} for {seconds} s")
    if (
        path == "proc" and world.node.infiniband
    ):  # where only a node whose HCAs are all hidden asks for routes
        for hca in world.node.hcas:
            lay(world, seconds, Fault("proc/net", number), (hca, "murky"))
    # Without an Ethernet device, the front end aside, no role depends on a route.
    roce = ("proc",) if world.node.hcas and not world.node.infiniband else ()
    counts = {**dict.fromkeys((CLASS, *roce), "classless"), BUS: "busless", BOOT_ID: "bootless"}
    count = [(world.node, counts[path])] if path in counts else []
    return lay(world, seconds, Fault(path, number), *count)


def break_helpers(
    world: World, seconds: float, kinds: tuple[str, ...], error: Callable[[], Exception]
) -> float:
    """Let the helpers of these kinds fail for a while; the first of several errors is raised."""

    def count(by: int) -> None:
        for kind in kinds:
            errors = world.helper_errors[kind]
            (errors.append if by > 0 else errors.remove)(error)
            world.trouble_with(kind, by)

    return world.for_a_while(seconds, count)


def out_of_descriptors(world: World, rng: Random) -> float:
    """EMFILE: no file can be opened and no child started."""
    seconds = lasting(rng)
    world.note(f"EMFILE for {seconds} s")
    break_helpers(
        world, seconds, ("api", "nvml", "smp"), lambda: OSError(errno.EMFILE, "Too many open files")
    )
    return lay(world, seconds, Fault("", errno.EMFILE), (world.node, "blind"))


def out_of_memory(world: World, rng: Random) -> float:
    """Raise MemoryError in a source."""
    seconds = lasting(rng)
    world.note(f"MemoryError for {seconds} s")
    world.judge.is_memory_short = True
    break_helpers(world, seconds, ("api", "nvml", "smp"), MemoryError)
    return lay(world, seconds, Fault("sys", "memory"), (world.node, "blind"))


def out_of_threads(world: World, rng: Random) -> float:
    """Refuse new threads: no background work can be done."""
    seconds = lasting(rng)
    world.note(f"no threads for {seconds} s")

    def count(by: int) -> None:
        world.threadless += by
        for kind in ("api", "nvml", "smp"):
            world.trouble_with(kind, by)

    return world.for_a_while(seconds, count)


def nvml_fails(world: World, rng: Random) -> float:
    """Let NVML hang, crash, miss its driver, or return malformed data."""
    seconds, how = lasting(rng), rng.choice(["hang", "crash", "unloaded", "nonsense"])
    world.note(f"NVML: {how} for {seconds} s")
    gpus = world.node.gpus
    if how == "unloaded":

        def become(by: int) -> None:
            gpus.unloaded += by
            # A driver that loads is bound to the functions of the GPUs.
            world.changed(*([Event("device", "0000:f0:00.0")] if by < 0 else []))

        return world.for_a_while(seconds, become)
    words = {
        "hang": "no answer within 30 s",
        "crash": "killed by SIGSEGV",
        "nonsense": "its answer is not a JSON object",
    }
    return break_helpers(
        world, seconds, ("nvml",), lambda: Unavailable(f"helper nvml: {words[how]}")
    )


def smp_fails(world: World, rng: Random) -> float:
    """Kill the SMP helper, or deny its queries."""
    seconds, words = (
        lasting(rng),
        rng.choice(["killed by SIGKILL", "no answer within 10 s", "ended with status 1"]),
    )
    world.note(f"SMP helper: {words} for {seconds} s")
    return break_helpers(world, seconds, ("smp",), lambda: Unavailable(f"helper smp: {words}"))


def mute(world: World, seconds: float) -> float:
    world.muffled_until = max(world.muffled_until, world.time + seconds)

    def count(by: int) -> None:
        world.muffled += by
        if by < 0:
            world.wake(Event("resync", "links"))

    return world.for_a_while(seconds, count)


def ears_die(world: World, rng: Random) -> float:
    """Close the event monitors for a while."""
    seconds = lasting(rng)
    world.note(f"no wake-ups for {seconds} s")
    world.deafness["links"] = "it is simulated"
    world.at(seconds, partial(world.deafness.pop, "links", None))
    return mute(world, seconds)


def messages_lost(world: World, rng: Random) -> float:
    """Lose messages for a while, with ENOBUFS."""
    seconds = rng.choice([0.2, 2.0, 10.0])
    world.note(f"ENOBUFS, messages of {seconds} s are lost")
    return mute(world, seconds)


def sockets_die(world: World, rng: Random) -> float:
    """Break the LLDP sockets once."""
    world.note("the LLDP sockets die")
    world.listener_error = OSError(
        rng.choice([errno.ENETDOWN, errno.ENOBUFS, errno.EBADF]), "it is simulated"
    )
    world.wake(Event("frames", ""))
    return 0.0
