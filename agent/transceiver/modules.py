"""The transceiver modules of the backend ports, as `probe --modules` shows them, and in a snapshot.

modules.json    the helper's answer (agent/helper/main.py, modules)

They are read only when a command asks for them, never by the daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from agent.errors import Malformed, Unavailable
from agent.model import Observation, Problem, ethernet_netdevs
from agent.recorded_answer import RecordedAnswer
from agent.text import Json
from agent.transceiver.eeprom import LOWER, QSFP, UPPER, decode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from agent.host import Host
    from agent.snapshot.anonymize import Names
    from agent.snapshot.tree import SnapshotFiles

Query = Callable[[Sequence[str]], Json]  # netdevs; returns {"modules": [...]}

SUBJECT = "--modules"
FILE = "modules.json"
NO_NETDEV = "InfiniBand, no network device that gives its module: run mlxlink -d {} -m"
NOT_IN_IT = "the snapshot has no modules: bwagent capture --modules"
NOT_ASKED = "{} of it was not asked for"
MAX_MODULES = 64
SERIALS = {True: slice(68, 84), False: slice(38, 54)}  # of page 00h; True: SFF-8636, else CMIS
CUSTOM = 96  # octets 224 to 255 of page 00h are the vendor's own


def rows(observation: Observation, query: Query) -> tuple[list[Json], list[Problem]]:
    """Ask for the modules of the backend ports; return a row for each port, and the problems."""
    names = ethernet_netdevs(observation.backend)
    try:
        answers = {answer["netdev"]: answer for answer in _checked(query(names) if names else {})}
    except (Malformed, Unavailable) as error:
        return [], [Problem("host", SUBJECT, None, str(error))]
    described = []
    for role in observation.backend:
        netdev = role.netdev
        row: Json = {"interface": role.interface, "netdev": netdev and netdev.name}
        if role.port.link_layer != "Ethernet" or netdev is None:
            text = NO_NETDEV.format(role.device.pci or role.device.name)
            described.append(row | _row(None, text))
        elif netdev.name not in answers:
            described.append(row | _row(None, NOT_ASKED.format(netdev.name)))
        else:
            described.append(row | _decoded(answers[netdev.name]))
    return described, []


def _decoded(answer: Json) -> Json:
    if answer["error"]:
        return _row(None, answer["error"])
    try:
        pages = {name: bytes.fromhex(octets) for name, octets in answer["pages"].items()}
        return _row(decode(pages), None)
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


def _checked(answer: Any) -> list[Json]:
    """Return the modules of an answer; raises Malformed: it may be of a stranger's snapshot."""
    modules = answer.get("modules", []) if isinstance(answer, dict) else None
    if not isinstance(modules, list) or len(modules) > MAX_MODULES:
        raise Malformed(f"{FILE}: no list of at most {MAX_MODULES} modules")
    for module in modules:
        fields = module if isinstance(module, dict) else {}
        pages, error = fields.get("pages"), fields.get("error")
        is_valid = isinstance(fields.get("netdev"), str) and isinstance(error, str | None)
        if not is_valid or not isinstance(pages, dict):
            raise Malformed(f"{FILE}: a module without netdev, pages or error")
        for octets in pages.values():
            try:
                bytes.fromhex(octets)
            except (TypeError, ValueError):
                text = f"{FILE}: a page of {fields['netdev']!r:.40} is no hex"
                raise Malformed(text) from None
    return modules


@dataclass(slots=True)
class RecordedModules(RecordedAnswer):
    """The recorded answer, and the Host I/O that replays it."""

    file: ClassVar[str] = FILE

    def replayed(self) -> dict[str, Any]:
        """Return the field of a Host that replays this record."""
        return {"modules": self.modules}

    def modules(self, _netdevs: Sequence[str]) -> Json:
        """Return the answer; raise Unavailable if there is none."""
        if self.answer is None:
            raise Unavailable(NOT_IN_IT)
        return self.answer

    def anonymized(self, names: Names) -> Self:
        """Return the record with replaced serial numbers, and without the vendors' own octets."""
        if self.answer is None:
            return self
        modules = [_anonymized(module, names) for module in _checked(self.answer)]
        return type(self)({"modules": modules})


def record(host: Host) -> tuple[RecordedModules, dict[str, Any]]:
    """Return an empty record, and the field of a Host that queries `host` and fills the record."""
    recorded = RecordedModules()

    def modules(netdevs: Sequence[str]) -> Json:
        recorded.answer = host.modules(netdevs)
        return recorded.answer

    return recorded, {"modules": modules}


def load(files: SnapshotFiles, _facts: Mapping[str, Any]) -> RecordedModules:
    """Load the record; raises Malformed."""
    answer = files.json(FILE)
    if answer is not None:
        _checked(answer)
    return RecordedModules(answer)


def _anonymized(module: Json, names: Names) -> Json:
    pages = dict(module["pages"])
    if UPPER in pages:
        octets = bytearray.fromhex(pages[UPPER])
        is_qsfp = bytes.fromhex(pages.get(LOWER, ""))[:1] in {bytes([kind]) for kind in QSFP}
        place = SERIALS[is_qsfp]
        serial = octets[place].decode("ascii", "replace").strip(" \0")
        octets[place] = f"{names.peer(serial, 'serial') if serial else '':16.16}".encode()
        octets[CUSTOM:] = bytes(len(octets[CUSTOM:]))
        pages[UPPER] = octets.hex()
    return {**module, "netdev": names.text(module["netdev"]), "pages": pages}
