"""Rebuilds recorded answers with replaced names, for an anonymized snapshot.

Invariants:
- a reply is rebuilt from the fields that the decoder uses (agent/infiniband/smp.py, sa.py), so
  M_Keys, SM_Keys, GID prefixes and, of an SMP, LIDs are left out;
- port numbers, port states, switch models and factory names are kept, GUIDs and names replaced;
- a name has the same replacement in a NodeDescription, an LLDP System Name and a Port Description.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from agent import node_description as nodedesc
from agent.errors import Malformed, Unavailable
from agent.infiniband import perf, sa, smp
from agent.infiniband.devices import recorded_reason
from agent.infiniband.smp import Attribute, Exchange
from agent.text import Json, natural

if TYPE_CHECKING:  # a package that imports this one
    from agent.snapshot.anonymize import Names

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
_ATTRIBUTE = 17  # octet of a request: the lower half of AttributeID
# octets of SystemImageGUID, NodeGUID, PortGUID (IBTA vol. 1, 14.2.5.3)
_GUIDS = (slice(4, 12), slice(12, 20), slice(20, 28))
_NODE_INFO = 40  # octets of NodeInfo
_NODE_TYPE, _SWITCH = 2, 2  # octet of NodeType in NodeInfo, and its value


Rebuild = Callable[[Json, "Names"], Json]  # of an entry: the fields that its verb has


def anonymized(entry: Json, names: Names, rebuild: Rebuild) -> Json:
    """Return the rebuilt entry of one port (agent/helper/main.py) by the `rebuild` of its verb.

    Only the error "malformed" is left of an entry that does not follow the format.
    """
    port = {"device": names.text(entry["device"]), "port": entry["port"]}
    try:
        return {**port, **rebuild(entry, names), **_failure(entry, names)}
    except (Malformed, KeyError, TypeError, ValueError):
        return {**port, "exchanges": [], "error": "malformed", "text": None}


def _failure(row: Json, names: Names) -> Json:
    error, text = row["error"], row["text"]
    return {"error": error and recorded_reason(error), "text": text and names.text(text)}


def by_perf(entry: Json, names: Names) -> Json:
    """Rebuild an entry of the verb perf: nothing but its counters."""
    readings = [
        {
            "time": float(reading["time"]),
            "near": _of_end(reading["near"], names, int(entry["port"])),
            "far": _of_end(reading["far"], names, int(entry["far_port"])),
        }
        for reading in entry.get("readings", ())
    ]
    return {"far_port": entry.get("far_port"), "readings": readings}


def _of_end(side: Json, names: Names, port: int) -> Json:
    """Rebuild what was read at one end; of a reply only the counters are kept."""
    failure = _failure(side, names)
    try:
        recorded = [Exchange.from_json(row) for row in side["exchanges"]]
        if failure["error"]:
            return {"exchanges": [], **failure}
        perf.replay(recorded, port)
        exchanges = [perf.rebuilt(exchange).as_json() for exchange in recorded]
    except (Malformed, Unavailable) as fault:
        return {"exchanges": [], "error": "malformed", "text": names.text(str(fault))}
    return {"exchanges": exchanges, **failure}


def by_smp(entry: Json, names: Names) -> Json:
    """Rebuild an entry of the verb smp."""
    recorded = map(Exchange.from_json, entry["exchanges"])
    exchanges = [_decoded(exchange, smp.require_get) for exchange in recorded]
    kind = "switch"  # of the described node
    for exchange in exchanges:
        if exchange.reply and exchange.request[_ATTRIBUTE] == Attribute.NODE_INFO:
            kind = "switch" if smp.node_info(exchange.reply).node_type == "switch" else "peer"
            break
    return {"exchanges": [_rebuilt(row, kind, names).as_json() for row in exchanges]}


def by_sa(entry: Json, names: Names) -> Json:
    """Rebuild an entry of the verbs sa and tiers, which describe no node but switches by SMPs."""
    exchanges = [Exchange.from_json(exchange) for exchange in entry["exchanges"]]
    smps = [_decoded(row, smp.require_routed_get) for row in exchanges if smp.is_smp(row.request)]
    # in the order of names, as in a table
    smps.sort(key=_order)
    hidden = {row.request: _rebuilt(row, "switch", names) for row in smps}
    rebuilt = (hidden.get(row.request) or _rebuilt_sa(row, names) for row in exchanges)
    return {"exchanges": [exchange.as_json() for exchange in rebuilt]}


def _order(decoded: Exchange) -> tuple[object, ...]:
    is_description = decoded.request[_ATTRIBUTE] == Attribute.NODE_DESCRIPTION
    return natural(nodedesc.text(decoded.reply)) if decoded.reply and is_description else ()


def _rebuilt_sa(exchange: Exchange, names: Names) -> Exchange:
    request = exchange.request
    sa.require_get_table(request)
    if exchange.reply is None:
        return exchange
    try:
        records = list(sa.decode(exchange.reply, request))
        if request[_ATTRIBUTE] == sa.RecordType.NODE_RECORD:
            # in the order of names, so that the first switch of a tier stays the first
            nodes = [(record, *sa.node_record(record)) for record in records]
            nodes.sort(key=lambda node: (natural(nodedesc.text(node[3])), node[2]))
            hidden = {}
            for record, lid, info, field in nodes:
                kind = "switch" if info[_NODE_TYPE] == _SWITCH else "peer"
                text = _description(nodedesc.text(field), kind, names).encode()[: len(field)]
                head = lid.to_bytes(2, "big") + b"\0\0" + _with_guids(info, names)
                hidden[record] = head + text.ljust(64, b"\0")
            records = [hidden[record] for record in records]
    except smp.PortUnavailable as refused:
        return Exchange(request, None, refused.reason)
    except Malformed:
        return Exchange(request, None, "malformed")
    return Exchange(request, sa.encode(request, records), exchange.error)


def _with_guids(info: bytes, names: Names) -> bytes:
    for octets in _GUIDS:
        info = info[: octets.start] + names.guid(info[octets]) + info[octets.stop :]
    return info[:_NODE_INFO]


def _decoded(exchange: Exchange, require: Callable[[bytes], object]) -> Exchange:
    """Return the exchange with attribute data in place of the reply; None without a valid one."""
    require(exchange.request)
    if exchange.reply is None:
        return exchange
    try:
        data = smp.decode(exchange.reply, exchange.request)
        if exchange.request[_ATTRIBUTE] == Attribute.NODE_INFO:
            smp.node_info(data)
    except Malformed:
        return exchange._replace(reply=None, error="malformed")
    return exchange._replace(reply=data)


def _rebuilt(decoded: Exchange, kind: str, names: Names) -> Exchange:
    """Return the exchange with the octets of its attribute up to the last that is kept.

    The reply is that to a plain Get, without M_Key and with the permissive LID alone.
    """
    request, data = decoded.request, decoded.reply
    if data is None:
        return decoded
    if request[_ATTRIBUTE] == Attribute.NODE_INFO:
        data = _with_guids(data, names)
    elif request[_ATTRIBUTE] == Attribute.NODE_DESCRIPTION:
        data = _description(nodedesc.text(data), kind, names).encode()
    else:
        data = bytes(smp.PORT_STATE) + bytes((smp.port_state(data),))
    # method GetResp, status with the D bit only
    head = request[:3] + b"\x81\x80\x00" + request[6:64]
    return decoded._replace(reply=head + data.ljust(64, b"\0") + request[128:])


def _description(description: str, kind: str, names: Names) -> str:
    """Replace the host name; keep model and ASIC (agent/node_description.py)."""
    if description.startswith(_MANAGED):
        host, colon, place = description.removeprefix(_MANAGED).rpartition(":")
        if not colon:
            return _MANAGED + (place and names.peer(place))
        model = place.partition("/")[0]
        model = model if MODEL.fullmatch(model) else "X"  # it may be a name
        asic = ASIC.search(place)
        return f"{_MANAGED}{host and names.peer(host)}:{model}{asic[0] if asic else ''}"
    if not description or FACTORY.fullmatch(description):
        return description
    if nodedesc.switch_name(description) is None:
        return VENDOR
    host, _, hca = description.partition(" ")
    if HCA.fullmatch(hca):  # `host mlx5_0`
        return f"{names.peer(host, kind)} {hca}"
    return names.peer(description, kind)
