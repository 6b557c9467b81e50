"""What it costs to decode an LLDP frame: `python -m benchmarks.lldp_decode [ROUNDS]`, from the
repository.

Ours beside scapy, pypacker and os-ken, as far as they are installed, over the frames of
tests/support/lldp_frames.py. All take turns in one run, so that whatever else the machine does hits
all of them. What is timed is each decoder's usual way from a frame to the values of the mandatory
TLVs and the System Name; ours goes on to checked text of all TLVs. Below 50 times as fast as scapy
something has gone wrong.

The last row is what a repeated frame costs, which is nearly all of them: a compare with the one
before.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING

from agent.lldp.frame import decode
from tests.support.lldp_frames import VENDORS

if TYPE_CHECKING:
    from collections.abc import Callable

FRAMES = [case.data for case in VENDORS] * 10
FLOOR = 50.0  # times as fast as scapy
HEADER = 14  # octets of an untagged Ethernet header, which os-ken's decoder does not take


def scapy() -> Callable[[bytes], object]:
    """Its layers are dissected when the packet is made, and found by type."""
    from scapy.contrib import lldp
    from scapy.layers.l2 import Ether

    def values(frame: bytes) -> object:
        packet = Ether(frame)
        name = packet.getlayer(lldp.LLDPDUSystemName)
        identity = (
            packet[lldp.LLDPDUChassisID].id,
            packet[lldp.LLDPDUPortID].id,
            packet[lldp.LLDPDUTimeToLive].ttl,
        )
        return identity, name and name.system_name

    return values


def pypacker() -> Callable[[bytes], object]:
    """Its layers are dissected when they are asked for, and lie in the order of the frame."""
    from pypacker.layer12 import ethernet, lldp

    def values(frame: bytes) -> object:
        chassis, port, ttl, *rest = ethernet.Ethernet(frame)[lldp.LLDP].tlvlist
        names = [tlv.value for tlv in rest if isinstance(tlv, lldp.LLDPSystemName)]
        return chassis.value, port.value, ttl.seconds, names

    return values


def os_ken() -> Callable[[bytes], object]:
    """Its parser takes what is behind the Ethernet header, and its TLVs lie in the order of the
    frame.
    """
    from os_ken.lib.packet import lldp

    def values(frame: bytes) -> object:
        chassis, port, ttl, *rest = lldp.lldp.parser(frame[HEADER:])[0].tlvs
        names = [tlv.system_name for tlv in rest if isinstance(tlv, lldp.SystemName)]
        return chassis.chassis_id, port.port_id, ttl.ttl, names

    return values


def repeated() -> Callable[[bytes], object]:
    """A compare with an equal frame that is another object."""
    before = {case.data: bytes(bytearray(case.data)) for case in VENDORS}
    return lambda frame: frame == before[frame]


def installed(
    *decoders: Callable[[], Callable[[bytes], object]],
) -> dict[str, Callable[[bytes], object]]:
    """The decoders that can be imported, by name."""
    found = {}
    for decoder in decoders:
        try:
            found[decoder.__name__.replace("_", "-")] = decoder()
        except ImportError as error:
            print(f"{error.name} is not installed: left out", file=sys.stderr)
    return found


def measure(decoders: dict[str, Callable[[bytes], object]], rounds: int) -> dict[str, float]:
    """Median microseconds a frame, by decoder; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in decoders}
    for _ in range(rounds):
        for name, work in decoders.items():
            before = time.perf_counter()
            for frame in FRAMES:
                work(frame)
            times[name].append((time.perf_counter() - before) / len(FRAMES) * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def main(rounds: int) -> int:
    """Print the table; 1 when ours is slower than it was."""
    results = measure({"bwagent": decode} | installed(scapy, pypacker, os_ken, repeated), rounds)
    ours = results["bwagent"]
    print(f"{len(VENDORS)} frames{'':8}{'us a frame':>12}{'against ours':>14}")
    for name, value in results.items():
        print(f"{name:17}{value:12.2f}{value / ours:13.2f}x")
    if "scapy" not in results:
        return 0
    print(f"{results['scapy'] / ours:.0f} times as fast as scapy (floor: {FLOOR:.0f})")
    return int(results["scapy"] / ours < FLOOR)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 100))
