"""The transceiver modules of the backend ports: `probe --modules`, `doctor --modules`, a snapshot.

modules.json    the helper's answer (agent/helper/main.py, modules)

They are read only when a command asks for them, never by the daemon.
"""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from agent.check import AS_ROOT, MAX_NAMED, Check, Step, absent, missing, there
from agent.errors import Malformed, Unavailable
from agent.facts import TEXT, Kind, Schema, array, record
from agent.model import Observation, Problem, ethernet_netdevs
from agent.recorded_answer import RecordedAnswer
from agent.text import Json, listed, many
from agent.transceiver.eeprom import LOWER, QSFP, UPPER, decode

if TYPE_CHECKING:
    from typing import Self

    from agent.snapshot.anonymize import Names
    from agent.snapshot.tree import SnapshotFiles

Query = Callable[[Sequence[str]], Json]  # netdevs; returns {"modules": [...]}

ETHERNET = "Ethernet"
SUBJECT = "--modules"
FILE = "modules.json"
INFINIBAND = "InfiniBand: no network device gives its module; run mlxlink -d {} -m"
NO_NETDEV = "its network device is not in this network namespace"
NOT_IN_IT = "the snapshot has no modules: bwagent capture --modules"
NOT_ASKED = "its module was not asked for"
NOT_PERMITTED = os.strerror(errno.EPERM)  # the kernel's answer without CAP_NET_ADMIN
AS_NOBODY = "reading transceivers needs CAP_NET_ADMIN (root)"
MAX_MODULES = 64
SERIALS = {True: slice(68, 84), False: slice(38, 54)}  # of page 00h; True: SFF-8636, else CMIS
CUSTOM = 96  # octets 224 to 255 of page 00h are the vendor's own


class Module(NamedTuple):
    """The helper's answer about one module."""

    netdev: str
    pages: Mapping[str, bytes]  # by name
    error: str | None = None


PAGES = Kind(
    lambda pages: {name: bytes.fromhex(octets) for name, octets in dict(pages).items()},
    lambda pages: {name: octets.hex() for name, octets in pages.items()},
)
MODULE: Schema = {"netdev": TEXT, "pages": PAGES, "error": TEXT}
MODULES = array(record(Module, MODULE, ("netdev", "pages")), MAX_MODULES)


def rows(observation: Observation, query: Query) -> tuple[list[Json], list[Problem]]:
    """Ask for the modules of the backend ports; return a row for each port, and the problems.

    A problem of all modules leaves the rows of ports that have no network device.
    """
    names = ethernet_netdevs(observation.backend)
    answers: dict[str, Module] = {}
    described, fault = [], None
    try:
        answers = {module.netdev: module for module in _loaded(query(names) if names else {})}
    except (Malformed, Unavailable) as error:
        fault = str(error)
    if any(module.error == NOT_PERMITTED for module in answers.values()):
        fault = AS_NOBODY
    problems = [Problem("host", SUBJECT, None, fault)] if fault else []
    for role in observation.backend:
        netdev = role.netdev
        row: Json = {"interface": role.interface, "netdev": netdev and netdev.name}
        if role.port.link_layer != ETHERNET:
            text = INFINIBAND.format(role.device.pci or role.device.name)
            described.append(row | _row(None, text))
        elif netdev is None:
            described.append(row | _row(None, NO_NETDEV))
        elif netdev.name in answers and not problems:
            described.append(row | _decoded(answers[netdev.name]))
        elif not problems:
            described.append(row | _row(None, NOT_ASKED))
    return described, problems


def checks(observation: Observation, query: Query) -> Iterator[Check]:
    """Read the modules for `bwagent doctor`: those with an alarm are missing parts."""
    described, problems = rows(observation, query)
    for problem in problems:
        if problem.text == AS_NOBODY:
            yield missing(Step.PRIVILEGE, AS_NOBODY, f"{AS_ROOT} {SUBJECT}")
        elif problem.text == NOT_IN_IT:
            yield absent(NOT_IN_IT)
        else:
            yield missing(Step.DRIVER, problem.text, "dmesg")
    unread: defaultdict[str, list[str]] = defaultdict(list)
    ethernet = {role.interface for role in observation.backend if role.port.link_layer == ETHERNET}
    quiet = [row for row in described if not row["error"] and not row["alarms"]]
    if quiet:
        yield there(f"{many(len(quiet), 'transceiver')} without an alarm")
    for row in described:
        if row["error"]:
            is_ethernet = row["interface"] in ethernet
            text = row["error"] if is_ethernet else INFINIBAND.format("PCI-ADDRESS")
            unread[text].append(row["interface"])
        elif row["alarms"]:
            text = f"{row['interface']}: {', '.join(row['alarms'])}"
            yield missing(Step.TRANSCEIVER, text, f"bwagent probe {SUBJECT}")
    for text, names in unread.items():
        yield absent(f"{listed(names, MAX_NAMED)}: {text}")


def _decoded(module: Module) -> Json:
    if module.error:
        return _row(None, module.error)
    try:
        return _row(decode(module.pages), None)
    except Malformed as error:
        return _row(None, str(error))


def _row(module: Any, error: str | None) -> Json:
    """Return the facts of a module; all are null where there is an error."""
    names = {"rx_mw": "rx_power_mw", "tx_mw": "tx_power_mw"}
    fields = ("kind", "vendor", "part", "serial", "celsius", "rx_mw", "tx_mw", "alarms")
    facts = {names.get(name, name): getattr(module, name, None) for name in fields}
    return {name: [*fact] if isinstance(fact, tuple) else fact for name, fact in facts.items()} | {
        "error": error
    }


def _loaded(answer: Any) -> tuple[Module, ...]:
    """Return the modules of an answer; raises Malformed: it may be of a stranger's snapshot."""
    try:
        loaded: tuple[Module, ...] = MODULES.parse(answer.get("modules", []))
    except (ValueError, TypeError, AttributeError):
        text = f"{FILE}: no list of at most {MAX_MODULES} modules with netdev, pages in hex, error"
        raise Malformed(text) from None
    return loaded


class RecordedModules(RecordedAnswer):
    """The answer about the modules."""

    file: ClassVar[str] = FILE
    field: ClassVar[str] = "modules"
    absent: ClassVar[str] = NOT_IN_IT

    @classmethod
    def load(cls, files: SnapshotFiles, _facts: Mapping[str, Any]) -> Self:
        """Load the record; raises Malformed."""
        answer = files.json(cls.file)
        _loaded(answer or {})
        return cls(answer)

    def anonymized(self, names: Names) -> Self:
        """Return the record with replaced serial numbers, and without the vendors' own octets."""
        if self.answer is None:
            return self
        modules = (_anonymized(module, names) for module in _loaded(self.answer))
        return type(self)({"modules": MODULES.document(modules)})


def _anonymized(module: Module, names: Names) -> Module:
    pages = dict(module.pages)
    if UPPER in pages:
        octets = bytearray(pages[UPPER])
        place = SERIALS[pages.get(LOWER, b"")[:1] in {bytes([kind]) for kind in QSFP}]
        serial = octets[place].decode("ascii", "replace").strip(" \0")
        octets[place] = f"{names.peer(serial, 'serial') if serial else '':16.16}".encode()
        octets[CUSTOM:] = bytes(len(octets[CUSTOM:]))
        pages[UPPER] = bytes(octets)
    return module._replace(netdev=names.text(module.netdev), pages=pages)
