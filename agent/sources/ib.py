"""The InfiniBand source: the neighbor of each backend port, by directed-route SMPs.

One hop needs neither a LID nor a subnet manager, so a port in INIT has a neighbor as well. A
multi-plane HCA does not send such packets itself; its SMI sub-device does (the first plane with a
link). agent/infiniband/smp.py decodes the answers; a helper process sends the packets, on all ports
at once. agent/infiniband/switch_names.py keeps the name of a node that does not give it now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.errors import Malformed, Unavailable
from agent.ids import CODE
from agent.infiniband.devices import by_port
from agent.model import Absent, Failed, Link, Neighbor, Problem, Reading, Seen
from agent.reasons import NeighborReason
from agent.sources.roles import is_smi_of
from agent.text import visible

if TYPE_CHECKING:
    from agent.host import Host
    from agent.infiniband.smp import Exchange
    from agent.infiniband.switch_names import Name
    from agent.model import IbNeighbor, PortRole

    Found = tuple[Link, Problem | None]
    Answer = dict[str, Any]  # of one port (agent/infiniband/devices.py)

SOURCE = "ib"
Address = tuple[str, int]  # device, port
MAX_TEXT = 200  # characters of a problem's text


def read(host: Host, ports: tuple[PortRole, ...]) -> Reading[tuple[Link, ...]]:
    """Query the neighbor of every InfiniBand backend port that has a link."""
    senders = [(role, _sender(role, ports)) for role in ports if _is_infiniband_backend(role)]
    if not senders:
        return Reading(Absent("no InfiniBand backend port"))
    try:
        answers = _query(host, {sender for role, sender in senders if not _is_down(role)})
    except (Unavailable, Malformed) as error:
        return Reading(Failed(str(error)))
    found = [_link(host, role, sender, answers.get(sender)) for role, sender in senders]
    return _reading(found, _common_text(answers))


def _query(host: Host, senders: set[Address]) -> dict[Address, Answer]:
    """Query the ports at the far end of these; raises Unavailable and Malformed."""
    return by_port(host.ask_smp(sorted(senders))) if senders else {}


def _common_text(answers: dict[Address, Answer]) -> str | None:
    """Return the text of all answers if it is the same; None for a single port."""
    first, *others = [answer.get("text") for answer in answers.values()] or [None]
    is_common = bool(first and others) and all(text == first for text in others)
    return _printable(first) if is_common else None


def _reading(found: list[Found], common: str | None) -> Reading[tuple[Link, ...]]:
    """Return the links with their problems, each of these once.

    A problem of all ports, such as a missing library, is one of the source.
    """
    problems = dict.fromkeys(
        problem._replace(subject=SOURCE) if problem.text == common else problem
        for _, problem in found
        if problem
    )
    return Reading(Seen(tuple(link for link, _ in found)), tuple(problems))


def _is_infiniband_backend(role: PortRole) -> bool:
    return role.backend and role.port.link_layer == "InfiniBand"


def _is_down(role: PortRole) -> bool:
    return role.port.state == "DOWN"


def _sender(role: PortRole, ports: tuple[PortRole, ...]) -> Address:
    """Return the device and port that send the packets for a port."""
    others = (one for one in ports if is_smi_of(one.device, role.device) and not _is_down(one))
    sender = next(others, role)
    return sender.device.name, sender.port.number


def _link(host: Host, role: PortRole, sender: Address, answer: Answer | None) -> Found:
    """Return the neighbor of a port, or the reason why there is none and its problem."""
    link = Link(role.interface, role.port.netdev.name if role.port.netdev else None)
    if _is_down(role):
        return link._replace(missing=NeighborReason.LINK_DOWN), None
    try:
        facts = _facts(answer)
    except Malformed as error:
        missing = link._replace(missing=NeighborReason.MALFORMED, hold=True)
        return missing, Problem(SOURCE, role.interface, None, str(error))
    except Unavailable as error:
        return link._replace(missing=str(error), hold=True), _problem(role, answer)
    return _named(link, facts, _name(host, link, facts, (sender, _time(host, answer))))


def _named(link: Link, facts: IbNeighbor, name: Name) -> Found:
    """Return the link with its neighbor, or without one as long as that has no name."""
    problem = Problem(SOURCE, link.interface, None, name.problem) if name.problem else None
    if name.device is None:
        return link._replace(missing=NeighborReason.NO_DESCRIPTION, hold=True), problem
    neighbor = Neighbor(name.device, str(facts.port), None, facts, None, name.last_description)
    return link._replace(neighbors=(neighbor,)), problem


def _problem(role: PortRole, answer: Answer | None) -> Problem | None:
    """Return the text of an answer without a neighbor; None if it has no text."""
    if answer and answer.get("text"):
        return Problem(SOURCE, role.interface, None, _printable(answer["text"]))
    return None


def _facts(answer: Answer | None) -> IbNeighbor:
    """Decode the neighbor of a port's answer.

    Raises Unavailable with the reason why there is none, and Malformed.
    """
    if answer is None:
        raise Unavailable(NeighborReason.NOT_RECORDED)
    if answer.get("error"):
        raise Unavailable(_reason(answer["error"]))
    from agent.infiniband import smp  # an observation without answers does not load it

    try:
        exchanges = [_exchange(one) for one in answer["exchanges"]]
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"a recorded exchange is malformed: {error}") from error
    return smp.replay(exchanges)


def _exchange(one: Answer) -> Exchange:
    """Decode one request and its reply, or the reason why there is none."""
    from agent.infiniband.smp import Exchange

    request = bytes.fromhex(one["request"])
    reply = None if one["reply"] is None else bytes.fromhex(one["reply"])
    return Exchange(request, reply, one["error"] and _reason(one["error"]))


def _reason(error: object) -> str:
    """Return a recorded reason; raises Malformed if it is not a word, as in a foreign snapshot."""
    if not isinstance(error, str) or not CODE.fullmatch(error):
        raise Malformed(f"a recorded reason is malformed: {_printable(error)}")
    return error


def _printable(text: object) -> str:
    return visible(text if isinstance(text, str) else repr(text), MAX_TEXT)


def _time(host: Host, answer: Answer | None) -> float:
    """Return the time of an answer that a poller kept; now for any other, as of a snapshot."""
    time = answer.get("answered") if answer else None
    return time if isinstance(time, float) else host.clock()


def _name(host: Host, link: Link, facts: IbNeighbor, answered: tuple[Address, float]) -> Name:
    """Return the name of the node that answered a port, by the answers so far."""
    from agent.infiniband.switch_names import Answered, SwitchNames

    names = host.switch_names or SwitchNames()
    return names.name(link.interface, facts, Answered(*answered))


def node_label(guid: str, description: str | None) -> str:
    """Return the text that a node is labeled by."""
    from agent.infiniband.node_description import switch_name

    return (switch_name(description) if description else None) or guid
