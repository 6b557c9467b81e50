"""Events inside the emulated machine: `python -m tests.support.qemu.waking_node`.

It leaves events.json: for each step the events as [kind, subject], read until all awaited ones came
and no other followed.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from agent.events.event import Event
from agent.events.monitor import Monitors
from agent.events.port_states import PortStateSweep

EVENT_TIMEOUT = 60.0  # seconds until an awaited event is missing
QUIET = 1.5  # seconds; the kernel batches carrier changes to one a second
DEVICE, RENAMED = Event("device", "rxe0"), Event("device", "rxe9")
LINK, PORT = Event("link", "eth0"), Event("port", "rxe0/1")
ADD = "rdma link add rxe0 type rxe netdev eth0"

# name, command, awaited events
STEPS: list[tuple[str, str, set[Event]]] = [
    ("a link is added", ADD, {DEVICE, PORT}),
    ("the cable is pulled", "ip link set far0 down", {LINK, PORT}),
    ("the cable is plugged", "ip link set far0 up", {LINK, PORT}),
    ("the link is deleted", "rdma link del rxe0", {DEVICE, PORT}),
    ("the link is added again", ADD, {DEVICE, PORT}),
    ("the device is renamed", "rdma dev set rxe0 name rxe9", {DEVICE, RENAMED}),
    ("the device is renamed back", "rdma dev set rxe9 name rxe0", {DEVICE, RENAMED}),
    ("the driver is removed", "modprobe -r rdma_rxe", {DEVICE, PORT}),
    ("the driver is loaded", "modprobe rdma_rxe", set()),
    ("the link is there again", ADD, {DEVICE, PORT}),
    ("the netdev is deleted", "ip link delete eth0", {DEVICE, LINK, PORT}),
]


def read_until(monitors: Monitors, awaited: set[Event]) -> set[Event]:
    """Read events until all awaited ones have come and none follows for QUIET seconds."""
    found: set[Event] = set()
    end = time.monotonic() + EVENT_TIMEOUT
    while (more := monitors.wait(QUIET)) or (awaited - found and time.monotonic() < end):
        found |= more
    return found


def main() -> None:
    """Take the steps."""
    subprocess.run(["modprobe", "rdma_rxe"], check=True)
    for words in ("link add eth0 type veth peer name far0", "link set eth0 up", "link set far0 up"):
        subprocess.run(["ip", *words.split()], check=True)
    sweep = PortStateSweep(0.2)
    sweep.watch([("rxe0", 1)])
    monitors = Monitors(["eth0"], others=[sweep])
    events = {"unavailable": [list(item) for item in monitors.unavailable.items()]}
    read_until(monitors, {PORT})
    for name, command, awaited in STEPS:
        subprocess.run(command.split(), check=True)
        events[name] = [list(event) for event in sorted(read_until(monitors, awaited))]
    Path("events.json").write_text(json.dumps(events))


if __name__ == "__main__":
    main()
