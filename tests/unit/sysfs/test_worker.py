"""Work that may block for good: what blocks costs its own result, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from agent.sysfs.worker import run_each

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE = 0.1
DEADLINE = (
    1.0  # for what blocks; far from the patience, so that a busy machine does not confuse them
)
PLENTY = 30.0  # for what does not


class Gate:
    """Items named in `shut` block until the test is over; every call is noted with its thread and
    its time.
    """

    def __init__(self, *shut: int) -> None:
        self.started: dict[int, float] = {}
        self.finished: dict[int, float] = {}
        self.threads: set[threading.Thread] = set()
        self.opened = threading.Event()
        self._shut = shut

    def __call__(self, item: int) -> str:
        self.threads.add(threading.current_thread())
        self.started[item] = time.monotonic()
        if item in self._shut:
            self.opened.wait(30)
        self.finished[item] = time.monotonic()
        return str(item)


@contextmanager
def gate(*shut: int) -> Iterator[Gate]:
    work = Gate(*shut)
    try:
        yield work
    finally:
        work.opened.set()
        for thread in work.threads:
            thread.join(5)


def test_every_item_has_its_result() -> None:
    """Results are by item, and an item that is named twice has one."""
    assert run_each(str, [1, 2, 3, 2], PLENTY) == {1: "1", 2: "2", 3: "3"}


def test_falsy_items_and_results_are_items_and_results() -> None:
    """None, 0 and "" are worked on like any other."""
    assert run_each(lambda item: item, [None, 0, ""], PLENTY) == {None: None, 0: 0, "": ""}


def test_no_thread_without_work() -> None:
    """With nothing to do, no thread is started and nothing is waited for."""
    before, start = threading.active_count(), time.monotonic()
    assert run_each(str, [], PLENTY, patience=PLENTY) == {}
    assert threading.active_count() <= before
    assert time.monotonic() - start < PLENTY / 3


def test_one_thread_when_nothing_blocks() -> None:
    """A hundred quick items are one thread's work, in order."""
    with gate() as work:
        run_each(work, range(100), PLENTY, patience=PLENTY)
        assert len(work.threads) == 1
        assert list(work.started) == list(range(100))


def test_steady_work_needs_one_thread() -> None:
    """It is one item that may take no longer than the patience, not all of them together."""
    with gate() as work:

        def steady(item: int) -> str:
            time.sleep(0.01)
            return work(item)

        run_each(steady, range(40), PLENTY, patience=0.3)
        assert len(work.threads) == 1


def test_threads_are_daemons_and_not_the_callers() -> None:
    """What blocks neither holds up its caller nor the end of the process."""
    with gate() as work:
        run_each(work, [1], PLENTY)
        (thread,) = work.threads
        assert thread.daemon
        assert thread is not threading.current_thread()


@pytest.mark.parametrize("blocked", [0, 2, 4])
def test_what_blocks_costs_only_itself(blocked: int) -> None:
    """The others are done within the patience, and the deadline ends the wait."""
    start = time.monotonic()
    with gate(blocked) as work:
        results = run_each(work, range(5), DEADLINE, patience=PATIENCE)
        took = time.monotonic() - start
        assert results == {item: str(item) for item in range(5) if item != blocked}
        assert max(work.finished.values()) - start < DEADLINE
        assert DEADLINE <= took < 3 * DEADLINE
        assert len(work.threads) <= 2


def test_several_that_block_cost_their_patience_each() -> None:
    """Each blocked item takes a thread of its own; the deadlines run side by side."""
    with gate(0, 1, 2, 3) as work:
        results = run_each(work, range(6), DEADLINE, patience=PATIENCE)
        assert results == {4: "4", 5: "5"}
        assert len(work.threads) == 5
        assert work.started[5] - work.started[0] < 2 * DEADLINE


def test_what_blocks_is_replaced_once() -> None:
    """The thread that took over is not taken for stuck as long as it comes along."""
    with gate(0) as work:

        def steady(item: int) -> str:
            time.sleep(0.01)
            return work(item)

        run_each(steady, range(100), DEADLINE, patience=0.3)
        assert len(work.threads) == 2


def test_all_blocked_is_no_result() -> None:
    """When everything blocks, the answer is empty and not late."""
    with gate(0, 1) as work:
        assert run_each(work, range(2), DEADLINE, patience=PATIENCE) == {}
        assert len(work.threads) == 2


def test_the_deadline_is_each_items_own() -> None:
    """Time that earlier items took is not taken from later ones."""

    def slow(item: int) -> int:
        time.sleep(0.15)
        return item

    assert run_each(slow, range(4), 0.4, patience=0.17) == {0: 0, 1: 1, 2: 2, 3: 3}


def test_the_last_result_ends_the_wait() -> None:
    """The caller goes on at once, not at the next tick of its patience."""
    start = time.monotonic()
    assert run_each(str, [1], PLENTY, patience=PLENTY) == {1: "1"}
    assert time.monotonic() - start < PLENTY / 3


@pytest.mark.parametrize("error", [ValueError("odd"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_surfaces(error: BaseException) -> None:
    """A bug in the work is the caller's to see, after the other items were worked on."""
    done = []

    def work(item: int) -> None:
        if item == 1:
            raise error
        done.append(item)

    with pytest.raises(type(error)) as caught:
        run_each(work, range(3), PLENTY)
    assert caught.value is error
    assert done == [0, 2]


def test_late_work_does_not_spoil_the_next_look() -> None:
    """What ends after its deadline is dropped, without an error in its thread and without touching
    the result.
    """
    with gate(0) as work:
        results = run_each(work, range(2), 0.3, patience=0.05)
        work.opened.set()
        for thread in work.threads:
            thread.join(5)
        assert 0 in work.finished
        assert results == {1: "1"}
        assert run_each(work, range(2), PLENTY) == {0: "0", 1: "1"}


def test_a_blocked_thread_does_not_hold_the_process(repository: Path) -> None:
    """Python ends although a read never does."""
    code = (
        "import threading; from agent.sysfs.worker import run_each\n"
        "print(run_each(lambda item: threading.Event().wait(), [1], 0.05), flush=True)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=repository, check=True, capture_output=True, text=True, timeout=10
    )
    assert (done.stdout, done.stderr) == ("{}\n", "")
