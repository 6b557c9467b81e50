"""A cleanup of many Nodes: their plans applied several at a time.

Invariants:
- A failure of one Node stops no other; MAX_FAILURES in a row that are the server's do.
- Whatever ends it, requests that were sent are waited for, and `remaining` has the other Nodes. A
  second cleanup finds these again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from agent.errors import Unavailable
from agent.kube.apply import apply
from agent.kube.commands import fault_of
from agent.kube.connection import MAX_CONNECTIONS
from agent.kube.diff import done
from agent.limits import thread_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from agent.kube.plan import Plan
    from agent.kube.session import Outcome
    from agent.kube.transport import Kube

    Futures = dict[Future[Outcome], Plan]

MAX_FAILURES = 8  # in a row
# The kinds of failure that another Node need not have; see agent/kube/errors.py.
OF_ONE_NODE = frozenset({"conflict", "not-found", "recreated", "refused"})


class Sweep:
    """The plans, their failures as lines, and the names of the Nodes that are not cleaned."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.faults: list[str] = []
        self._plans = plans
        self._clean: set[str] = set()
        self._failures = 0  # of the server, in a row

    @property
    def remaining(self) -> list[str]:
        return [plan.node for plan in self._plans if plan.node not in self._clean]

    def run(self, kube: Kube, echo: Callable[[str], None]) -> None:
        """Apply the plans; `echo` takes a line for each Node.

        Raises Unavailable if not all threads can be started.
        """
        pool = ThreadPoolExecutor(MAX_CONNECTIONS)
        futures: Futures = {}
        try:
            for plan in self._plans:
                futures[pool.submit(apply, kube, plan, is_current=False)] = plan
            self._collect(futures, echo)
        except RuntimeError as error:
            raise Unavailable(thread_fault(error)) from error
        finally:
            pool.shutdown(cancel_futures=True)
            self._collect_rest(futures, echo)

    def _collect(self, futures: Futures, echo: Callable[[str], None]) -> None:
        """Wait for one outcome after the other, until too many are the server's failures."""
        while futures and self._failures < MAX_FAILURES:
            future = next(iter(futures))
            outcome = future.result()
            self._record(futures.pop(future), outcome, echo)

    def _collect_rest(self, futures: Futures, echo: Callable[[str], None]) -> None:
        """Record the requests that had begun when the others were cancelled."""
        for future, plan in futures.items():
            if not future.cancelled():
                self._record(plan, future.result(), echo)

    def _record(self, plan: Plan, outcome: Outcome, echo: Callable[[str], None]) -> None:
        if fault := fault_of(plan, outcome):
            self.faults.append(fault)
        else:
            self._clean.add(plan.node)
        failure = outcome.failure
        is_servers = failure is not None and failure.kind not in OF_ONE_NODE
        self._failures = self._failures + 1 if is_servers else 0
        echo(done(outcome)[0])
