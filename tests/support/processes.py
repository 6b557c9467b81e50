"""Processes of this host that are not children of a test."""

from __future__ import annotations

from pathlib import Path


def runs(pid: int) -> bool:
    """True unless the process has ended; a zombie that init has not reaped yet has."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
