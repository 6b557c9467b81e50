"""The InfiniBand part of a snapshot: the SMP helper's answer for each port.

smp/<device>-<port>.json    requests and replies in hex (agent/helper/main.py, verb smp)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from agent.errors import Malformed
from agent.infiniband.devices import Address, Answer, by_port
from agent.text import as_json

if TYPE_CHECKING:  # packages that import this one
    from agent.host import Host
    from agent.snapshot.names import Names
    from agent.snapshot.tree import SnapshotFiles

FOLDER = "smp"


@dataclass(slots=True)
class RecordedSmps:
    """The recorded answers by port, and the Host I/O that replays them."""

    answers: dict[Address, Answer] = field(default_factory=dict)

    def replayed(self) -> dict[str, Any]:
        """Return the fields of a Host that replay this record."""
        return {"ask_smp": self.ask_smp}

    def ask_smp(self, ports: Sequence[Address]) -> Answer:
        """Return the answers of these ports, without those that were not recorded."""
        return {"ports": [self.answers[port] for port in ports if port in self.answers]}

    def newest(self) -> None:
        """Return no time: an answer has none."""

    def anonymized(self, names: Names) -> Self:
        """Return the record with replaced names."""
        from agent.infiniband.anonymize import anonymized

        answers = {
            (names.text(device), port): anonymized(answer, names)
            for (device, port), answer in self.answers.items()
        }
        return type(self)(answers)

    def facts(self) -> dict[str, Any]:
        """Return the entries of host.json: none."""
        return {}

    def files(self) -> dict[str, bytes | None]:
        """Return the files of the answers."""
        return {
            f"{FOLDER}/{device}-{port}.json": as_json(answer)
            for (device, port), answer in self.answers.items()
        }


def record(host: Host) -> tuple[RecordedSmps, dict[str, Any]]:
    """Return an empty record, and the fields of a Host that query `host` and fill the record."""
    recorded = RecordedSmps()

    def ask_smp(ports: Sequence[Address]) -> Answer:
        answer = host.ask_smp(ports)
        with suppress(Malformed):  # the source reports it
            recorded.answers.update(by_port(answer))
        return answer

    return recorded, {"ask_smp": ask_smp}


def load(files: SnapshotFiles, _facts: Mapping[str, Any]) -> RecordedSmps:
    """Load the record; raises Malformed for a file without the answer of a port."""
    recorded = RecordedSmps()
    for name in files.names(FOLDER):
        path = f"{FOLDER}/{name}"
        answer = files.json(path) or {}
        device, port = answer.get("device"), answer.get("port")
        if not isinstance(device, str):
            raise Malformed(f"{path}: no answer of a port: 'device' is no text")
        if not isinstance(port, int):
            raise Malformed(f"{path}: no answer of a port: 'port' is no number")
        recorded.answers[device, port] = answer
    return recorded
