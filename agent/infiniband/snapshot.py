"""The InfiniBand part of a snapshot: the helpers' answers for each port.

smp/<device>-<port>.json    requests and replies in hex (agent/helper/main.py, verb smp)
sa/<device>-<port>.json     those of the subnet administrator (verb sa), if it was asked
perf/<device>-<port>.json   readings of the counters of both ends of the link (verb perf)
sa/tiers.json               all about the switches above, by port (verb tiers), with --tiers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from agent.errors import Malformed
from agent.infiniband.devices import (
    Address,
    AskingPort,
    CounterPort,
    Entries,
    SubnetPort,
    address_of,
    by_port,
    unanswered,
)
from agent.reasons import NeighborReason
from agent.recorded_answer import Recording
from agent.text import Json, as_json

if TYPE_CHECKING:  # packages that import this one
    from agent.host import Host
    from agent.infiniband.exploration import Exploration
    from agent.snapshot.anonymize import Names
    from agent.snapshot.tree import SnapshotFiles

FOLDER = "smp"
SA_FOLDER = "sa"
PERF_FOLDER = "perf"
TIERS = f"{SA_FOLDER}/tiers.json"


class RecordedSmps(Recording):
    """The recorded entries by port, and the Host I/O that replays them."""

    def __init__(
        self,
        answers: Entries | None = None,
        of_sa: Entries | None = None,
        of_tiers: Entries | None = None,
        of_perf: Entries | None = None,
    ) -> None:
        self.answers, self.of_sa = answers or {}, of_sa or {}
        self.of_tiers, self.of_perf = of_tiers or {}, of_perf or {}

    @classmethod
    def record(cls, host: Host) -> tuple[Self, Host]:
        """Return an empty record, and the host with I/O that fills it."""
        recorded = cls()

        def recording(ask: Callable[..., Json], entries: Entries) -> Callable[..., Json]:
            def asked(ports: Sequence[Any]) -> Json:
                answer = ask(ports)
                with suppress(Malformed):  # the source reports it
                    entries.update(by_port(answer))
                return answer

            return asked

        if explore := host.explore:
            host = host._replace(
                explore=lambda ports, _, known: explore(ports, recorded.of_tiers, known)
            )
        return recorded, host._replace(
            ask_smp=recording(host.ask_smp, recorded.answers),
            ask_sa=recording(host.ask_sa, recorded.of_sa),
            ask_perf=recording(host.ask_perf, recorded.of_perf) if host.ask_perf else None,
        )

    @classmethod
    def load(cls, files: SnapshotFiles, _facts: Mapping[str, Any]) -> Self:
        """Load the record; raises Malformed for a file without the entry of a port."""
        names = [f"{SA_FOLDER}/{name}" for name in files.names(SA_FOLDER) if name.endswith(".json")]
        of_sa = _loaded((path, files.json(path)) for path in names if path != TIERS)
        recorded = (files.json(TIERS) or {}).get("ports", ())
        if not isinstance(recorded, list | tuple):
            raise Malformed(f"{TIERS}: 'ports' is no list")
        of_tiers = _loaded((TIERS, entry) for entry in recorded)
        smps, counters = (
            _loaded((path := f"{folder}/{name}", files.json(path)) for name in files.names(folder))
            for folder in (FOLDER, PERF_FOLDER)
        )
        return cls(smps, of_sa, of_tiers, counters)

    def replayed(self, host: Host) -> Host:
        """Return the host with I/O that replays this record."""
        return host._replace(
            ask_smp=self.ask_smp,
            ask_sa=self.ask_sa,
            explore=self.explore,
            ask_perf=self.ask_perf if self.of_perf else None,
        )

    def ask_smp(self, ports: Sequence[Address]) -> Json:
        """Return the entries of these ports, without those that were not recorded."""
        return _entries(self.answers, ports)

    def ask_sa(self, ports: Sequence[SubnetPort]) -> Json:
        """Return the subnet administrator's entries about these ports, as `ask_smp` does.

        An entry about another LID than the port has is replaced by its reason.
        """
        entries = []
        for port in ports:
            if (entry := self.of_sa.get(port.address)) is None:
                continue
            from agent.infiniband import sa, smp  # without answers of the SA they are not loaded

            lid = port.lid
            with suppress(Malformed, LookupError, TypeError):  # its decoder reports it
                exchange = smp.Exchange.from_json(entry["exchanges"][0])
                lid, _ = sa.require_get_table(exchange.request)
            if lid != port.lid:
                text = f"{port.name}: the record is of LID {lid}, the port has LID {port.lid}"
                entry = unanswered(port.address, text) | {"error": NeighborReason.SA_FOREIGN}
            entries.append(entry)
        return {"ports": entries}

    def ask_perf(self, ports: Sequence[CounterPort]) -> Json:
        """Return the readings of the counters of these ports' links, as `ask_smp` does."""
        return _entries(self.of_perf, map(address_of, ports))

    def explore(self, ports: Sequence[AskingPort], *_others: object) -> Exploration:
        """Explore by the recorded answers; raises Unavailable and Malformed."""
        from agent.infiniband.exploration import explore, replaying

        return explore(ports, replaying(self.of_tiers), 0)

    def anonymized(self, names: Names) -> Self:
        """Return the record with replaced names."""
        from agent.infiniband.anonymize import Rebuild, anonymized, by_perf, by_sa, by_smp

        def renamed(entries: Entries, rebuild: Rebuild) -> Entries:
            return {
                (names.text(device), number): anonymized(entry, names, rebuild)
                for (device, number), entry in entries.items()
            }

        of_sa, of_tiers = (renamed(entries, by_sa) for entries in (self.of_sa, self.of_tiers))
        of_perf = renamed(self.of_perf, by_perf)
        return type(self)(renamed(self.answers, by_smp), of_sa, of_tiers, of_perf)

    def files(self) -> dict[str, bytes | None]:
        """Return the files of the entries."""
        recorded: dict[str, bytes | None] = {
            f"{folder}/{device}-{number}.json": as_json(entry)
            for folder, entries in (
                (FOLDER, self.answers),
                (SA_FOLDER, self.of_sa),
                (PERF_FOLDER, self.of_perf),
            )
            for (device, number), entry in entries.items()
        }
        if self.of_tiers:
            recorded[TIERS] = as_json({"ports": [*self.of_tiers.values()]})
        return recorded


def _entries(recorded: Entries, ports: Iterable[Address]) -> Json:
    return {"ports": [recorded[port] for port in ports if port in recorded]}


def _loaded(documents: Iterable[tuple[str, Any]]) -> Entries:
    """Return the entries of these documents, each with its path."""
    entries: Entries = {}
    for path, document in documents:
        entry = document if isinstance(document, dict) else {}
        device, number = entry.get("device"), entry.get("port")
        if not isinstance(device, str):
            raise Malformed(f"{path}: no answer of a port: 'device' is no text")
        if not isinstance(number, int):
            raise Malformed(f"{path}: no answer of a port: 'port' is no number")
        entries[device, number] = entry
    return entries
