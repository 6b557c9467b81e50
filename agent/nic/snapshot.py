"""The NIC part of a snapshot: one answer of the helper.

nics.json    answer of the helper's verb `nics` (agent/nic/query.py, query)

In its place a capture by capture.sh has what programs print (agent/nic/tools.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from agent.recorded_answer import RecordedAnswer
from agent.text import Json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from agent.host import Host
    from agent.snapshot.anonymize import Names
    from agent.snapshot.tree import SnapshotFiles

FILE = "nics.json"


@dataclass(slots=True)
class RecordedNics(RecordedAnswer):
    """The recorded answer, and the Host I/O that replays it."""

    file: ClassVar[str] = FILE

    def replayed(self) -> dict[str, Any]:
        """Return the field of a Host that replays this record."""
        return {"ask_nics": None if self.answer is None else lambda _netdevs: self.answer}

    def anonymized(self, names: Names) -> Self:
        """Return the record with replaced addresses in names of netdevs."""
        return type(self)(_anonymized(self.answer, names))


def record(host: Host) -> tuple[RecordedNics, dict[str, Any]]:
    """Return an empty record, and the field of a Host that queries `host` and fills the record."""
    recorded, ask = RecordedNics(), host.ask_nics
    if ask is None:
        return recorded, {}

    def ask_nics(netdevs: Sequence[str]) -> Json:
        recorded.answer = ask(netdevs)
        return recorded.answer

    return recorded, {"ask_nics": ask_nics}


def load(files: SnapshotFiles, _facts: Mapping[str, Any]) -> RecordedNics:
    """Load the record; raises Malformed."""
    answer = files.json(FILE)
    if answer is None and (files.has_folder("ethtool") or files.has_folder("devlink")):
        from agent.nic import tools

        answer = tools.answer(files)
    return RecordedNics(answer)


def _anonymized(value: Any, names: Names) -> Any:
    if isinstance(value, dict):
        return {key: _anonymized(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_anonymized(item, names) for item in value]
    return names.text(value) if isinstance(value, str) else value
