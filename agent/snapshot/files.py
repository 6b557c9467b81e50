"""Reads the files of a snapshot that stand beside its `sys` and `proc` trees."""

from __future__ import annotations

import json
from typing import Any

from agent.errors import Malformed
from agent.snapshot.tree import Store
from agent.sysfs.reader import TABLE


class SnapshotFiles:
    """The files of a snapshot; links are not followed, and every read has a limit."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def has_folder(self, path: str) -> bool:
        """Return True if there is a folder at this path."""
        return self._store.kind(path) == "folder"

    def names(self, folder: str) -> list[str]:
        """Return the sorted names of the regular files in a folder; none if there is no folder."""
        names = sorted(self._store.names(folder)) if self.has_folder(folder) else []
        return [name for name in names if self._store.kind(f"{folder}/{name}") == "file"]

    def read(self, path: str, limit: int = TABLE) -> bytes:
        """Return the content of a file; raise Malformed beyond `limit` bytes."""
        data = self._store.read(path, limit + 1)
        if len(data) > limit:
            raise Malformed(f"{path}: longer than {limit} bytes")
        return data

    def json(self, path: str) -> dict[str, Any] | None:
        """Return a JSON object, None if there is no file; raise Malformed for anything else."""
        if self._store.kind(path) != "file":
            return None
        try:
            value = json.loads(self.read(path))
        except (ValueError, RecursionError) as error:
            raise Malformed(f"{path}: not JSON: {error}") from None
        if not isinstance(value, dict):
            raise Malformed(f"{path}: not a JSON object")
        return value
