"""Rebuilds recorded SMP answers with replaced names, for an anonymized snapshot.

Invariants:
- a reply is rebuilt from the fields that the decoder uses (agent/infiniband/smp.py), so M_Keys,
  LIDs and GID prefixes are left out;
- port numbers, port states, switch models and factory names are kept, GUIDs and names replaced;
- a name has the same replacement in a NodeDescription, an LLDP System Name and a Port Description.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from agent.errors import Malformed
from agent.ids import CODE
from agent.infiniband import node_description as nodedesc
from agent.infiniband import smp
from agent.infiniband.smp import Attribute, Exchange

if TYPE_CHECKING:
    from agent.snapshot.names import Names

    Answer = dict[str, Any]

# A NodeDescription as the vendor sets it.
FACTORY = re.compile(
    r"""
    (?: (?: MT\d{4,6}\ ? )?
        (?: Infiniscale(?:-I[IV]{1,2})? | Quantum(?:-\w{1,3})?
          | Switch-?IB(?:-?2)? | SwitchX(?:-2)? )?
        [ -]* Mellanox\ Technologies
      | ISR\d{4}\w{0,4}\ Voltaire )
    """,
    re.IGNORECASE | re.VERBOSE,
)
VENDOR = "Mellanox Technologies"  # replaces a description that only ends like a factory name
MODEL = re.compile(r"[A-Z]{1,4}\d{3,5}(?:_[A-Z]{1,3})?")
ASIC = re.compile(r"(?:/(?:[LSU]\d{1,2}|RT))*$")  # the place of an ASIC in a modular switch
HCA = re.compile(r"mlx\d_\d{1,2}|HCA-\d{1,2}|ibp\d{1,3}(?:s\d{1,2})?(?:f\d)?")
_MANAGED = "MF0;"
_ATTRIBUTE = 17  # octet of a request: the lower one of AttributeID
# octets of SystemImageGUID, NodeGUID, PortGUID (IBTA vol. 1, 14.2.5.3)
_GUIDS = (slice(4, 12), slice(12, 20), slice(20, 28))
_NODE_INFO = 40  # octets of NodeInfo
_STATE = 32  # octet of PortState in PortInfo (14.2.5.6)


class _Decoded(NamedTuple):
    """A recorded exchange; `data` is the attribute data of the reply, None without a good one."""

    request: bytes
    data: bytes | None
    error: str | None


def anonymized(answer: Answer, names: Names) -> Answer:
    """Return the rebuilt answer of one port (agent/helper/main.py, verb smp).

    Only the error "malformed" is left of an answer that does not follow the format.
    """
    port = {"device": names.text(answer["device"]), "port": answer["port"]}
    try:
        return port | _result(answer, names)
    except (Malformed, KeyError, TypeError, ValueError):
        return {**port, "exchanges": [], "error": "malformed", "text": None}


def _result(answer: Answer, names: Names) -> Answer:
    return {
        "exchanges": _exchanges(answer["exchanges"], names),
        "error": _reason(answer["error"]),
        "text": answer["text"] and names.text(answer["text"]),
    }


def _exchanges(exchanges: list[Answer], names: Names) -> list[Answer]:
    decoded = [_decoded(exchange) for exchange in exchanges]
    kind = _kind(decoded)
    return [_rebuilt(exchange, kind, names).as_json() for exchange in decoded]


def _decoded(exchange: Answer) -> _Decoded:
    request, error = bytes.fromhex(exchange["request"]), _reason(exchange["error"])
    smp.require_get(request)
    try:
        return _Decoded(request, _reply_data(exchange["reply"], request), error)
    except Malformed:
        return _Decoded(request, None, "malformed")


def _reply_data(reply: str | None, request: bytes) -> bytes | None:
    """Return the attribute data of a reply in hex; raises Malformed if it cannot be decoded."""
    if reply is None:
        return None
    data = smp.decode(bytes.fromhex(reply), request)
    if _is_node_info(request):
        smp.node_info(data)
    return data


def _is_node_info(request: bytes) -> bool:
    return request[_ATTRIBUTE] == Attribute.NODE_INFO


def _kind(exchanges: list[_Decoded]) -> str:
    """Return the kind of the described node: "switch", or "peer" if NodeInfo has another type."""
    for request, data, _ in exchanges:
        if data and _is_node_info(request):
            return "switch" if smp.node_info(data).node_type == "switch" else "peer"
    return "switch"


def _rebuilt(exchange: _Decoded, kind: str, names: Names) -> Exchange:
    request, data, error = exchange
    if data is None:
        return Exchange(request, None, error)
    return Exchange(request, _reply(request, _data(request[_ATTRIBUTE], data, kind, names)), error)


def _data(attribute: int, data: bytes, kind: str, names: Names) -> bytes:
    """Return the octets of an attribute up to the last that is kept."""
    if attribute == Attribute.NODE_INFO:
        return _node_info(data, names)
    if attribute == Attribute.NODE_DESCRIPTION:
        return _description(nodedesc.text(data), kind, names).encode()
    return bytes(_STATE) + bytes((data[_STATE] & 0x0F,))


def _node_info(data: bytes, names: Names) -> bytes:
    for octets in _GUIDS:
        data = data[: octets.start] + names.guid(data[octets]) + data[octets.stop :]
    return data[:_NODE_INFO]


def _description(description: str, kind: str, names: Names) -> str:
    if description.startswith(_MANAGED):
        return _MANAGED + _managed(description.removeprefix(_MANAGED), names)
    if not description or FACTORY.fullmatch(description):
        return description
    if nodedesc.switch_name(description) is None:
        return VENDOR
    return _chosen(description, kind, names)


def _chosen(description: str, kind: str, names: Names) -> str:
    """Replace a description that an administrator chose; the HCA of `host mlx5_0` is kept."""
    host, _, hca = description.partition(" ")
    if HCA.fullmatch(hca):
        return f"{names.peer(host, kind)} {hca}"
    return names.peer(description, kind)


def _managed(description: str, names: Names) -> str:
    """Replace the host name; keep model and ASIC (agent/infiniband/node_description.py)."""
    host, colon, place = description.rpartition(":")
    if not colon:
        return description and names.peer(description)
    return f"{host and names.peer(host)}:{_model(place)}"


def _model(place: str) -> str:
    """Return model and ASIC of `MQM9700/U1`; X instead of a model that may be a name."""
    model = place.partition("/")[0]
    return (model if MODEL.fullmatch(model) else "X") + _asic(place)


def _asic(place: str) -> str:
    found = ASIC.search(place)
    return found[0] if found else ""


def _reason(error: str | None) -> str | None:
    if error is not None and not CODE.fullmatch(error):
        raise Malformed("malformed error in a recorded answer")
    return error


def _reply(request: bytes, data: bytes) -> bytes:
    """Return the reply to a plain Get, without M_Key and with the permissive LID alone."""
    head = request[:3] + b"\x81\x80\x00" + request[6:64]
    return head + data.ljust(64, b"\0") + request[128:]
