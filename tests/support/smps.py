"""Subnet management packets of a far end, and the helper's record of them."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from typing import Any

from agent.infiniband import smp
from agent.infiniband.smp import Attribute, Exchange
from agent.model import IbNeighbor

TID = 0x69AB1F3F
KERNEL_TID = 0x0000_0012_0000_0000  # what the kernel puts above it
ASK_INFO = smp.get(Attribute.NODE_INFO, TID, 1)
ASK_DESCRIPTION = smp.get(Attribute.NODE_DESCRIPTION, TID + 1, 1)
ASK_STATE = smp.get(Attribute.PORT_INFO, TID + 2, 1, modifier=3)
LEAF = IbNeighbor("switch", "b0cf0e0300d66c81", "b0cf0e0300d66c80", 3, "MF0;L90.1.3:MQM9700/U1")


def mad(*lines: str) -> bytes:
    """A 256-byte MAD out of its first lines in hex; the rest is zero."""
    return bytes.fromhex("".join(lines)).ljust(256, b"\0")


def reply(request: bytes, data: bytes, status: int = 0x8000) -> bytes:
    """Return the far end's reply: the request with the method, the status and the data changed."""
    tid = int.from_bytes(request[8:16], "big") | KERNEL_TID
    head = struct.pack(">3sBH2BQ", request[:3], 0x81, status, 0, request[7], tid)
    return head + request[16:64] + data.ljust(64, b"\0") + request[128:192] + bytes(64)


def node_info(
    kind: int = 2, ports: int = 65, guid: int = 0xB0CF0E0300D66C81, local_port: int = 3
) -> bytes:
    """The first 40 bytes of NodeInfo."""
    guids = (0xB0CF0E0300D66C80, guid, guid + 1)
    return struct.pack(
        ">4B3Q2HIB3s", 1, 1, kind, ports, *guids, 8, 0xD2F2, 0xA0, local_port, b"\0\x02\xc9"
    )


def port_info(state: int) -> bytes:
    """PortInfo with nothing but LinkSpeedSupported 1 and a state."""
    return bytes(32) + bytes((0x10 | state,))


INFO = reply(ASK_INFO, node_info())
DESCRIPTION = reply(ASK_DESCRIPTION, b"MF0;L90.1.3:MQM9700/U1")
STATE = reply(ASK_STATE, port_info(4))
RECORDED = (Exchange(ASK_INFO, INFO), Exchange(ASK_DESCRIPTION, DESCRIPTION))
RECORDED_0_1_0 = (*RECORDED, Exchange(ASK_STATE, STATE))  # bwagent 0.1.0 asked for PortInfo too


def exchanges(
    description: bytes | None = b"MF0;L90.1.3:MQM9700/U1",
    kind: int = 2,
    port: int = 1,
    guid: int = 0xB0CF0E0300D66C81,
    local_port: int = 3,
) -> list[dict[str, Any]]:
    """A conversation in the helper's answer; without a description that request has no reply."""
    pairs = (
        (smp.get(Attribute.NODE_INFO, 1, port), node_info(kind, guid=guid, local_port=local_port)),
        (smp.get(Attribute.NODE_DESCRIPTION, 2, port), description),
    )
    return [
        {
            "request": request.hex(),
            "reply": None if data is None else reply(request, data).hex(),
            "error": "no-answer" if data is None else None,
        }
        for request, data in pairs
    ]


def answer(device: str = "mlx5_0", port: int = 1, **changes: Any) -> dict[str, Any]:
    """The helper's answer for a port."""
    entry = {"device": device, "port": port, "exchanges": exchanges(port=port)}
    return entry | {"error": None, "text": None} | changes


def helper(*answers: dict[str, Any]) -> Callable[[Sequence[tuple[str, int]]], Any]:
    """A helper that has these answers."""
    return lambda ports: {
        "ports": [one for one in answers if (one["device"], one["port"]) in ports]
    }


def leaf(address: tuple[str, int]) -> dict[str, Any]:
    """That for a port, device and number, whose far end is port 3 of switch L90.1.3."""
    return answer(*address, exchanges=exchanges())


def far_end(address: tuple[str, int], guid: int, name: str) -> dict[str, Any]:
    """That for a port whose far end is port 1 of a switch."""
    text = f"MF0;{name}:MQM9700/U1".encode()
    return answer(*address, exchanges=exchanges(text, port=address[1], guid=guid, local_port=1))


class Fabric:
    """The switch at the far end of each port, by interface: its GUID and name."""

    def __init__(self, **leaves: tuple[int, str]) -> None:
        self.leaves = leaves

    def __call__(self, address: tuple[str, int]) -> dict[str, Any]:
        return far_end(address, *self.leaves[address[0]])

    def move(self, *numbers: int, to: int = 99) -> None:
        """Plug the cables of these ports, ibpN, into another switch."""
        self.leaves |= {f"ibp{number}": (to, f"leaf{to}") for number in numbers}


class AnsweringPort:
    """A UmadPort: `answer` returns the reply to a request, None for none, or raises."""

    def __init__(self, answer: Callable[[bytes], bytes | None]) -> None:
        self._answer, self._event = answer, os.eventfd(0)
        self._reply: bytes | None = None

    def fileno(self) -> int:
        return self._event

    def send(self, request: bytes, _timeout_ms: int) -> None:
        self._reply = self._answer(request)
        if self._reply is not None:
            os.eventfd_write(self._event, 1)

    def receive(self, _request: bytes) -> bytes | None:
        os.eventfd_read(self._event)
        return self._reply

    def close(self) -> None:
        os.close(self._event)
