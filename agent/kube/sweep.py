"""A cleanup of many Nodes: the removals carried out several at a time.

Invariants:
- A failure of one Node stops no other; MAX_FAILURES in a row that are the server's do.
- Whatever ends it, requests that were sent are waited for, and `remaining` has the other Nodes. A
  second cleanup finds these again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from agent.errors import Unavailable
from agent.kube.connection import MAX_CONNECTIONS
from agent.limits import thread_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from agent.kube.transport import Kube

MAX_FAILURES = 8  # in a row
# The kinds of failure that another Node need not have; see agent/kube/errors.py.
OF_ONE_NODE = frozenset({"conflict", "not-found", "recreated", "refused"})


class OfNode(Protocol):
    """The work on one Node."""

    @property
    def node(self) -> str:
        """Its name."""


class Step(NamedTuple):
    """The result on one Node."""

    line: str
    fault: str | None = None  # a line that begins with the Node
    kind: str | None = None  # of a failed request; see agent/kube/errors.py


Task = TypeVar("Task", bound=OfNode)


class Sweep(Generic[Task]):
    """The tasks, their failures as lines, and the names of the Nodes that are not cleaned."""

    def __init__(self, tasks: Sequence[Task], act: Callable[[Kube, Task], Step]) -> None:
        self.faults: list[str] = []
        self._tasks, self._act = tasks, act
        self._clean: set[str] = set()
        self._failures = 0  # of the server, in a row

    @property
    def remaining(self) -> list[str]:
        return [task.node for task in self._tasks if task.node not in self._clean]

    def run(self, kube: Kube, echo: Callable[[str], None]) -> None:
        """Carry out the tasks; `echo` takes a line for each Node.

        Raises Unavailable if not all threads can be started.
        """
        pool = ThreadPoolExecutor(MAX_CONNECTIONS)
        futures: dict[Future[Step], Task] = {}
        try:
            for task in self._tasks:
                futures[pool.submit(self._act, kube, task)] = task
            self._collect(futures, echo)
        except RuntimeError as error:
            raise Unavailable(thread_fault(error)) from error
        finally:
            pool.shutdown(cancel_futures=True)
            self._collect_rest(futures, echo)

    def _collect(self, futures: dict[Future[Step], Task], echo: Callable[[str], None]) -> None:
        """Wait for one result after the other, until too many are the server's failures."""
        while futures and self._failures < MAX_FAILURES:
            future = next(iter(futures))
            step = future.result()
            self._record(futures.pop(future), step, echo)

    def _collect_rest(self, futures: dict[Future[Step], Task], echo: Callable[[str], None]) -> None:
        """Record the requests that had begun when the others were cancelled."""
        for future, task in futures.items():
            if not future.cancelled():
                self._record(task, future.result(), echo)

    def _record(self, task: Task, step: Step, echo: Callable[[str], None]) -> None:
        if step.fault:
            self.faults.append(step.fault)
        else:
            self._clean.add(task.node)
        is_servers = step.kind is not None and step.kind not in OF_ONE_NODE
        self._failures = self._failures + 1 if is_servers else 0
        echo(step.line)
