"""Answers of the far ends as bytes and as the helpers' records: switches by LLDP and SMP, GPUs by
NVML.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from random import Random
from typing import Any

from agent.infiniband import sa
from agent.infiniband.devices import SubnetPort
from tests.simulation.node import Gpus, Hca, Node, Peer
from tests.support import gpus as of_nvml
from tests.support import sas
from tests.support.lldp_frames import END, capabilities, ethernet, identity, tlv
from tests.support.smps import answer, exchanges

BRIDGE = 4
FACTORY = b"Quantum Mellanox Technologies"


def frame(peer: Peer, *, ttl: int | None = None) -> bytes:
    """Return an LLDP frame of the switch; TTL 0 is the shutdown frame."""
    chassis, port = b"\x04" + peer.mac, b"\x05" + peer.port.encode()
    lldpdu = identity(chassis, port, peer.ttl if ttl is None else ttl) + tlv(
        5, peer.device.encode()
    )
    return ethernet(lldpdu + capabilities(BRIDGE) + END, source=peer.mac.hex())


def hostile(rng: Random, number: int) -> bytes:
    """Return the `number`-th frame of a flood; most are malformed, none has a switch's source
    address.
    """
    source, ttl = struct.pack(">HI", 0x0600, number), rng.choice([1, 60, 120])
    good = identity(b"\x04" + source, b"\x05evil%d" % number, ttl) + tlv(5, b"evil-%d" % number)
    kind = rng.randrange(7)
    lldpdu = {
        0: good + END,
        1: good[: rng.randrange(2, 12)],
        2: good + tlv(5, b"twice") + END,
        3: good + (127 << 9 | 511).to_bytes(2, "big") + b"\0\x12",
        4: identity(b"\x04", b"\x05"),
        5: good + tlv(6, rng.randbytes(200)) + END,
        6: rng.randbytes(rng.randrange(80)),
    }[kind]
    # zeros behind what is cut off would complete it
    return ethernet(lldpdu, source=source.hex())[: 14 + len(lldpdu)]


def smp(node: Node, addresses: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """The SMP helper's answer; a multi-plane HCA sends by its SMI sub-device only."""
    parents = {hca.parent.name for hca in node.dropped if hca.parent}
    by_name = {hca.name: hca.parent or hca for hca in node.all() if hca.name not in parents}
    asked = [(by_name.get(device), device, port) for device, port in addresses]
    return {"ports": [_asked(*one, refused=node.by_sa) for one in asked]}


def administrator(node: Node, places: Iterable[SubnetPort]) -> dict[str, Any]:
    """The SA helper's answer: of the links as the subnet manager has swept them."""
    by_name = {hca.name: hca for hca in node.all()}
    return {"ports": [_administered(node, by_name[one.device], one) for one in places]}


def _administered(node: Node, hca: Hca, place: SubnetPort) -> dict[str, Any]:
    told = answer(place.device, place.number, exchanges=[], text="it is simulated")
    if node.sa_trouble or not hca.up:
        return told | {"error": "sa-busy" if node.sa_trouble == "busy" else "no-answer"}
    if place.lid != node.lid(hca):
        return told | {"error": "sa-no-record"}
    links = sa.get_table(sa.RecordType.LINK_RECORD, 1, place.lid)
    nodes = sa.get_table(sa.RecordType.NODE_RECORD, 2, place.lid + 1)
    name = f"MF0;{hca.peer.device}:MQM9700/U1".encode()
    answers = (
        (links, sas.link(place.lid + 1, int(hca.peer.port), place.lid)),
        (nodes, sas.node(place.lid + 1, name, guid=int(hca.peer.guid, 16))),
    )
    told_by_sa = [
        {"request": request.hex(), "reply": sas.reply(request, record).hex(), "error": None}
        for request, record in answers
    ]
    return told | {"exchanges": told_by_sa, "error": None, "text": None}


def _asked(hca: Hca | None, device: str, port: int, *, refused: bool) -> dict[str, Any]:
    if refused:
        text = f"{device}: umad_register: refused"
        return answer(device, port, exchanges=[], error="refused", text=text)
    if hca is None or not hca.shown or not hca.up or hca.silent:
        return answer(device, port, exchanges=[], error="no-answer")
    ends = {"guid": int(hca.peer.guid, 16), "local_port": int(hca.peer.port)}
    return answer(device, port, exchanges=exchanges(_description(hca), port=port, **ends))


def _description(hca: Hca) -> bytes | None:
    """The NodeDescription of the far end; None: not answered."""
    if hca.nameless:
        return None
    return FACTORY if hca.factory else f"MF0;{hca.peer.device}:MQM9700/U1".encode()


def nvml(gpus: Gpus) -> dict[str, Any]:
    """The NVML helper's answer."""
    refused = {"call": "nvmlInit_v2", "code": 9, "text": "Driver Not Loaded"}
    found = [_gpu(gpus, index) for index in range(gpus.count)]
    return of_nvml.answer(*found, error=refused if gpus.unloaded else None)


def _gpu(gpus: Gpus, index: int) -> dict[str, Any]:
    clique = gpus.clique + (gpus.odd and 0 < index == gpus.count - 1)
    fabric = {"cluster_uuid": gpus.cluster, "status": gpus.status, "state": gpus.state}
    return {
        **of_nvml.GPU,
        "index": index,
        "uuid": f"GPU-{index}",
        "pci": f"00000000:{0x81 + index:02X}:00.0",
        "fabric": {**of_nvml.FABRIC, **fabric, "clique_id": clique},
    }
