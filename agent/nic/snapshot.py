"""The NIC part of a snapshot: one answer of the helper.

nics.json    answer of the helper's verb `nics` (agent/nic/query.py)

In its place a capture by capture.sh has what programs print (agent/nic/tools.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from agent.recorded_answer import RecordedAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from agent.snapshot.tree import SnapshotFiles


class RecordedNics(RecordedAnswer):
    """The answer of the drivers; without one a replay has no NICs to ask about."""

    file: ClassVar[str] = "nics.json"
    field: ClassVar[str] = "ask_nics"

    @classmethod
    def load(cls, files: SnapshotFiles, _facts: Mapping[str, Any]) -> Self:
        """Load the record; raises Malformed."""
        answer = files.json(cls.file)
        if answer is None and (files.has_folder("ethtool") or files.has_folder("devlink")):
            from agent.nic import tools

            answer = tools.answer(files)
        return cls(answer)

    def replayed(self) -> dict[str, Any]:
        """Return the field of a Host that replays this record."""
        return {self.field: None if self.answer is None else self.given}
