"""Cost of decoding an LLDP frame: `python -m benchmarks.lldp_decode [ROUNDS]`, from the repository.

The agent's decoder beside scapy, pypacker and os-ken, where they are installed, over the frames of
tests/support/lldp_frames.py. All take turns in one run, so that the load of the machine affects all
alike. Measured is each decoder's usual way from a frame to the values of the mandatory TLVs and the
System Name; the agent's goes on to checked text of all TLVs. Less than 50 times the speed of scapy
is a failure.

The last row is the cost of a repeated frame, which is nearly every frame: a comparison with the
previous one.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from agent.lldp.frame import decode
from tests.support.lldp_frames import VENDORS

FRAMES = [case.data for case in VENDORS] * 10
FLOOR = 50.0  # times as fast as scapy
HEADER = 14  # octets of an untagged Ethernet header, which os-ken's decoder does not take


def scapy() -> Callable[[bytes], object]:
    """Decode with scapy, which dissects the layers when the packet is made."""
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
    """Decode with pypacker, which dissects on access; its TLVs are in the order of the frame."""
    from pypacker.layer12 import ethernet, lldp

    def values(frame: bytes) -> object:
        chassis, port, ttl, *rest = ethernet.Ethernet(frame)[lldp.LLDP].tlvlist
        names = [tlv.value for tlv in rest if isinstance(tlv, lldp.LLDPSystemName)]
        return chassis.value, port.value, ttl.seconds, names

    return values


def os_ken() -> Callable[[bytes], object]:
    """Decode with os-ken, which parses after the Ethernet header; its TLVs are in the order
    of the frame.
    """
    from os_ken.lib.packet import lldp

    def values(frame: bytes) -> object:
        chassis, port, ttl, *rest = lldp.lldp.parser(frame[HEADER:])[0].tlvs
        names = [tlv.system_name for tlv in rest if isinstance(tlv, lldp.SystemName)]
        return chassis.chassis_id, port.port_id, ttl.ttl, names

    return values


def repeated() -> Callable[[bytes], object]:
    """Compare with an equal frame that is another object."""
    before = {case.data: bytes(bytearray(case.data)) for case in VENDORS}
    return lambda frame: frame == before[frame]


def installed(
    *decoders: Callable[[], Callable[[bytes], object]],
) -> dict[str, Callable[[bytes], object]]:
    """Return the decoders that can be imported, by name."""
    found = {}
    for decoder in decoders:
        try:
            found[decoder.__name__.replace("_", "-")] = decoder()
        except ImportError as error:
            print(f"{error.name} is not installed: left out", file=sys.stderr)
    return found


def measure(decoders: dict[str, Callable[[bytes], object]], rounds: int) -> dict[str, float]:
    """Return the median microseconds a frame, by decoder; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in decoders}
    for _ in range(rounds):
        for name, work in decoders.items():
            before = time.perf_counter()
            for frame in FRAMES:
                work(frame)
            times[name].append((time.perf_counter() - before) / len(FRAMES) * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def main(rounds: int) -> int:
    """Print the table; return 1 if the agent's decoder is slower than FLOOR permits."""
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
