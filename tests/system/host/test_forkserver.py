"""The fork server: it answers as a helper process does, and survives every end of a fork."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from agent.errors import Unavailable
from agent.helper import process as child
from agent.helper.process import ForkServer
from agent.nvml.poller import by_fork_server
from benchmarks import cost
from tests.support import stand_in_nvml
from tests.support.processes import Started, runs
from tests.support.real_parts import require
from tests.support.stand_in_nvml import tray
from tests.support.switch import wait_for

Plan = Callable[..., None]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build the stand-in libnvidia-ml."""
    require(stand_in_nvml.missing())
    return stand_in_nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Set what the GPUs report from now on; all is well at first."""
    monkeypatch.setenv("STAND_IN_NVML", str(tmp_path / "plan"))

    def write(*lines: str) -> None:
        (tmp_path / "plan").write_text(tray(*lines))

    write()
    return write


class Watched:
    """A fork server whose processes are known."""

    def __init__(self, deadline_s: float = 10, text: str | None = None) -> None:
        self.helpers = Started()
        command = (
            {"command_line": lambda *_: [sys.executable, "-I", "-S", "-c", text]} if text else {}
        )
        self.standby = ForkServer("nvml", deadline_s, popen=self.helpers, **command)
        self.call = self.standby.call


@pytest.fixture
def watched() -> Iterator[Callable[..., Watched]]:
    """Make fork servers, and kill those that are left."""
    with ExitStack() as stack:

        def make(*arguments: Any, **options: Any) -> Watched:
            made = Watched(*arguments, **options)
            stack.enter_context(made.helpers)
            return made

        yield make


def forks(helper: subprocess.Popen[bytes]) -> list[int]:
    return cost.family(helper.pid)[1:]


def test_it_answers_as_a_child_does(
    library: str, plan: Plan, watched: Callable[..., Watched]
) -> None:
    """Repeatedly, by one process that never loads the library, with what is true at that moment."""
    standby, question = watched(), {"library": library}
    for lines in ((), ("count 3",), ("dirty",), ()):
        plan(*lines)
        assert standby.call(question) == child.call("nvml", question, 10)
    [helper] = standby.helpers
    assert forks(helper) == []
    assert "nvidia" not in Path(f"/proc/{helper.pid}/maps").read_text()


def test_without_a_library(watched: Callable[..., Watched]) -> None:
    """A missing library is an answer, and an empty payload is a query."""
    assert watched().call({"library": "/nowhere"})["error"]["call"] == "dlopen"
    assert watched().call({}) == child.call("nvml", {}, 10)


def test_a_library_in_a_folder_that_came_later(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watched: Callable[..., Watched]
) -> None:
    """A driver that is installed while the agent runs, in a folder that did not exist, is found."""
    later = tmp_path / "later"
    monkeypatch.setenv("LD_LIBRARY_PATH", str(later))
    standby = watched()
    gpus = by_fork_server(lambda _verb, _timeout: standby.standby, {})["gpus"]
    assert gpus()["error"]["call"] == "dlopen"
    later.mkdir()
    shutil.copy(library, later)
    assert gpus()["library"] == "libnvidia-ml.so.1"


def test_a_crash_costs_the_fork(library: str, plan: Plan, watched: Callable[..., Watched]) -> None:
    """The message has its last line of stderr; the fork server answers the next call."""
    standby = watched()
    plan("crash uuid 2")
    for _ in range(2):
        with pytest.raises(Unavailable, match="helper nvml: killed by SIGABRT"):
            standby.call({"library": library})
    plan()
    assert len(standby.call({"library": library})["gpus"]) == 4
    assert len(standby.helpers) == 1


def test_a_hang_costs_the_deadline(
    library: str, plan: Plan, watched: Callable[..., Watched]
) -> None:
    """The fork is killed and waited for; the fork server answers the next call, and the next late
    one in time.
    """
    standby = watched(2)
    for _ in range(2):
        plan("hang init -1")
        began = time.monotonic()
        with pytest.raises(Unavailable, match=r"helper nvml: no answer within 2 s$"):
            standby.call({"library": library})
        assert 2 <= time.monotonic() - began < 30
        assert forks(standby.helpers[0]) == []
        plan()
        assert len(standby.call({"library": library})["gpus"]) == 4
    assert len(standby.helpers) == 1


SLOW = """
import sys, time
for number, line in enumerate(sys.stdin):
    if number == 0:
        print("half an ans", end="", flush=True)
        time.sleep(4)
    print("{}\\n0" if number else "wer\\n-9", flush=True)
"""


def test_a_fork_that_cannot_be_killed_stays_the_only_one(
    watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call is made while it is stuck; what it writes when it ends is the answer to no later
    call.
    """
    monkeypatch.setattr(child, "KILL_TIMEOUT", 0.05)
    standby = watched(0.3, text=SLOW)
    with pytest.raises(
        Unavailable, match=r"no answer within 0\.3 s, and a fork of process \d+ cannot be killed$"
    ):
        standby.call({})
    with pytest.raises(Unavailable, match=r"a fork of process \d+ is still stuck in the kernel$"):
        standby.call({})
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with suppress(Unavailable):
            assert standby.call({}) == {}
            break
        time.sleep(0.1)
    assert standby.call({}) == {}
    assert len(standby.helpers) == 1


def test_a_fork_dies_with_its_helper(
    library: str, plan: Plan, watched: Callable[..., Watched]
) -> None:
    """The fork server is killed while its fork hangs: nothing is left, and the next call starts
    another.
    """
    standby = watched()
    plan()
    standby.call({"library": library})
    plan("hang init -1")
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(standby.call, {"library": library})
        wait_for(lambda: forks(standby.helpers[0]))
        [fork] = forks(standby.helpers[0])
        os.kill(standby.helpers[0].pid, signal.SIGKILL)
        with pytest.raises(Unavailable, match=r"helper nvml: killed by SIGKILL$"):
            asking.result(5)
    wait_for(lambda: not runs(fork))
    plan()
    assert len(standby.call({"library": library})["gpus"]) == 4


def test_a_helper_that_was_killed_in_its_sleep_is_replaced(
    library: str, plan: Plan, watched: Callable[..., Watched]
) -> None:
    """Between two calls nothing is lost, and no error is reported."""
    standby = watched()
    plan()
    standby.call({"library": library})
    standby.helpers[0].send_signal(signal.SIGKILL)
    standby.helpers[0].wait(5)
    assert len(standby.call({"library": library})["gpus"]) == 4
    assert len(standby.helpers) == 2


ODD = {
    "import sys; sys.exit('gone wrong')": "ended with status 1: gone wrong$",
    "import os; os.kill(os.getpid(), 9)": "killed by SIGKILL$",
    "while input() == '{}': print('no JSON\\n0')": "its answer is not a JSON object$",
    "while input() == '{}': print('{}\\nzero')": "its answer is not a JSON object$",
    "while input() == '{}': print('{}\\n0\\n{}\\n0')": "its answer is not a JSON object$",
    "input(); print('{}')": "its answer is not a JSON object$",
    "while True: print('x' * 100000, end='')": "longer than 1048576 bytes$",
    "while input() == '{}': sys.stderr.write(9**6 * 'a' + '\\nx'); print('\\n3')": "status 3: x$",
}


@pytest.mark.parametrize("text", ODD)
def test_a_helper_that_makes_no_sense(text: str, watched: Callable[..., Watched]) -> None:
    """It is stopped or called again, and none of its output is taken for the next answer."""
    standby = watched(
        5, text=f"import functools, sys\nprint = functools.partial(print, flush=True)\n{text}"
    )
    for _ in range(2):
        with pytest.raises(Unavailable, match=ODD[text]) as caught:
            standby.call({})
        assert str(caught.value).startswith("helper nvml: ")


def test_no_interpreter() -> None:
    """A command that does not exist is no traceback."""
    with pytest.raises(Unavailable, match="helper nvml: cannot be started"):
        ForkServer("nvml", 5, lambda *_: ["/nonexistent/python"]).call({})


def test_a_verb_that_nobody_stands_by_for() -> None:
    """A verb without preloaded modules has no fork server."""
    with pytest.raises(Unavailable, match="helper smp: ended with status 1: KeyError: 'smp'"):
        ForkServer("smp", 5).call({})


ASK = """
import sys
from agent.helper.process import ForkServer
from tests.support.processes import Started
helpers = Started()
standby = ForkServer("nvml", 5, popen=helpers)
standby.call({"library": "/nowhere"})
print(helpers[0].pid, flush=True)
sys.stdin.read()
"""


def test_it_does_not_outlive_who_asks() -> None:
    """After kill -9 of the agent, no process is left."""
    with subprocess.Popen(
        [sys.executable, "-c", ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout
        helper = int(parent.stdout.readline())
        assert Path(f"/proc/{helper}").exists()
        parent.kill()
    wait_for(lambda: not runs(helper))
