"""What wakes an agent inside the emulated machine: `python -m tests.support.qemu.waking_node`,
which leaves wakes.json.

For each step the file has what was said, as [kind, subject], until all that is awaited had been and
silence followed.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from agent.events.monitor import Event, Monitors
from agent.events.port_states import PortStateSweep

PATIENCE = 10.0  # seconds until something that should have been said has not
QUIET = 1.5  # seconds; the kernel batches carrier changes to one a second
DEVICE, RENAMED = Event("device", "rxe0"), Event("device", "rxe9")
LINK, PORT = Event("link", "eth0"), Event("port", "rxe0/1")
ADD = "rdma link add rxe0 type rxe netdev eth0"

# name, command, what is to be said
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


def until(wakeups: Monitors, awaited: set[Event]) -> set[Event]:
    """What is said until all that is awaited has been, and nothing follows for a while."""
    found: set[Event] = set()
    end = time.monotonic() + PATIENCE
    while (more := wakeups.wait(QUIET)) or (awaited - found and time.monotonic() < end):
        found |= more
    return found


def main() -> None:
    """Take the steps."""
    subprocess.run(["modprobe", "rdma_rxe"], check=True)
    for words in ("link add eth0 type veth peer name far0", "link set eth0 up", "link set far0 up"):
        subprocess.run(["ip", *words.split()], check=True)
    sweep = PortStateSweep(0.2)
    sweep.watch([("rxe0", 1)])
    wakeups = Monitors(["eth0"], ports=sweep)
    said = {"deaf": [list(item) for item in wakeups.deaf.items()]}
    until(wakeups, {PORT})
    for name, command, awaited in STEPS:
        subprocess.run(command.split(), check=True)
        said[name] = [list(wake) for wake in sorted(until(wakeups, awaited))]
    Path("wakes.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main()
