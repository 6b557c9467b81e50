"""The InfiniBand source: each backend port asks the node at its far end who it is, by directed-route SMPs.

One hop needs neither a LID nor a subnet manager, so a port in INIT has a neighbour as well. A multi-plane HCA does not
take such packets itself; the SMI sub-device beside it does (its first plane with a link). What the answers mean is in
agent/infiniband/smp.py; the packets are sent by a helper, all ports at once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agent.errors import Malformed, Unavailable
from agent.model import Absent, Failed, Link, Neighbor, Problem, Reading, Seen
from agent.sources.backend import is_smi_of

if TYPE_CHECKING:
    from agent.host import Host
    from agent.model import IbNeighbor, PortRole

SOURCE = "ib"
Address = tuple[str, int]  # device, port
LONGEST_QUOTE = 200  # characters
_REASON = re.compile(r"[a-z][a-z-]{0,31}")


def read(host: Host, ports: tuple[PortRole, ...]) -> Reading[tuple[Link, ...]]:
    """Ask every InfiniBand backend port that has a link."""
    backend = [role for role in ports if role.backend and role.port.link_layer == "InfiniBand"]
    if not backend:
        return Reading(Absent("no InfiniBand backend port"))
    asked = {role.interface: _address(role, ports) for role in backend if role.port.state != "DOWN"}
    try:
        answers = _answers(host, sorted(set(asked.values())))
    except (Unavailable, Malformed) as error:
        return Reading(Failed(str(error)))
    problems: list[Problem] = []
    links = tuple(_link(role, answers.get(asked.get(role.interface)), problems) for role in backend)
    return Reading(Seen(links), tuple(dict.fromkeys(problems)))


def _address(role: PortRole, ports: tuple[PortRole, ...]) -> Address:
    """The device and port that take the packets for a port."""
    for other in ports:
        if other.port.state != "DOWN" and is_smi_of(other.device, role.device):
            return other.device.name, other.port.number
    return role.device.name, role.port.number


def _answers(host: Host, addresses: list[Address]) -> dict[Address | None, dict[str, Any]]:
    if not addresses:
        return {}
    answer = host.ask_smp(addresses)
    try:
        return {(one["device"], one["port"]): dict(one) for one in answer["ports"]}
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(
            f"the answer about InfiniBand neighbours makes no sense: {error!r}"
        ) from error


def _link(role: PortRole, answer: dict[str, Any] | None, problems: list[Problem]) -> Link:
    netdev = role.port.netdev.name if role.port.netdev else None
    if role.port.state == "DOWN":
        return Link(role.interface, netdev, missing="link-down")
    try:
        return Link(role.interface, netdev, (_neighbor(_told(answer)),))
    except Malformed as error:
        problems.append(Problem(SOURCE, role.interface, None, str(error)))
        return Link(role.interface, netdev, missing="malformed", hold=True)
    except Unavailable as error:
        if answer and answer.get("text"):
            problems.append(Problem(SOURCE, role.interface, None, _shown(answer["text"])))
        return Link(role.interface, netdev, missing=str(error), hold=True)


def _told(answer: dict[str, Any] | None) -> IbNeighbor:
    """The neighbour in a helper's answer; Unavailable's text is the word why there is none."""
    if answer is None:
        raise Unavailable("not-recorded")
    if answer.get("error"):
        raise Unavailable(_word(answer["error"]))
    from agent.infiniband import smp  # a look without answers starts without it

    try:
        exchanges = [
            smp.Exchange(
                bytes.fromhex(one["request"]),
                _bytes(one["reply"]),
                one["error"] and _word(one["error"]),
            )
            for one in answer["exchanges"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"a recorded exchange makes no sense: {error}") from error
    return smp.replay(exchanges)


def _word(error: object) -> str:
    """A reason becomes a word of the report, and snapshots come from strangers."""
    if not isinstance(error, str) or not _REASON.fullmatch(error):
        raise Malformed(f"a recorded reason makes no sense: {_shown(error)}")
    return error


def _shown(text: object) -> str:
    return (text if isinstance(text, str) and text.isprintable() else ascii(text))[:LONGEST_QUOTE]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _neighbor(told: IbNeighbor) -> Neighbor:
    from agent.infiniband import node_description as nodedesc

    name = nodedesc.switch_name(told.node_description) if told.node_description else None
    return Neighbor(name or told.node_guid, str(told.port), None, told)
