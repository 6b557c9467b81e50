"""Recorded I/O that a test makes, loads from memory, or takes apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.infiniband.snapshot import RecordedSmps
from agent.lldp.snapshot import RecordedLldp
from agent.nvml.snapshot import RecordedNvml
from agent.snapshot.replay import RecordedIo, load
from agent.snapshot.tree import SnapshotFiles

if TYPE_CHECKING:
    from agent.lldp.frame import Frame
    from agent.snapshot.tree import Store


def recorded(
    received: dict[str, list[Frame]] | None = None,
    failed: dict[str, str] | None = None,
    answers: dict[tuple[str, int], dict[str, Any]] | None = None,
    flags: dict[str, dict[str, bool]] | None = None,
    *,
    listening: bool = False,
) -> RecordedIo:
    """Recorded I/O of all sources, with the order of its parts in the table of sources."""
    lldp = RecordedLldp(received or {}, failed or {}, flags or {}, listening)
    return RecordedIo({"lldp": lldp, "ib": RecordedSmps(answers or {}), "nvml": RecordedNvml()})


def loaded(store: Store, **facts: Any) -> RecordedIo:
    """The recorded I/O of a snapshot with these entries in host.json."""
    return load(SnapshotFiles(store), facts)


def lldp_of(io: RecordedIo) -> RecordedLldp:
    """The LLDP part."""
    part = io.parts["lldp"]
    assert isinstance(part, RecordedLldp)
    return part


def smps_of(io: RecordedIo) -> RecordedSmps:
    """The InfiniBand part."""
    part = io.parts["ib"]
    assert isinstance(part, RecordedSmps)
    return part
