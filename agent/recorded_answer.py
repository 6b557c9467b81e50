"""What a snapshot has of a source's I/O; one answer of a helper, as a JSON file of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from agent.errors import Unavailable
from agent.text import Json, as_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.host import Host
    from agent.snapshot.anonymize import Names
    from agent.snapshot.tree import SnapshotFiles

NO_MODULES = "the snapshot has no modules: bwagent capture --modules"


class Recording:
    """The results of one source's I/O: recorded from a Host, or loaded from a snapshot."""

    @classmethod
    def record(cls, host: Host) -> tuple[Self, Host]:
        """Return an empty recording, and the host with I/O that fills it."""
        raise NotImplementedError

    @classmethod
    def load(cls, files: SnapshotFiles, facts: Mapping[str, Any], /) -> Self:
        """Load the recording; `facts` is host.json. Raises Malformed."""
        raise NotImplementedError

    def replayed(self, host: Host) -> Host:
        """Return the host with I/O that replays the results."""
        raise NotImplementedError

    def newest(self) -> float | None:
        """Return the time of the newest result in seconds since the epoch; None: it has none."""
        return None

    def anonymized(self, names: Names) -> Self:
        """Return the recording with replaced names."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """Return its entries of host.json."""
        return {}

    def files(self) -> dict[str, bytes | None]:
        """Return its files in a snapshot by path; None is a folder."""
        raise NotImplementedError


class RecordedAnswer(Recording):
    """The recorded answer, and the Host I/O that replays it."""

    file: ClassVar[str]
    field: ClassVar[str]  # of the Host: the function that asks the helper
    absent: ClassVar[str]  # why there is no answer

    def __init__(self, answer: Json | None = None) -> None:
        self.answer = answer  # None: it was not asked for, or not given

    @classmethod
    def record(cls, host: Host) -> tuple[Self, Host]:
        """Return an empty record, and the host with I/O that fills it."""
        recorded, ask = cls(), getattr(host, cls.field)

        def asked(*subjects: Any) -> Json:
            answer: Json = ask(*subjects)
            recorded.answer = answer
            return answer

        fields: dict[str, Any] = {cls.field: asked if ask else None}
        return recorded, host._replace(**fields)

    @classmethod
    def load(cls, files: SnapshotFiles, _facts: Mapping[str, Any]) -> Self:
        """Load the record; raises Malformed if the file is not a JSON object."""
        return cls(files.json(cls.file))

    def replayed(self, host: Host) -> Host:
        """Return the host with I/O that replays this record."""
        fields: dict[str, Any] = {self.field: self.given}
        return host._replace(**fields)

    def given(self, *_subjects: Any) -> Json:
        """Return the answer; raises Unavailable if there is none."""
        if self.answer is None:
            raise Unavailable(self.absent)
        return self.answer

    def anonymized(self, names: Names) -> Self:
        """Return the record with replaced names in all its texts."""
        return type(self)(names.everywhere(self.answer))

    def files(self) -> dict[str, bytes | None]:
        """Return the file of the answer, if there is one."""
        return {} if self.answer is None else {self.file: as_json(self.answer)}
