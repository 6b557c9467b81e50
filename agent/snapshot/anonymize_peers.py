"""Neighbours without the names that lead back to their owner, for a snapshot that is given away.

The law of this module: nothing is passed on because it looked harmless. A frame or a reply is built anew out of the
few parts that decide how a neighbour is read, and each part is renamed, or kept because it is of a kind that names
nobody: subtypes, capabilities, TTLs, VLAN tags, port numbers and states, models, what a factory wrote, and port names
of the shapes in INTERFACE. So descriptions, management addresses, organisational TLVs, M_Keys, LIDs, GID prefixes and
whatever a standard adds tomorrow stay behind; a frame or reply that makes no sense does, too.

Addresses and GUIDs become what they became in the rest of the snapshot. A name becomes the same `switch-N`, `peer-N`
or `port-N` wherever it stands, in a System Name, a NodeDescription or a Port Description.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent.errors import Malformed
from agent.infiniband import node_description as nodedesc
from agent.infiniband import smp
from agent.infiniband.smp import Attribute
from agent.lldp import frame as lldp
from agent.lldp.frame import Frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.model import LldpNeighbor
    from agent.snapshot.recorded import RecordedIo

# swp1s0, Ethernet1/1, Gi1/0/4, et-0/0/4:1, etp1a, 25GE1/0/4, enp193s0f0np0, TwentyFiveGigE1/0/1; 513 is an ifIndex.
INTERFACE = re.compile(
    r"\d{1,6}|(?:(?:\d{1,3}|ten|twentyfive|forty|fifty|hundred|twohundred|fourhundred|eighthundred)?(?:ge|gige)"
    r"|(?:ten|twentyfive|forty|hundred)?gigabitethernet|fastethernet|ethernet|eth?|etp|xe|gi|te|twe?|fo|fi|hu|th|fh"
    r"|swp|port|mgmt|ma|management|en[ops])[ -]?\d{1,5}(?:[/:.]\d{1,5}|s\d{1,3}|f\d{1,3}|np\d{1,3}|d\d{1,3}|[a-h])*",
    re.IGNORECASE,
)
FACTORY = re.compile(
    r"(?:(?:MT\d{4,6} ?)?(?:Infiniscale(?:-I[IV]{1,2})?|Quantum(?:-\w{1,3})?|Switch-?IB(?:-?2)?|SwitchX(?:-2)?)?[ -]*"
    r"Mellanox Technologies|ISR\d{4}\w{0,4} Voltaire)",
    re.IGNORECASE,
)
NAMELESS = "Mellanox Technologies"  # nobody's name: stands for what only ends like one
MODEL = re.compile(r"[A-Z]{1,4}\d{3,5}(?:_[A-Z]{1,3})?")
PLACES = re.compile(r"(?:/(?:[LSU]\d{1,2}|RT))*$")  # of the ASIC in its box
HCA = re.compile(r"mlx\d_\d{1,2}|HCA-\d{1,2}|ibp\d{1,3}(?:s\d{1,2})?(?:f\d)?")
WORD = re.compile(r"[a-z][a-z-]{0,31}")
_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
_GUIDS = (4, 12, 20)  # SystemImageGUID, NodeGUID, PortGUID in NodeInfo (IBTA vol. 1, 14.2.5.3)
_MANAGED = "MF0;"
_ATTRIBUTE = 17  # the octet of a request that tells them apart: the lower one of AttributeID
_NODE_INFO = 40  # octets
_STATE = 32  # the octet of PortState in PortInfo (14.2.5.6)


def anonymize_io(io: RecordedIo, text: Callable[[str], str]) -> RecordedIo:
    """Frames and answers under other names; `text` renames the addresses, GUIDs and interfaces in a text.

    Frames that make no sense are dropped; of an answer that makes none only the word "malformed" is left.
    """
    peers = _Peers(text)
    return replace(
        io,
        heard={
            text(netdev): list(filter(None, map(peers.frame, frames)))
            for netdev, frames in io.heard.items()
        },
        refused={text(netdev): text(reason) for netdev, reason in io.refused.items()},
        answers={
            (text(device), port): peers.answer(one) for (device, port), one in io.answers.items()
        },
        flags={text(netdev): flags for netdev, flags in io.flags.items()},
    )


@dataclass(slots=True)
class _Peers:
    """The other names given so far."""

    text: Callable[[str], str]
    given: dict[str, str] = field(default_factory=dict)

    def name(self, name: str, kind: str = "switch") -> str:
        return self.given.setdefault(name, f"{kind}-{len(self.given) + 1}")

    def port(self, name: str) -> str:
        return name if INTERFACE.fullmatch(name) else self.name(name, "port")

    def mac(self, mac: str) -> bytes:
        return bytes.fromhex(self.text(mac).replace(":", ""))

    def guid(self, guid: bytes) -> bytes:
        return bytes.fromhex(self.text(guid.hex(":", 2)).replace(":", ""))

    def frame(self, frame: Frame) -> Frame | None:
        """The frame with nothing in it but what is read of it; None when it makes no sense."""
        try:
            told = lldp.decode(frame.data)
        except Malformed:
            return None
        addresses = self.mac(told.destination_mac) + self.mac(told.source_mac)
        data = addresses + _tags(frame.data) + self._lldpdu(told)
        return Frame(self.text(frame.netdev), frame.time, data.ljust(60, b"\0"))

    def _lldpdu(self, told: LldpNeighbor) -> bytes:
        tlvs = [
            (
                1,
                bytes((told.chassis_subtype,))
                + self._identifier(told.chassis_id, told.chassis_subtype == 4, self.name),
            ),
            (
                2,
                bytes((told.port_id_subtype,))
                + self._identifier(told.port_id, told.port_id_subtype == 3, self.port),
            ),
            (3, told.ttl.to_bytes(2, "big")),
        ]
        if told.port_description:
            tlvs.append((4, self.port(told.port_description).encode()))
        if told.system_name:
            tlvs.append((5, self.name(told.system_name).encode()))
        if told.capabilities is not None:
            tlvs.append((7, 2 * told.capabilities.to_bytes(2, "big")))
        return b"".join(
            (kind << 9 | len(value)).to_bytes(2, "big") + value for kind, value in [*tlvs, (0, b"")]
        )

    def _identifier(self, text: str, is_mac: bool, rename: Callable[[str], str]) -> bytes:
        """An address stays an address; what only claims to be one is a name like any other."""
        return self.mac(text) if is_mac and _MAC.fullmatch(text) else rename(text).encode()

    def answer(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The helper's answer for one port (agent/helper/main.py)."""
        told = {"device": self.text(answer["device"]), "port": answer["port"]}
        try:
            return {
                **told,
                "exchanges": self._exchanges(answer["exchanges"]),
                "error": _word(answer["error"]),
                "text": answer["text"] and self.text(answer["text"]),
            }
        except (Malformed, KeyError, TypeError, ValueError):
            return {**told, "exchanges": [], "error": "malformed", "text": None}

    def _exchanges(self, exchanges: list[dict[str, Any]]) -> list[dict[str, Any]]:
        kind = "switch"
        found = []
        for one in exchanges:
            request, error = bytes.fromhex(one["request"]), _word(one["error"])
            smp.require_get(request)
            try:
                data = (
                    None
                    if one["reply"] is None
                    else smp.decode(bytes.fromhex(one["reply"]), request)
                )
                if data and request[_ATTRIBUTE] == Attribute.NODE_INFO:
                    kind = "switch" if smp.node_info(data).node_type == "switch" else "peer"
            except Malformed:
                data, error = None, "malformed"
            reply = (
                _reply(request, self._data(request[_ATTRIBUTE], data, kind)).hex() if data else None
            )
            found.append({"request": request.hex(), "reply": reply, "error": error})
        return found

    def _data(self, attribute: int, data: bytes, kind: str) -> bytes:
        """The 64 octets of an attribute, or the first of them."""
        if attribute == Attribute.NODE_INFO:
            for at in _GUIDS:
                data = data[:at] + self.guid(data[at : at + 8]) + data[at + 8 :]
            return data[:_NODE_INFO]
        if attribute == Attribute.NODE_DESCRIPTION:
            return self._description(nodedesc.text(data), kind).encode()
        return bytes(_STATE) + bytes((data[_STATE] & 0x0F,))

    def _description(self, description: str, kind: str) -> str:
        if description.startswith(_MANAGED):
            return _MANAGED + self._managed(description.removeprefix(_MANAGED))
        if not description or FACTORY.fullmatch(description):
            return description
        if nodedesc.switch_name(description) is None:
            return NAMELESS
        name, _, rest = description.partition(" ")
        return (
            f"{self.name(name, kind)} {rest}"
            if HCA.fullmatch(rest)
            else self.name(description, kind)
        )

    def _managed(self, composed: str) -> str:
        """Host name, model, and the place of the ASIC in the box (agent/infiniband/node_description.py)."""
        name, colon, rest = composed.rpartition(":") if ":" in composed else (composed, "", "")
        model = rest.partition("/")[0]
        places = PLACES.search(rest)
        kept = (model if MODEL.fullmatch(model) else "X") + (places[0] if places else "")
        return (name and self.name(name)) + (colon and f":{kept}")


def _word(error: str | None) -> str | None:
    if error is not None and not WORD.fullmatch(error):
        raise Malformed("a recorded reason makes no sense")
    return error


def _tags(frame: bytes) -> bytes:
    """The VLAN tags and the LLDP ethertype behind them."""
    end = next(at for at in (14, 18, 22) if frame[at - 2 : at] == lldp.ETHERTYPE.to_bytes(2, "big"))
    return frame[12:end]


def _reply(request: bytes, data: bytes) -> bytes:
    """The reply to a plain Get, which carries no M_Key and no LID but the permissive one."""
    head = request[:3] + b"\x81\x80\x00" + request[6:64]
    return head + data.ljust(64, b"\0") + request[128:]
