"""Work that may block for good, done so that nothing else waits for it.

A read of a sick HCA can sit in the kernel for a minute or for ever, and no signal ends it. So such work runs in
daemon threads: they share the agent's memory (a child would cost milliseconds for a read of microseconds), they are
never joined, and Python does not wait for them at exit. One thread does all the work as long as nothing blocks; when
it does, another takes over the rest of the queue, and what blocks costs its own result only. What needs a process of
its own, because it may crash or leave a library mapped, goes through agent/helper/process.py instead.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Item = TypeVar("Item")
Result = TypeVar("Result")

PATIENCE = 0.05  # seconds that one item may hold up the others


def run_each(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    deadline: float,
    *,
    patience: float = PATIENCE,
) -> dict[Item, Result]:
    """`work(item)` for every item, each with a deadline in seconds of its own; what is late is missing from the result.

    An exception out of `work` is raised here. Late work goes on in its thread and its result is dropped.
    """
    batch = _Batch(work, items)
    with batch.changed:
        while not batch.settled(deadline):
            if batch.stuck(patience):
                threading.Thread(target=batch.work_off, name="blocking", daemon=True).start()
                batch.spawned += 1
            batch.changed.wait(patience)
        return batch.outcome()


class _Batch(Generic[Item, Result]):
    """A queue of items, the threads that work it off, and what came out; all of it guarded by `changed`."""

    def __init__(self, work: Callable[[Item], Result], items: Iterable[Item]) -> None:
        self.changed = threading.Condition()
        self.spawned = 0
        self._work = work
        self._queue = deque(items)
        self._started: dict[Item, float] = {}
        self._results: dict[Item, Result] = {}
        self._error: BaseException | None = None

    def work_off(self) -> None:
        """Take items until none is left: the body of a thread."""
        while (item := self._take()) is not None:
            try:
                result = self._work(item[0])
            except BaseException as error:  # noqa: BLE001 - a thread has nobody to raise to; outcome() raises it
                self._finish(item[0], None, error)
            else:
                self._finish(item[0], result, None)

    def settled(self, deadline: float) -> bool:
        """Everything is done or late."""
        now = time.monotonic()
        return not self._queue and all(
            item in self._results or now - start >= deadline
            for item, start in self._started.items()
        )

    def stuck(self, patience: float) -> bool:
        """Work is left, and every thread has been on its item for longer than `patience` seconds."""
        busy = [start for item, start in self._started.items() if item not in self._results]
        return bool(self._queue) and (
            self.spawned == 0
            or (len(busy) >= self.spawned and time.monotonic() - max(busy) >= patience)
        )

    def outcome(self) -> dict[Item, Result]:
        if self._error:
            raise self._error
        return dict(self._results)

    def _take(self) -> tuple[Item] | None:
        with self.changed:
            if not self._queue:
                return None
            item = self._queue.popleft()
            self._started[item] = time.monotonic()
            return (item,)

    def _finish(self, item: Item, result: Result | None, error: BaseException | None) -> None:
        with self.changed:
            if error:
                self._error = error
                del self._started[item]
            else:
                self._results[item] = result  # type: ignore[assignment]  # no error, so it is a Result
            if not self._queue:
                self.changed.notify()
