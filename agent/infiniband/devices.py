"""Query ports so that a device that blocks costs its own ports only.

libibumad opens devices one after another, so one umad_open_port() that blocks in the kernel holds
up all ports of the process that calls it.

Invariants:
- One process queries all ports as long as every device answers: its start costs more than a round.
- If that process is late or dies, each of its devices is queried in a process of its own, at most
  MAX_PROCESSES at a time; one at a time for the subnet administrator.
- A device whose own process fails is suspect. It is left out of the common process and queried in
  its own until that answers, so the next round of the others is not late again.

The ports of a multi-plane HCA have another device that sends their SMPs, if it was made
(`without_smi`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any, Generic, NamedTuple, Self, TypeVar

from agent.errors import Malformed, Unavailable
from agent.grouped import grouped
from agent.ids import CODE
from agent.model import Observation, PortRole, Problem, Seen
from agent.reasons import NeighborReason
from agent.text import Json, listed, visible

SOURCE = "ib"
SMI_HCAS = frozenset({"15b3:1023", "15b3:1025"})  # ConnectX-8 and -9: several planes
MAKE_SMI = "rdma dev add smi1 type SMI parent"
Address = tuple[str, int]  # device, port


class SubnetPort(NamedTuple):
    """A port that asks the subnet administrator, and its place in the subnet (sysfs)."""

    device: str
    number: int
    lid: int  # lid: the base LID
    sm_lid: int  # sm_lid: the LID of the subnet manager, whose QP1 is the SA
    sm_sl: int  # sm_sl: the service level to it
    pkey_index: int  # of pkeys/: a partition with full membership, if there is one
    subnet_prefix: int | None = None  # gids/0, upper half; None: no global route may be needed
    sender: Address | None = None  # sends its SMPs, where the SA refuses; None: it does not ask so

    @property
    def address(self) -> Address:
        """The device and the number of the port."""
        return self.device, self.number

    @property
    def name(self) -> str:
        """The port as errors name it."""
        return f"{self.device} port {self.number}"

    @classmethod
    def of(cls, row: Sequence[Any]) -> Self:
        """Return the port of a row of JSON."""
        port = cls(*row)
        return port._replace(sender=(port.sender[0], port.sender[1])) if port.sender else port


class CounterPort(NamedTuple):
    """A port whose link's counters are read at both ends."""

    device: str
    number: int
    sender: Address  # sends its SMPs
    far_port: int  # number of the far end's port
    far_lid: int | None = None  # None: the far end is asked for it, by an SMP
    again: float = 0.0  # seconds after which a port with errors is read once more; 0: it is not
    far_guid: str = ""  # node GUID of the far end: another one has other counters


# a port, None if it cannot ask, and the node GUID of the switch at its far end
AskingPort = tuple[SubnetPort | None, str]

P = TypeVar("P", bound="tuple[Any, ...]")  # an Address or a SubnetPort
PortGroup = tuple[P, ...]  # the ports that one process queries
Entries = dict[Address, Json]  # of ports in an answer

MAX_PROCESSES = 4
MAX_TEXT = 200  # characters of a text for operators
# seconds after the start in which the nodes of a subnet ask its administrator, at most
SA_SPREAD = 3600.0
SA_PORT_LIMIT = 4.0  # seconds for all questions about one port
LAST_UNICAST_LID = 0xBFFF  # IBTA vol. 1, 4.1.1
AGGREGATION_NODE = 0xCF09  # DeviceID of the CA inside a switch that reduces for SHARP
DEFAULT_PREFIX = 0xFE80 << 48  # of a subnet, 4.1.1


class DeviceQueries(Generic[P]):
    """Host.ask_smp or ask_sa over `query`, which runs one process for a group of ports."""

    def __init__(
        self, query: Callable[[PortGroup[P]], Json], processes: int = MAX_PROCESSES
    ) -> None:
        self._query = query
        self._processes = processes
        self._suspects: set[str] = set()

    def __call__(self, ports: Sequence[P]) -> Json:
        """Query ports; return {"ports": [ENTRY, ...], "failed": [[device, number], ...]}.

        An ENTRY is that of the SMP helper (agent/helper/main.py). "failed" lists the ports whose
        process was late or died; their entries are `unanswered`. Raises Unavailable if all
        processes failed.
        """
        common = tuple(port for port in ports if address_of(port)[0] not in self._suspects)
        suspects = _by_device(port for port in ports if address_of(port)[0] in self._suspects)
        outcomes = self._run([common, *suspects] if common else suspects)
        # the common process has failed: query each of its devices in a process of its own
        if isinstance(outcomes.get(common), Unavailable) and len(_by_device(common)) > 1:
            del outcomes[common]
            outcomes |= self._run(_by_device(common))
        entries: Entries = {}
        failures: dict[PortGroup[P], Unavailable] = {}
        for group, outcome in outcomes.items():
            addresses = [address_of(port) for port in group]
            devices = {device for device, _ in addresses}
            if isinstance(outcome, Unavailable):
                self._suspects |= devices
                failures[group] = outcome
                entries |= {address: unanswered(address, str(outcome)) for address in addresses}
            else:
                self._suspects -= devices
                entries |= outcome
        if failures and len(failures) == len(outcomes):
            raise next(iter(failures.values()))
        failed = [list(address_of(port)) for group in failures for port in group]
        asked = map(address_of, ports)
        return {"ports": [entries[port] for port in asked if port in entries], "failed": failed}

    def _run(self, groups: list[PortGroup[P]]) -> dict[PortGroup[P], Entries | Unavailable]:
        """Query groups, a limited number at a time; the calling thread takes part."""
        waiting = deque(groups)
        outcomes: dict[PortGroup[P], Entries | Unavailable] = {}

        def query_all() -> None:
            while True:
                try:
                    group = waiting.popleft()  # several threads may do so at the same time
                except IndexError:
                    return
                try:
                    outcomes[group] = by_port(self._query(group))
                except (Malformed, Unavailable) as error:
                    outcomes[group] = Unavailable(str(error))

        threads = []
        for _ in range(min(self._processes, len(groups)) - 1):
            thread = Thread(target=query_all, name="smp", daemon=True)
            with suppress(RuntimeError):  # no more threads: the others take its groups
                thread.start()
                threads.append(thread)
        query_all()
        for thread in threads:
            thread.join()
        return outcomes


def by_port(answer: Json) -> Entries:
    """Return the entries of an answer about ports; raises Malformed."""
    try:
        return {(entry["device"], entry["port"]): dict(entry) for entry in answer["ports"]}
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"malformed answer of the helper: {error!r}") from error


def unanswered(port: Address, text: str | None = None) -> Json:
    """Return the entry of a port that has not been queried, or whose process failed with `text`."""
    device, number = port
    return {
        "device": device,
        "port": number,
        "exchanges": [],
        "error": NeighborReason.NO_ANSWER,
        "text": text,
    }


def recorded_reason(error: object) -> str:
    """Return a recorded reason; raises Malformed if it is not a word, as in a foreign snapshot."""
    if not isinstance(error, str) or not CODE.fullmatch(error):
        raise Malformed(f"a recorded reason is malformed: {printable(error)}")
    return error


def printable(text: object) -> str:
    """Return a recorded text in one line of MAX_TEXT characters."""
    return visible(text if isinstance(text, str) else repr(text), MAX_TEXT)


def is_unasked(answer: Json) -> bool:
    """Return True for the entry of a port that has not been queried."""
    fields = answer.get("exchanges"), answer.get("error"), answer.get("text")
    return fields == ([], NeighborReason.NO_ANSWER, None)


def address_of(port: P) -> Address:
    """Return the device and the number of a port."""
    device, number, *_ = port
    return device, number


def _by_device(ports: Iterable[P]) -> list[PortGroup[P]]:
    return [tuple(same) for same in grouped(ports, lambda port: address_of(port)[0]).values()]


def without_smi(observation: Observation) -> list[PortRole]:
    """Return the ports of multi-plane HCAs whose neighbors are unknown for want of an SMI device.

    GB300 and B300 are delivered without one: queue pair 0 is closed, and that is no fault.
    """
    links = observation.ib.value if isinstance(observation.ib, Seen) else ()
    unanswered = {link.interface for link in links if link.missing and link.missing != "link-down"}
    functions = [role.device.pci for role in observation.ports]
    return [
        role
        for role in observation.backend
        if role.interface in unanswered
        and role.device.pci_ids in SMI_HCAS
        and functions.count(role.device.pci) == 1
    ]


def smi_hints(observation: Observation) -> Iterator[Problem]:
    """Report the ports without SMI device, and the command that makes it."""
    if roles := without_smi(observation):
        names = listed([role.interface for role in roles])
        text = (
            f"{names}: no subnet management interface: `{MAKE_SMI} {roles[0].device.name}` makes"
            " one for the first (kernel 6.11 or newer; not kept over a reboot)"
        )
        yield Problem(SOURCE, SOURCE, None, text)
