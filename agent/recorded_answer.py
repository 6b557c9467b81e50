"""One answer of a helper in a snapshot, as a JSON file of its own; it has no time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from agent.errors import Unavailable
from agent.text import Json, as_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.host import Host
    from agent.snapshot.anonymize import Names
    from agent.snapshot.tree import SnapshotFiles


@dataclass(slots=True)
class RecordedAnswer:
    """The recorded answer, and the Host I/O that replays it: a Recording (agent/snapshot)."""

    file: ClassVar[str]
    field: ClassVar[str]  # of the Host: the function that asks the helper
    absent: ClassVar[str]  # why there is no answer
    answer: Json | None = None  # None: it was not asked for, or not given

    @classmethod
    def record(cls, host: Host) -> tuple[Self, dict[str, Any]]:
        """Return an empty record, and the field of a Host that queries `host` and fills it."""
        recorded, ask = cls(), getattr(host, cls.field)

        def asked(*subjects: Any) -> Json:
            answer: Json = ask(*subjects)
            recorded.answer = answer
            return answer

        return recorded, {cls.field: asked} if ask else {}

    @classmethod
    def load(cls, files: SnapshotFiles, _facts: Mapping[str, Any]) -> Self:
        """Load the record; raises Malformed if the file is not a JSON object."""
        return cls(files.json(cls.file))

    def replayed(self) -> dict[str, Any]:
        """Return the fields of a Host that replay this record."""
        return {self.field: self.given}

    def given(self, *_subjects: Any) -> Json:
        """Return the answer; raises Unavailable if there is none."""
        if self.answer is None:
            raise Unavailable(self.absent)
        return self.answer

    def anonymized(self, names: Names) -> Self:
        """Return the record with replaced names in all its texts."""
        return type(self)(names.everywhere(self.answer))

    def newest(self) -> None:
        """Return no time: an answer has none."""

    def facts(self) -> dict[str, Any]:
        """Return the entries of host.json: none."""
        return {}

    def files(self) -> dict[str, bytes | None]:
        """Return the file of the answer, if there is one."""
        return {} if self.answer is None else {self.file: as_json(self.answer)}
