"""Cost of LLDP reception: eight sockets without traffic, and with repeated frames. Prints medians.

    python -m benchmarks.lldp_listen        as root: it makes and removes eight veth pairs

A switch sends every 30 s, so eight ports receive 960 frames an hour, nearly all of them
repetitions.
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from agent.lldp.neighbors import NeighborTable
from agent.lldp.packet_socket import Listener
from tests.support.lldp_frames import VENDORS

PORTS = 8
QUIET = 20.0  # seconds
ROUNDS = 50
AN_HOUR = PORTS * 3600 // 30  # frames
FRAME = VENDORS[0].data


@contextmanager
def cables() -> Iterator[list[str]]:
    """Make eight veth pairs with both ends up; a far end has the near one's name with a p
    appended.
    """
    names = [f"bwl{number}" for number in range(PORTS)]
    try:
        for name in names:
            subprocess.run(
                ["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p"], check=True
            )
            for end in (name, f"{name}p"):
                subprocess.run(["ip", "link", "set", end, "up"], check=True)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "link", "del", name], check=False, capture_output=True)


def quiet(listener: Listener) -> float:
    """Return the CPU-seconds of a wait without frames."""
    start = time.process_time()
    listener.receive(QUIET)
    return time.process_time() - start


def repeated(listener: Listener, names: list[str], frame: bytes) -> float:
    """Return the CPU-seconds for one repeated frame of each switch: received, compared,
    recorded.
    """
    table, taken = NeighborTable(), []
    switches = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) for _ in names]
    for switch, name in zip(switches, names, strict=True):
        switch.bind((f"{name}p", 0))
    for _ in range(ROUNDS):
        for switch in switches:
            switch.send(frame)
        start = time.process_time()
        heard = 0
        while heard < PORTS:
            for got in listener.receive(1.0):
                table.receive(got)
                heard += 1
        taken.append(time.process_time() - start)
    for switch in switches:
        switch.close()
    return statistics.median(taken)


def main() -> int:
    """Measure and print."""
    with cables() as names:
        time.sleep(1)  # duplicate address detection and the like
        listener = Listener()
        listener.watch(names)
        idle = quiet(listener)
        one_round = repeated(listener, names, FRAME)
        listener.close()
    print(f"{PORTS} sockets, no frames         {idle / QUIET * 3600:8.3f} CPU-seconds an hour")
    print(f"{PORTS} unchanged frames           {one_round * 1e6:8.0f} us of CPU")
    print(f"unchanged frames at 30 s      {one_round / PORTS * AN_HOUR:8.3f} CPU-seconds an hour")
    return 0


if __name__ == "__main__":
    sys.exit(main())
