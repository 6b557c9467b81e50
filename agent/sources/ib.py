"""The InfiniBand source: the neighbor of each backend port, by directed-route SMPs.

One hop needs neither a LID nor a subnet manager, so a port in INIT has a neighbor as well. A
multi-plane HCA does not send such packets itself; its SMI sub-device does (the first plane with a
link). agent/infiniband/smp.py decodes the answers; a helper process sends the packets, on all ports
at once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agent.errors import Malformed, Unavailable
from agent.infiniband.devices import by_port
from agent.model import Absent, Failed, Link, Neighbor, NeighborReason, Problem, Reading, Seen
from agent.sources.smi import is_smi_of
from agent.text import visible

if TYPE_CHECKING:
    from agent.host import Host
    from agent.model import IbNeighbor, PortRole

SOURCE = "ib"
Address = tuple[str, int]  # device, port
MAX_TEXT = 200  # characters of a problem's text
_REASON = re.compile(r"[a-z][a-z-]{0,31}")


def read(host: Host, ports: tuple[PortRole, ...]) -> Reading[tuple[Link, ...]]:
    """Query the neighbor of every InfiniBand backend port that has a link."""
    backend = [role for role in ports if role.backend and role.port.link_layer == "InfiniBand"]
    if not backend:
        return Reading(Absent("no InfiniBand backend port"))
    queried = {_address(role, ports) for role in backend if role.port.state != "DOWN"}
    try:
        answers = by_port(host.ask_smp(sorted(queried))) if queried else {}
    except (Unavailable, Malformed) as error:
        return Reading(Failed(str(error)))
    problems: list[Problem] = []
    links = tuple(_link(role, answers.get(_address(role, ports)), problems) for role in backend)
    return Reading(Seen(links), tuple(dict.fromkeys(problems)))


def _address(role: PortRole, ports: tuple[PortRole, ...]) -> Address:
    """Return the device and port that send the packets for a port."""
    for other in ports:
        if other.port.state != "DOWN" and is_smi_of(other.device, role.device):
            return other.device.name, other.port.number
    return role.device.name, role.port.number


def _link(role: PortRole, answer: dict[str, Any] | None, problems: list[Problem]) -> Link:
    netdev = role.port.netdev.name if role.port.netdev else None
    if role.port.state == "DOWN":
        return Link(role.interface, netdev, missing=NeighborReason.LINK_DOWN)
    try:
        return Link(role.interface, netdev, (_neighbor(_facts(answer)),))
    except Malformed as error:
        problems.append(Problem(SOURCE, role.interface, None, str(error)))
        return Link(role.interface, netdev, missing=NeighborReason.MALFORMED, hold=True)
    except Unavailable as error:
        if answer and answer.get("text"):
            problems.append(Problem(SOURCE, role.interface, None, _printable(answer["text"])))
        return Link(role.interface, netdev, missing=str(error), hold=True)


def _facts(answer: dict[str, Any] | None) -> IbNeighbor:
    """Decode the neighbor of a port's answer.

    Raises Unavailable with the reason why there is none, and Malformed.
    """
    if answer is None:
        raise Unavailable(NeighborReason.NOT_RECORDED)
    if answer.get("error"):
        raise Unavailable(_reason(answer["error"]))
    from agent.infiniband import smp  # an observation without answers does not load it

    try:
        exchanges = [
            smp.Exchange(
                bytes.fromhex(one["request"]),
                None if one["reply"] is None else bytes.fromhex(one["reply"]),
                one["error"] and _reason(one["error"]),
            )
            for one in answer["exchanges"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"a recorded exchange is malformed: {error}") from error
    return smp.replay(exchanges)


def _reason(error: object) -> str:
    """Return a recorded reason; raises Malformed if it is not a word, as in a foreign snapshot."""
    if not isinstance(error, str) or not _REASON.fullmatch(error):
        raise Malformed(f"a recorded reason is malformed: {_printable(error)}")
    return error


def _printable(text: object) -> str:
    return visible(text if isinstance(text, str) else repr(text), MAX_TEXT)


def _neighbor(facts: IbNeighbor) -> Neighbor:
    from agent.infiniband.node_description import switch_name

    name = switch_name(facts.node_description) if facts.node_description else None
    return Neighbor(name or facts.node_guid, str(facts.port), None, facts)
