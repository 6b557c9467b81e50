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
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.errors import Unavailable
from agent.helper import process as child
from agent.helper.process import ForkServer
from agent.nvml.poller import by_fork_server
from benchmarks import cost
from tests.support import dead_filesystem, stand_in_nvml
from tests.support.processes import Started, with_environment
from tests.support.real_parts import lacks, require
from tests.support.stand_in_nvml import tray
from tests.support.switch import wait_for

Plan = Callable[..., None]
Left = Callable[[], list[Any]]  # processes


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build the stand-in libnvidia-ml."""
    require(lacks("cc"))
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
    gpus = by_fork_server(lambda _verb, _timeout: standby.standby, {})
    assert gpus()["error"]["call"] == "dlopen"
    later.mkdir()
    shutil.copy(library, later)
    assert gpus()["library"] == "libnvidia-ml.so.1"


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ("crash uuid 2", "killed by SIGABRT"),
        ("hang init -1", "no answer within 2 s$"),
        ("stop uuid 2", "no answer within 2 s$"),
    ],
)
def test_a_fork_that_ends_late_or_badly_costs_itself(
    library: str, plan: Plan, watched: Callable[..., Watched], line: str, end: str
) -> None:
    """It is killed at the deadline and waited for; the fork server answers the next call, and the
    next bad one in time.
    """
    standby = watched(2)
    for _ in range(2):
        plan(line)
        began = time.monotonic()
        with pytest.raises(Unavailable, match=f"helper nvml: {end}"):
            standby.call({"library": library})
        assert (2 if "within" in end else 0) <= time.monotonic() - began < 30
        assert forks(standby.helpers[0]) == []
        plan()
        assert len(standby.call({"library": library})["gpus"]) == 4
    assert len(standby.helpers) == 1


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Left]:
    """Return what this test has started and what runs; it is killed at the end."""
    monkeypatch.setenv("BWAGENT_TEST", str(tmp_path))
    look = partial(with_environment, f"BWAGENT_TEST={tmp_path}")
    yield look
    for process in look():
        with suppress(psutil.Error):
            process.kill()


ENDS = {
    "count 4": None,
    "fail init -1 9": None,
    "crash pci 0": "killed by SIGABRT",
    "hang fabric 1": "no answer within 2 s",
    "stop fabric 1": "no answer within 2 s",
}


@pytest.mark.parametrize("line", ENDS)
def test_what_a_library_starts_ends_with_the_call(
    library: str, plan: Plan, watched: Callable[..., Watched], left: Left, line: str
) -> None:
    """Sixty-six daemons, in sessions of their own, whatever the end of the fork."""
    standby, end = watched(2), ENDS[line]
    plan("daemon init -1 66", line)
    with pytest.raises(Unavailable, match=end) if end else nullcontext():
        standby.call({"library": library})
    # A busy machine may end the fork server, too.
    assert {process.pid for process in left()} <= {standby.helpers[0].pid}
    plan()
    assert len(standby.call({"library": library})["gpus"]) == 4


@pytest.mark.parametrize("case", [(signal.SIGSTOP, 3), (signal.SIGKILL, 3), (signal.SIGKILL, 0)])
def test_a_fork_server_that_is_stopped_or_killed_is_replaced(
    library: str, plan: Plan, watched: Callable[..., Watched], left: Left, case: tuple[int, int]
) -> None:
    """By hand or for want of memory: it and all that it has started end, and another one starts."""
    number, daemons = case
    standby = watched(10 if daemons else 300)  # without daemons it is not waited for
    plan(*(["daemon init -1 3"] if daemons else []), "hang fabric 1")
    # A busy machine may take longer to end a process than the call waits for it.
    late = r"helper nvml: no answer within 10 s(, and process \d+ was killed and has not ended)?$"
    killed = "helper nvml: killed by SIGKILL(: NVML)?$"
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(standby.call, {"library": library})
        wait_for(lambda: len(left()) == 2 + daemons)
        os.kill(standby.helpers[0].pid, number)
        # Daemons keep the pipe of a killed one open.
        end = late if number == signal.SIGSTOP else f"{late}|{killed}" if daemons else killed
        with pytest.raises(Unavailable, match=end) as caught:
            asking.result()
    if number == signal.SIGKILL or "has not ended" in str(caught.value):
        wait_for(lambda: not left())  # its daemons have another parent
    assert left() == []
    plan()
    assert len(standby.call({"library": library})["gpus"]) == 4


def test_a_fork_that_cannot_be_killed_stays_the_only_one(
    watched: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is in an uninterruptible sleep: no call is made until it has ended."""
    require(dead_filesystem.missing())
    monkeypatch.setattr(child, "KILL_TIMEOUT", 0.3)
    with dead_filesystem.mounted(tmp_path / "dead") as folder:
        standby = watched(1)
        asked = {"library": str(folder / "libnvidia-ml.so.1")}
        stuck = r"process \d+ is stuck in the kernel$"
        with pytest.raises(Unavailable, match=rf"helper nvml: no answer within 1 s, and {stuck}"):
            standby.call(asked)
        with pytest.raises(Unavailable, match=rf"helper nvml: {stuck}"):
            standby.call(asked)
        assert child.unended() == 1
    wait_for(lambda: child.unended() == 0)
    assert standby.call({"library": "/nowhere"})["error"]["call"] == "dlopen"
    assert len(standby.helpers) == 2


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
    "while True: print('x' * 100000, end='')": "longer than 8388608 bytes$",
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
import os, sys
from agent.helper.process import ForkServer, HelperProcesses
how, library = sys.argv[1:]
ask = ForkServer("nvml", 60).call if how == "fork server" else (
    lambda payload: HelperProcesses().call("nvml", payload, 60))
if how == "fork server":
    ask({"library": "/nowhere"})
print(flush=True)
if library:
    ask({"library": library})
sys.stdin.read()
"""


@contextmanager
def asking(how: str, library: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that asks, by a fork server or a helper process."""
    command = [sys.executable, "-c", ASK, how, library]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        assert parent.stdout.readline()
        yield parent
        parent.kill()


def test_a_fork_server_does_not_outlive_who_asks(left: Left) -> None:
    """After kill -9 of the agent between two calls, no process is left."""
    with asking("fork server", ""):
        wait_for(lambda: len(left()) == 2)
    wait_for(lambda: not left())


@pytest.mark.parametrize("how", ["fork server", "helper"])
@pytest.mark.parametrize("line", ["hang fabric 1", "stop fabric 1"])
def test_nothing_outlives_who_asks(
    library: str, plan: Plan, how: str, line: str, left: Left
) -> None:
    """After kill -9 of the agent in the middle of a call: neither helper, fork nor daemons."""
    plan("daemon init -1 3", line)
    with asking(how, library):
        wait_for(lambda: len(left()) == 6)
    wait_for(lambda: not left())
