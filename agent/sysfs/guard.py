"""A root that does not go where a read of its own has not come back.

The law of this module: a device whose read sits in the kernel is not asked again before that read is done. Each further
one would cost the look its deadline and leave another thread behind (agent/sysfs/worker.py), a look for a look, until
nothing is left. What is refused here fails as a read that timed out, so its device counts as one that blocks.
"""

from __future__ import annotations

import errno
import os
import time
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.sysfs.reader import Root

GUARDED = ("sys/class/infiniband/", "sys/class/net/")
PATIENCE = 1.0  # seconds that a read may take before its device counts as stuck


class StuckGuard:
    """A Root over another one; any number of threads may use it."""

    def __init__(
        self, root: Root, patience: float = PATIENCE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._root, self._patience, self._clock = root, patience, clock
        self._inside: defaultdict[str, dict[object, float]] = defaultdict(
            dict
        )  # device to reads and their starts

    def read(self, path: str, limit: int) -> bytes:
        with self._entered(path):
            return self._root.read(path, limit)

    def names(self, path: str) -> list[str]:
        with self._entered(path):
            return self._root.names(path)

    def link(self, path: str) -> str:
        with self._entered(path):
            return self._root.link(path)

    @contextmanager
    def _entered(self, path: str) -> Iterator[None]:
        device = "/".join(path.split("/", 4)[:4]) if path.startswith(GUARDED) else ""
        if not device:
            yield
            return
        now, me = self._clock(), object()
        inside = self._inside[device]
        # A copy: other threads come and go.
        if any(now - since > self._patience for since in list(inside.values())):
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), path)
        inside[me] = now
        try:
            yield
        finally:
            del inside[me]
