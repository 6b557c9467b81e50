"""The InfiniBand source: the neighbor of each backend port, by directed-route SMPs.

One hop needs neither a LID nor a subnet manager, so a port in INIT has a neighbor as well. A
multi-plane HCA does not send such packets itself; its SMI sub-device does (the first plane with a
link). agent/infiniband/smp.py decodes the answers; a helper process sends the packets, on all ports
at once. agent/infiniband/switch_names.py keeps the name of a node that does not give it now.
"""

from __future__ import annotations

from agent.errors import Malformed, Unavailable
from agent.host import Host
from agent.ids import CODE
from agent.infiniband.devices import Address, Answer, by_port
from agent.infiniband.node_description import switch_name
from agent.infiniband.switch_names import Answered, SwitchNames
from agent.model import Absent, Failed, IbNeighbor, Link, Neighbor, PortRole, Problem, Reading, Seen
from agent.reasons import NeighborReason
from agent.sources.drops import is_smi_of
from agent.text import visible

SOURCE = "ib"
MAX_TEXT = 200  # characters of a problem's text


def read(host: Host, ports: tuple[PortRole, ...]) -> Reading[tuple[Link, ...]]:
    """Query the neighbor of every InfiniBand backend port that has a link."""
    senders = [
        (role, _sender(role, ports))
        for role in ports
        if role.backend and role.port.link_layer == "InfiniBand"
    ]
    if not senders:
        return Reading(Absent("no InfiniBand backend port"))
    asked = sorted({sender for role, sender in senders if not _is_down(role)})
    try:
        answers = by_port(host.ask_smp(asked)) if asked else {}
    except (Unavailable, Malformed) as error:
        return Reading(Failed(str(error)))
    common = _common_text(answers)
    links = []
    problems: dict[Problem, None] = {}  # each once
    for role, sender in senders:
        link, text = _link(host, role, sender, answers.get(sender))
        links.append(link)
        if text:
            subject = SOURCE if text == common else role.interface
            problems[Problem(SOURCE, subject, None, text)] = None
    return Reading(Seen(tuple(links)), tuple(problems))


def _is_down(role: PortRole) -> bool:
    return role.port.state == "DOWN"


def _sender(role: PortRole, ports: tuple[PortRole, ...]) -> Address:
    """Return the device and port that send the packets for a port."""
    others = (one for one in ports if is_smi_of(one.device, role.device) and not _is_down(one))
    sender = next(others, role)
    return sender.device.name, sender.port.number


def _common_text(answers: dict[Address, Answer]) -> str | None:
    """Return the text of all answers if it is the same; None for a single port.

    A problem of all ports, such as a missing library, is one of the source.
    """
    first, *others = [answer.get("text") for answer in answers.values()] or [None]
    is_common = bool(first and others) and all(text == first for text in others)
    return _printable(first) if is_common else None


def _link(
    host: Host, role: PortRole, sender: Address, answer: Answer | None
) -> tuple[Link, str | None]:
    """Return the neighbor of a port, or the reason why there is none; and its problem."""
    link = Link(role.interface, role.port.netdev.name if role.port.netdev else None)
    if _is_down(role):
        return link._replace(missing=NeighborReason.LINK_DOWN), None
    try:
        facts = _facts(answer)
    except Malformed as error:
        return link._replace(missing=NeighborReason.MALFORMED, hold=True), str(error)
    except Unavailable as error:
        text = answer.get("text") if answer else None
        return link._replace(missing=str(error), hold=True), text and _printable(text)
    # A poller keeps the time of an answer; it is now for any other, as of a snapshot.
    time = answer.get("answered") if answer else None
    answered = Answered(sender, time if isinstance(time, float) else host.clock())
    name = (host.switch_names or SwitchNames()).name(role.interface, facts, answered)
    if name.device is None:
        return link._replace(missing=NeighborReason.NO_DESCRIPTION, hold=True), name.problem
    neighbor = Neighbor(name.device, str(facts.port), None, facts, None, name.last_description)
    return link._replace(neighbors=(neighbor,)), name.problem


def _facts(answer: Answer | None) -> IbNeighbor:
    """Decode the neighbor of a port's answer.

    Raises Unavailable with the reason why there is none, and Malformed.
    """
    if answer is None:
        raise Unavailable(NeighborReason.NOT_RECORDED)
    if answer.get("error"):
        raise Unavailable(_reason(answer["error"]))
    from agent.infiniband import smp  # an observation without answers does not load it

    exchanges = []
    try:
        for one in answer["exchanges"]:
            request = bytes.fromhex(one["request"])
            reply = None if one["reply"] is None else bytes.fromhex(one["reply"])
            reason = one["error"] and _reason(one["error"])
            exchanges.append(smp.Exchange(request, reply, reason))
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"a recorded exchange is malformed: {error}") from error
    return smp.replay(exchanges)


def _reason(error: object) -> str:
    """Return a recorded reason; raises Malformed if it is not a word, as in a foreign snapshot."""
    if not isinstance(error, str) or not CODE.fullmatch(error):
        raise Malformed(f"a recorded reason is malformed: {_printable(error)}")
    return error


def _printable(text: object) -> str:
    return visible(text if isinstance(text, str) else repr(text), MAX_TEXT)


def node_label(guid: str, description: str | None) -> str:
    """Return the text that a node is labeled by."""
    return (switch_name(description) if description else None) or guid
