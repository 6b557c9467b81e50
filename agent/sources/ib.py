"""The InfiniBand source: the neighbor of each backend port, by SMPs or the subnet administrator.

A directed-route SMP over one hop needs neither a LID nor a subnet manager, so a port in INIT has a
neighbor as well. A multi-plane HCA does not send such packets itself; its SMI sub-device does (the
first plane with a link). agent/infiniband/smp.py decodes the answers; a helper process sends the
packets, on all ports at once. agent/infiniband/switch_names.py keeps the name of a node that does
not give it now.

The subnet administrator (SA) is asked for a port whose SMPs were refused or not answered, and only
then is its place in the subnet read. agent/infiniband/sa.py decodes the answers. It is asked about
the switches above the leaves, too (`explore`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from agent.errors import Malformed, Pending, Unavailable
from agent.host import Host
from agent.infiniband.devices import (
    DEFAULT_PREFIX,
    LAST_UNICAST_LID,
    Address,
    AskingPort,
    SubnetPort,
    by_port,
    is_unasked,
    printable,
    recorded_reason,
)
from agent.infiniband.switch_names import Answered, SwitchNames
from agent.model import Absent, Failed, IbNeighbor, Link, Neighbor, PortRole, Problem, Reading, Seen
from agent.reasons import NeighborReason
from agent.sources.cards import is_smi_of
from agent.sysfs import parse
from agent.sysfs.reader import Reader, Root
from agent.sysfs.worker import DeviceReaders
from agent.text import Json

if TYPE_CHECKING:  # it imports the sources; an observation without --tiers does not load the other
    from agent.infiniband.exploration import Exploration
    from agent.sources.observe import Memories

SOURCE, TIERS = "ib", "tiers"
CLASS = "sys/class/infiniband"
PKEYS = 8  # entries of the P_Key table that are searched for a full member
# The reasons for which SMPs may fail where the SA answers; REFUSED has no exchange.
UNANSWERED = frozenset(
    {NeighborReason.NO_ANSWER, NeighborReason.SEND_FAILED, NeighborReason.MALFORMED}
)
SA_REASONS = {NeighborReason.NO_ANSWER.value: NeighborReason.SA_NO_ANSWER}
NO_LID = "its LID was not recorded (`capture --tiers` does)"
OF_LIMITED = frozenset({NeighborReason.SA_NO_ANSWER, NeighborReason.SA_NO_RECORD})


def read(host: Host, ports: tuple[PortRole, ...], memories: Memories) -> Reading[tuple[Link, ...]]:
    """Query the neighbor of every InfiniBand backend port that has a link."""
    senders = [
        (role, sender_of(role, ports))
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
    asked_sa, sa_problems = _ask_sa(host, memories.subnet_readers, senders, answers)
    # A problem of all ports, such as a missing library, is one of the source.
    first, *others = [answer.get("text") for answer in answers.values()] or [None]
    common = (
        printable(first) if first and others and all(text == first for text in others) else None
    )
    links = []
    problems: dict[Problem, None] = dict.fromkeys(sa_problems)  # each once
    for role, sender in senders:
        second = asked_sa.get((role.device.name, role.port.number))
        queried = answers.get(sender), second
        link, text = _link(host, memories.switch_names, role, sender, queried)
        links.append(link)
        if text:
            subject = SOURCE if text == common else role.interface
            problems[Problem(SOURCE, subject, None, text)] = None
    return Reading(Seen(tuple(links)), tuple(problems))


def sender_of(role: PortRole, ports: tuple[PortRole, ...]) -> Address:
    """Return the device and port that send the SMPs of a port."""
    smis = (port for port in ports if is_smi_of(port.device, role.device))
    sending = next((smi for smi in smis if not _is_down(smi)), role)
    return sending.device.name, sending.port.number


def _is_down(role: PortRole) -> bool:
    return role.port.state == "DOWN"


def _ask_sa(
    host: Host,
    readers: DeviceReaders,
    senders: list[tuple[PortRole, Address]],
    smps: Mapping[Address, Json],
) -> tuple[dict[Address, Json], list[Problem]]:
    """Return the entries of the SA for the ports that are up and whose SMPs failed.

    Not if none could be tried so far. An entry has an `error` where the SA cannot be asked.
    """
    failed = []
    for role, sender in senders:
        entry = smps.get(sender, {})
        error = str(entry.get("error"))
        is_silent = error in UNANSWERED and bool(entry.get("exchanges"))
        if not _is_down(role) and (is_silent or error == NeighborReason.REFUSED):
            failed.append((role, error))
    places, faults = subnet_places(host, readers, [role for role, _ in failed])
    entries: dict[Address, Json] = {}
    asked = []
    for role, smp_reason in failed:
        address = role.device.name, role.port.number
        place = places.get(address)
        if place is None or place.lid is None or place.sm_lid is None:
            continue
        reason = place.fault(role.port.state)
        entries[address] = {"error": reason, "is_limited": place.is_limited}
        if reason is None:
            # a virtual port has no queue pair 0
            may_be_virtual = smp_reason == NeighborReason.REFUSED
            asked.append(place.port(address, may_be_virtual=may_be_virtual))
    answers: dict[Address, Json] = {}
    try:
        answers = by_port(host.ask_sa(asked)) if asked else {}
    except (Unavailable, Malformed) as error:
        faults.append(Problem(SOURCE, SOURCE, None, str(error)))
    for port in asked:
        address = port.device, port.number
        if answer := answers.get(address):
            entries[address] |= answer
        else:
            del entries[address]
    return entries, faults


def subnet_places(
    host: Host, readers: DeviceReaders, ports: Iterable[PortRole]
) -> tuple[dict[Address, SubnetPlace], list[Problem]]:
    """Read the places of ports in their subnets; a device that blocks has none."""
    places: dict[Address, SubnetPlace] = {}
    faults: list[Problem] = []
    by_device: defaultdict[str, list[int]] = defaultdict(list)
    for role in ports:
        by_device[role.device.name].append(role.port.number)
    jobs = {name: partial(_places, host.root, name, of) for name, of in by_device.items()}
    readers.refresh()
    for name, (of_ports, problems) in readers.read(jobs, host.deadline).items():
        places |= {(name, number): place for number, place in of_ports.items()}
        faults += problems
    return places, faults


class SubnetPlace(NamedTuple):
    """The place of a port in the subnet, /sys/class/infiniband/{device}/ports/{number}."""

    lid: int | None  # lid; None: no such file, as in a snapshot of a port that asked no SA
    sm_lid: int | None  # sm_lid; 0 if no subnet manager has configured the port
    sm_sl: int  # sm_sl
    pkey_index: int  # of pkeys/: the first full member, or 0
    is_limited: bool  # none is a full member
    subnet_prefix: int  # gids/0, upper half

    def fault(self, state: str | None) -> NeighborReason | None:
        """Return the reason why the port cannot ask the SA. Only an ACTIVE port sends on QP1."""
        if state not in ("ACTIVE", None) or not 0 < (self.sm_lid or 0) <= LAST_UNICAST_LID:
            return NeighborReason.NO_SM
        if not 0 < (self.lid or 0) <= LAST_UNICAST_LID:
            return NeighborReason.NO_LID
        return None

    def port(self, address: Address, *, may_be_virtual: bool) -> SubnetPort:
        """Return a port without fault as it asks the SA."""
        prefix = self.subnet_prefix if may_be_virtual else None
        lids = self.lid or 0, self.sm_lid or 0
        return SubnetPort(*address, *lids, self.sm_sl, self.pkey_index, prefix)


def _places(
    root: Root, device: str, numbers: list[int]
) -> tuple[dict[int, SubnetPlace], list[Problem]]:
    """Read the places of a device's ports: the job of a worker, since a read may block."""
    reader, places = Reader(root, SOURCE), {}
    with suppress(Unavailable):  # the source of the RDMA devices reports it
        for number in numbers:
            path = f"{CLASS}/{device}/ports/{number}"
            lid, sm_lid, sm_sl = (
                reader.value(f"{path}/{name}", parse.number) for name in ("lid", "sm_lid", "sm_sl")
            )
            index, is_limited = 0, False
            # bit 15 of a P_Key is full membership (IBTA vol. 1, 10.9.1.1); 0 is no P_Key
            for entry in range(PKEYS if sm_lid else 0):
                pkey = reader.value(f"{path}/pkeys/{entry}", parse.number)
                if pkey is None or pkey & 0x8000:
                    index, is_limited = (entry, False) if pkey else (index, is_limited)
                    break
                is_limited = is_limited or bool(pkey)
            prefix = reader.value(f"{path}/gids/0", parse.gid_prefix) or DEFAULT_PREFIX
            places[number] = SubnetPlace(lid, sm_lid, sm_sl or 0, index, is_limited, prefix)
    return places, reader.problems


def _link(
    host: Host,
    names: SwitchNames,
    role: PortRole,
    sender: Address,
    queried: tuple[Json | None, Json | None],
) -> tuple[Link, str | None]:
    """Return the neighbor of a port, or the reason why there is none; and its problem.

    `queried` are the entries of the SMPs and of the SA. The reason of the SA is that of the port,
    but that no subnet manager can be asked explains no SMP that was sent and not answered.
    """
    link = Link(role.interface, role.port.netdev.name if role.port.netdev else None)
    if _is_down(role):
        return link._replace(missing=NeighborReason.LINK_DOWN), None
    answer, second = queried
    facts, reason, text = _facts(answer)
    is_new = any(entry is not None and is_unasked(entry) for entry in queried)
    if facts is None and second and not is_unasked(second):
        facts, second_reason, second_text = _facts(second, is_sa=True)
        if facts:
            sender, answer = (role.device.name, role.port.number), second
        elif second_reason != NeighborReason.NO_SM or reason == NeighborReason.REFUSED:
            reason, text = second_reason, second_text or text
    if facts is None:
        return link._replace(missing=reason, hold=True, is_unasked=is_new), text
    # A poller keeps the time of an answer; it is now for any other, as of a snapshot.
    time = answer.get("answered") if answer else None
    answered = Answered(sender, time if isinstance(time, float) else host.clock())
    name = names.name(role.interface, facts, answered)
    neighbor = Neighbor(name.device, str(facts.port), None, facts, None, name.last_description)
    return link._replace(neighbors=(neighbor,)), name.problem


def _facts(
    answer: Json | None, *, is_sa: bool = False
) -> tuple[IbNeighbor | None, str | None, str | None]:
    """Return the neighbor of a port's entry; if none, the reason and its text for operators."""
    if answer is None:
        return None, NeighborReason.NOT_RECORDED, None
    try:
        if answer.get("error"):
            word = recorded_reason(answer["error"])
            if is_sa:
                word = SA_REASONS.get(word, word)
                if answer.get("is_limited") and word in OF_LIMITED:
                    word = NeighborReason.LIMITED_PKEY
            text = answer.get("text")
            return None, word, text and printable(text)
        from agent.infiniband import smp  # an observation without answers does not load it

        try:
            exchanges = [smp.Exchange.from_json(document) for document in answer["exchanges"]]
        except (KeyError, TypeError) as error:
            return None, NeighborReason.MALFORMED, f"a recorded exchange is malformed: {error}"
        replay = smp.replay
        if is_sa:
            from agent.infiniband import sa

            replay = sa.replay
        return replay(exchanges), None, None
    except Malformed as error:
        return None, NeighborReason.MALFORMED, str(error)
    except Unavailable as error:
        return None, str(getattr(error, "reason", error)), None


def explore(
    host: Host,
    ports: tuple[PortRole, ...],
    memories: Memories,
    links: Seen[tuple[Link, ...]] | Absent | Failed,
) -> Reading[Exploration]:
    """Explore the switches above the leaves (--tiers); `links` are those of the source.

    Each ACTIVE port that has a switch at its far end can ask the administrator of its subnet, and
    agent/infiniband/exploration.py decides which do; the switch of one that cannot is a leaf all
    the same.
    """
    if not isinstance(links, Seen):
        return Reading(links)
    leaves = {
        link.interface: facts
        for link in links.value
        for facts in (neighbor.facts for neighbor in link.neighbors[:1])
        if isinstance(facts, IbNeighbor) and facts.node_type == "switch"
    }
    roles = [role for role in ports if role.interface in leaves]
    if host.explore is None or not roles:
        return Reading(Absent("no InfiniBand backend port has a switch at its far end"))
    asking, faults, problems = _asking(host, memories.subnet_readers, roles, leaves, ports)
    try:
        exploration = host.explore(asking, None, {})
    except (Malformed, Unavailable) as error:
        can_ask = any(port for port, _ in asking)
        text = str(error) if can_ask else next(iter(faults.values()))
        is_pending = can_ask and isinstance(error, Pending)
        return Reading(Failed(text, is_pending), tuple(problems))
    unexplored = (text for leaf, text in faults.items() if leaf not in exploration.tiers.leaves)
    problems += [Problem(TIERS, TIERS, None, text) for text in (*unexplored, *exploration.faults)]
    return Reading(Seen(exploration), tuple(problems))


def _asking(
    host: Host,
    readers: DeviceReaders,
    roles: list[PortRole],
    leaves: dict[str, IbNeighbor],
    ports: tuple[PortRole, ...],
) -> tuple[list[AskingPort], dict[str, str], list[Problem]]:
    """Return each port with its leaf, and by leaf why its port cannot ask."""
    places, problems = subnet_places(host, readers, roles)
    asking: list[AskingPort] = []
    faults: dict[str, str] = {}
    for role in roles:
        address, leaf = (role.device.name, role.port.number), leaves[role.interface]
        place, port = places.get(address), None
        fault = place.fault(role.port.state) if place else None
        text = fault.text if fault else "its LID could not be read"
        if place and place.lid is None:
            text = NO_LID
        elif place and not fault:  # one that does not send SMPs may be a virtual port
            is_virtual = leaf.via == "sa"
            port = place.port(address, may_be_virtual=is_virtual)
            port = port._replace(sender=None if is_virtual else sender_of(role, ports))
        if port is None:
            faults[leaf.node_guid] = f"{role.interface}: {text}"
        asking.append((port, leaf.node_guid))
    return asking, faults, problems
