"""Helpers: what they answer, and how they may die without holding anything up."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import agent
from agent.errors import Unavailable
from agent.helper import process as child
from agent.helper.process import HelperProcesses
from agent.infiniband import smp
from tests.support import stand_in
from tests.support.real_parts import require

if TYPE_CHECKING:
    from collections.abc import Callable

    Ask = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build the stand-in libibumad."""
    require(stand_in.missing())
    return stand_in.build(tmp_path_factory.mktemp("stand-in"))


@pytest.fixture
def ask(library: str, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Ask the helper about ports; each device is named after its fault."""

    def ask(*faults: str, timeout_ms: int = 100, deadline_s: float = 10) -> list[dict[str, Any]]:
        monkeypatch.setenv(
            "STAND_IN", ",".join(f"{fault}:{fault.rstrip('0123456789')}" for fault in faults)
        )
        payload = {
            "ports": [[fault, 1] for fault in faults],
            "library": library,
            "timeout_ms": timeout_ms,
        }
        ports: list[dict[str, Any]] = child.call("smp", payload, deadline_s)["ports"]
        return ports

    return ask


def script(text: str) -> HelperProcesses:
    """Helpers that run this Python text instead."""
    return HelperProcesses(lambda _verb, _deadline_s: [sys.executable, "-I", "-S", "-c", text])


def test_every_port_has_its_own_outcome(ask: Ask) -> None:
    """Eight faults and a good port in one child; each costs itself."""
    outcomes = {
        "fine": None,
        "lossy": None,
        "nameless": None,
        "wrong-tid": None,
        "silent": "no-answer",
        "short": "malformed",
        "busy": "malformed",
        "absent": "no-umad",
        "not-permitted": "not-permitted",
        "refused": "refused",
        "send-fails": "send-failed",
    }
    ports = ask(*outcomes)
    assert {port["device"]: port["error"] for port in ports} == outcomes
    assert all((port["error"] is None) == (port["text"] is None) for port in ports)


def test_a_lost_description_is_recorded_as_lost(ask: Ask) -> None:
    """The neighbour is there all the same, and the exchanges say what was not answered."""
    [port] = ask("nameless")
    assert [one["error"] for one in port["exchanges"]] == [None, "no-answer", "no-answer"]


@pytest.mark.parametrize(("fault", "slack"), [("silent", 0.0), ("deaf", 0.2)])
def test_silent_ports_cost_as_much_as_one(ask: Ask, fault: str, slack: float) -> None:
    """Sixteen of them take two tries' time, not thirty-two."""
    start = time.monotonic()
    ports = ask(*(f"{fault}{number}" for number in range(16)), timeout_ms=200)
    took = time.monotonic() - start
    assert {port["error"] for port in ports} == {"no-answer"}
    assert 2 * 0.2 + slack <= took < 16 * 2 * 0.2


def test_only_gets_leave(ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every MAD that went out, repetitions included, byte by byte."""
    log = tmp_path / "sent"
    monkeypatch.setenv("STAND_IN_LOG", str(log))
    ask("fine", "lossy", "nameless", "silent", "wrong-tid")
    sent = [bytes.fromhex(line.split()[2]) for line in log.read_text().splitlines()]
    assert len(sent) == 3 + 4 + 5 + 2 + 3
    for mad in sent:
        assert (mad[1], mad[3], mad[7]) == (0x81, 0x01, 1)
        smp.require_get(mad[:8] + bytes(4) + mad[12:])


def test_a_child_that_crashes_is_named(ask: Ask) -> None:
    """A fault in the C library ends the child, not the agent."""
    with pytest.raises(Unavailable, match="helper smp: killed by SIGABRT"):
        ask("crash")


def test_a_child_that_hangs_is_killed_at_its_deadline(ask: Ask) -> None:
    """A call that never returns costs the deadline, and the next child starts as usual."""
    start = time.monotonic()
    with pytest.raises(Unavailable, match=r"helper smp: no answer within 0\.3 s$"):
        ask("hang", deadline_s=0.3)
    assert time.monotonic() - start < 1
    assert ask("fine")[0]["error"] is None


class Unkillable(subprocess.Popen[bytes]):
    """A process in an uninterruptible sleep: it takes no signal."""

    def kill(self) -> None:
        """Try, in vain."""


def test_a_child_that_cannot_be_killed_is_left_behind_and_stays_the_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No second of its kind while it is stuck; another kind may run; when it is gone, so may this
    one.
    """
    monkeypatch.setattr(child, "KILL_TIMEOUT", 0.05)
    texts = {"stuck": "import time; time.sleep(60)", "other": "print({})"}
    started: list[Unkillable] = []

    def popen(*arguments: Any, **options: Any) -> Unkillable:
        started.append(Unkillable(*arguments, **options))
        return started[-1]

    children = HelperProcesses(
        lambda verb, _deadline_s: [sys.executable, "-I", "-S", "-c", texts[verb]], popen
    )
    with pytest.raises(Unavailable, match=r"process \d+ cannot be killed"):
        children.call("stuck", {}, 0.2)
    with pytest.raises(Unavailable, match=r"process \d+ is still stuck"):
        children.call("stuck", {}, 5)
    assert children.call("other", {}, 5) == {}

    os.kill(started[0].pid, signal.SIGKILL)
    started[0].wait(5)
    texts["stuck"] = texts["other"]
    assert children.call("stuck", {}, 5) == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("print('no JSON')", "helper v: its answer is no JSON object$"),
        ("print('[1]')", "no JSON object"),
        ("print('\\xff')", "no JSON object"),
        ("", "no JSON object"),
        (
            "import sys; print('{'); print('one\\ntwo\\033', file=sys.stderr)",
            r"no JSON object: two\\x1b$",
        ),
        ("raise SystemExit('gone wrong')", "ended with status 1: gone wrong$"),
        ("1/0", "ended with status 1: ZeroDivisionError: division by zero$"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL$"),
        ("while True: print('x' * 100000)", "longer than 1048576 bytes"),
    ],
)
def test_nonsense_is_unavailable_and_names_the_verb(text: str, complaint: str) -> None:
    """The last line of its stderr is quoted, made printable."""
    with pytest.raises(Unavailable, match=complaint) as caught:
        script(text).call("v", {}, 5)
    assert str(caught.value).startswith("helper v: ")


def test_a_flood_on_stderr_does_not_stop_the_answer() -> None:
    """Only its end is kept."""
    assert script("import sys; sys.stderr.write('y' * 10**7); print('{}')").call("v", {}, 10) == {}


def test_a_payload_larger_than_a_pipe_arrives() -> None:
    """Nobody has to read while it is written."""
    payload = {"x": "y" * 10**6}
    echo = script("import sys, json; print(json.dumps({'length': len(json.load(sys.stdin)['x'])}))")
    assert echo.call("v", payload, 10) == {"length": 10**6}


def test_a_program_that_is_not_there_is_unavailable() -> None:
    """No traceback for a missing interpreter."""
    with pytest.raises(Unavailable, match="helper v: cannot be started"):
        HelperProcesses(lambda _verb, _deadline_s: ["/nonexistent/python"]).call("v", {}, 5)


def test_an_unknown_verb_is_unavailable() -> None:
    """The helper's own traceback is the explanation."""
    with pytest.raises(Unavailable, match="helper dance: ended with status 1: KeyError: 'dance'"):
        child.call("dance", {}, 5)


def test_what_a_library_prints_is_not_taken_for_the_answer() -> None:
    """Standard output is the answer's alone."""
    boot = (
        f"import sys, os; sys.path.append({str(Path(agent.__file__).parents[1])!r});"
        "from agent.helper import main as helper;"
        "helper.VERBS['v'] = lambda payload: {'wrote': os.write(1, b'noise')};"
        "sys.exit(helper.main(['v']))"
    )
    assert script(boot).call("v", {}, 5) == {"wrote": 5}


def test_a_child_whose_parent_is_gone_ends_by_itself(library: str) -> None:
    """Its own alarm works even inside a C library."""
    command = child.command("smp", 0)
    payload = f'{{"ports": [["mlx5_0", 1]], "library": "{library}"}}'
    run = subprocess.run(
        command,
        input=payload.encode(),
        env=os.environ | {"STAND_IN": "mlx5_0:hang"},
        timeout=10,
        capture_output=True,
        check=False,
    )
    assert run.returncode == -signal.SIGALRM


ASK = """
import sys
from agent.helper import process as child
request = {"operation": "get", "node": "n", "kubeconfig": sys.argv[1], "timeout_s": 60}
child.call("kube", request, 60)
"""


def test_a_request_does_not_outlive_who_made_it(tmp_path: Path) -> None:
    """Killed with -9 while the API server is slow: nobody is left to say a minute later what was
    true then.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        where = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.getsockname()[1]}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": ""}}
        config = {"current-context": "c", "clusters": [where], "contexts": [context], "users": []}
        (tmp_path / "config").write_text(json.dumps(config))
        with subprocess.Popen([sys.executable, "-c", ASK, str(tmp_path / "config")]) as parent:
            connection, _ = server.accept()
            parent.kill()
        with connection:
            connection.settimeout(20)
            while connection.recv(4096):
                pass


def test_the_helper_runs_as_a_module_too() -> None:
    """`python -m agent.helper.main smp`, for a person with a shell."""
    run = subprocess.run(
        [sys.executable, "-m", "agent.helper.main", "smp"],
        input=b'{"ports":[]}',
        timeout=10,
        capture_output=True,
        check=True,
    )
    assert json.loads(run.stdout) == {"ports": []}
