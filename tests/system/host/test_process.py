"""Helper processes: their answers, and every way in which they end."""

from __future__ import annotations

import base64
import gc
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

import agent
from agent.errors import Unavailable
from agent.helper import process as child
from agent.helper.process import HelperProcesses, close_pipes
from agent.infiniband import sa, smp
from agent.infiniband.devices import SubnetPort, by_port
from agent.infiniband.exploration import explore, loaded, replaying
from agent.infiniband.walk import MAX_SILENT
from tests.support.kubeconfigs import kubeconfig
from tests.support.processes import Started, runs
from tests.support.switch import wait_for

Ask = Callable[..., list[dict[str, Any]]]


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
    """Return helpers that run this Python text instead."""
    return HelperProcesses(lambda _verb, _deadline_s: [sys.executable, "-I", "-S", "-c", text])


def test_every_port_has_its_own_outcome(ask: Ask) -> None:
    """Ten faults and a good port in one process; a fault costs its own port."""
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
    texts = {port["device"]: port["text"] for port in ports}
    assert [name for name in outcomes if texts[name]] == [*filter(outcomes.get, outcomes)]
    for name in ("silent", "absent", "not-permitted", "refused", "send-fails"):
        assert f"{name} port 1" in texts[name]
    [lost] = (port["exchanges"] for port in ports if port["device"] == "nameless")
    assert [one["error"] for one in lost] == [None, "no-answer"]  # the neighbor has no name


@pytest.mark.parametrize(("fault", "slack"), [("silent", 0.0), ("deaf", 0.2)])
def test_silent_ports_cost_as_much_as_one(ask: Ask, fault: str, slack: float) -> None:
    """Sixteen of them take two tries' time, not thirty-two."""
    start = time.monotonic()
    ports = ask(*(f"{fault}{number}" for number in range(16)), timeout_ms=200)
    took = time.monotonic() - start
    assert {port["error"] for port in ports} == {"no-answer"}
    assert 2 * 0.2 + slack <= took < 16 * 2 * 0.2


def test_only_gets_leave(ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every MAD that was sent, repetitions included, byte by byte."""
    log = tmp_path / "sent"
    monkeypatch.setenv("STAND_IN_LOG", str(log))
    ask("fine", "lossy", "nameless", "silent", "wrong-tid")
    sent = [bytes.fromhex(line.split()[2]) for line in log.read_text().splitlines()]
    assert len(sent) == 2 + 3 + 4 + 2 + 2
    for mad in sent:
        assert (mad[1], mad[3], mad[7]) == (0x81, 0x01, 1)
        smp.require_get(mad[:8] + bytes(4) + mad[12:])


LEAF_GUID = "b0cf0e0300d60001"


def test_the_switches_above_are_explored_and_looked_at(
    library: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only GetTables leave; what is recorded replays to the same, and a look is one question."""
    log = tmp_path / "sent"
    monkeypatch.setenv("STAND_IN_LOG", str(log))
    ports: list[Any] = [[["mlx5_0", 1, 22, 9, 2, 0, None], LEAF_GUID]]
    payload: dict[str, Any] = {"ports": ports, "library": library, "seconds": 5}
    answer = child.call("tiers", payload | {"record": True}, 10)
    found = loaded(answer)
    assert (len(found.tiers.tier_1), found.tiers.questions) == (4, 8)
    sent = [bytes.fromhex(line.split()[2]) for line in log.read_text().splitlines()]
    assert len(sent) == len(answer["ports"][0]["exchanges"]) == 10
    for mad in sent:
        assert (mad[1], mad[3]) == (0x03, 0x12)
        sa.require_get_table(mad[:8] + bytes(4) + mad[12:])
    asked = [(SubnetPort(*port), leaf) for port, leaf in ports]
    assert answer["outcomes"] == {"answered": 10}
    assert explore(asked, replaying(by_port(answer)), 0) == found._replace(outcomes={})
    uplinks = {leaf: [*at.items()] for leaf, at in found.tiers.uplinks.items()}
    payload |= {"uplinks": uplinks, "lids": found.lids}
    looked = child.call("tiers", payload, 10)
    assert (looked["agrees"], looked["lids"]) == (True, found.lids)
    assert looked["up"] == {leaf: sorted(at) for leaf, at in found.tiers.uplinks.items()}
    assert looked["outcomes"] == {"answered": 1}
    assert len(log.read_text().splitlines()) == 11


WALKS = {  # the line of the error, and the most SMPs
    "denied": (None, 70),
    "alone": (
        "SMP reply: b0cf0e0300d66c80 port 3 leads to b0cf0e0300d66c80 port 1, and to a host port 1",
        8,
    ),
    "astray": ("SMP reply: InitialPath is that of another route", 8),
    "dead-ends": ("mlx5_0 port 1: Connection timed out", 60),
    "maze": ("mlx5_0 port 1: no time is left to ask", 40_000),
}


@pytest.mark.parametrize("fault", WALKS)
def test_a_walk_by_smps_is_bounded(
    library: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str
) -> None:
    """The administrator is asked first. Only Gets leave; a link that cannot be, an answer to
    another route, none, and ports without end are one line.
    """
    (text, most), log = WALKS[fault], tmp_path / "sent"
    monkeypatch.setenv("STAND_IN", f"mlx5_0:{fault}")
    monkeypatch.setenv("STAND_IN_LOG", str(log))
    place = ["mlx5_0", 1, 22, 9, 2, 0, None, ["mlx5_0", 1]]
    payload = {"ports": [[place, "b0cf0e0300d66c80"]], "library": library, "smp_timeout_ms": 20}
    answer = child.call("tiers", payload | {"seconds": 2}, 60)
    asked = answer["outcomes"].pop("smps")
    assert (answer.get("error"), answer["outcomes"]) == (text, {"sa-refused": 1})
    first, *smps = [bytes.fromhex(line.split()[2]) for line in log.read_text().splitlines()]
    assert (first[1], 0 < len(smps) <= most) == (0x03, True)
    # no time is left for some, which are not sent: for a name, too
    assert 0 < asked <= len(smps) + MAX_SILENT + 2
    for mad in smps:
        smp.require_routed_get(mad[:8] + bytes(4) + mad[12:])
    if text is None:
        assert loaded(answer).tiers.reason == "top"
        assert "request denied" in answer["walked"][0]


def test_an_exploration_that_fails_is_one_line(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what was recorded until then."""
    monkeypatch.setenv("STAND_IN", "mlx5_0:denied")
    ports: list[Any] = [[["mlx5_0", 1, 22, 9, 2, 0, None], LEAF_GUID]]
    payload = {"ports": ports, "library": library, "seconds": 5, "record": True}
    answer = child.call("tiers", payload, 10)
    assert answer["error"] == "SA reply: Status is 0x0700 (request denied)"
    assert answer["outcomes"] == {"sa-refused": 1}
    assert len(answer["ports"][0]["exchanges"]) == 1


def test_a_child_that_crashes_is_named(ask: Ask) -> None:
    """A fault in the C library ends the child, not the agent."""
    with pytest.raises(Unavailable, match="helper smp: killed by SIGABRT"):
        ask("crash")


def test_a_child_that_hangs_is_killed_at_its_deadline(ask: Ask) -> None:
    """A call that never returns costs the deadline, and the next child starts as usual."""
    start = time.monotonic()
    with pytest.raises(Unavailable, match=r"helper smp: no answer within 0\.3 s$"):
        ask("hang", deadline_s=0.3)
    assert time.monotonic() - start < 30
    assert ask("fine")[0]["error"] is None


def test_a_process_that_cannot_be_killed_is_abandoned_and_stays_the_only_one(
    monkeypatch: pytest.MonkeyPatch, started: Started
) -> None:
    """No second one of its verb and subject while it is stuck; others may run; when it has ended,
    so may this one.
    """
    monkeypatch.setattr(child, "KILL_TIMEOUT", 0.05)
    texts = {"stuck": "import time; time.sleep(60)", "other": "print({})"}
    children = HelperProcesses(
        lambda verb, _timeout_s: [sys.executable, "-I", "-S", "-c", texts[verb]],
        started,
        kill=lambda _pid, _signal: None,  # as in an uninterruptible sleep
    )
    with pytest.raises(
        Unavailable, match=r"helper stuck a: .* process \d+ was killed and has not ended"
    ):
        children.call("stuck", {}, 0.2, "a")
    with pytest.raises(
        Unavailable, match=r"helper stuck a: process \d+ was killed and has not ended"
    ):
        children.call("stuck", {}, 5, "a")
    assert children.call("other", {}, 5) == {}
    assert child.known_pids() >= {started[0].pid}

    texts["stuck"] = texts["other"]
    assert children.call("stuck", {}, 5, "b") == {}
    os.kill(started[0].pid, signal.SIGKILL)
    started[0].wait(5)
    assert children.call("stuck", {}, 5, "a") == {}
    assert not child.known_pids() & {one.pid for one in started}


def test_abandoned_processes_are_bounded(monkeypatch: pytest.MonkeyPatch, started: Started) -> None:
    """Each holds memory, so there is a limit for a verb."""
    monkeypatch.setattr(child, "KILL_TIMEOUT", 0.01)
    monkeypatch.setattr(child, "MAX_STUCK", 2)
    sleep = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]
    children = HelperProcesses(lambda *_: sleep, started, kill=lambda _pid, _signal: None)
    for subject in "ab":
        with pytest.raises(Unavailable, match="was killed and has not ended"):
            children.call("smp", {}, 0.01, subject)
    with pytest.raises(Unavailable, match="helper smp: 2 were killed and have not ended"):
        children.call("smp", {}, 0.01, "c")
    assert len(started) == 2


ORPHAN = """
import subprocess, sys, time
sleeping = subprocess.Popen(["sleep", "60"])
print('{"pid": %d}' % sleeping.pid, flush=True)
"""


def test_what_a_helper_starts_ends_with_its_timeout(tmp_path: Path) -> None:
    """A grandchild that sleeps is killed with the process group."""
    text = f"{ORPHAN}open({str(tmp_path / 'pid')!r}, 'w').write(str(sleeping.pid)); time.sleep(60)"
    with pytest.raises(Unavailable, match=r"no answer within 1 s$"):
        script(text).call("v", {}, 1)
    wait_for(lambda: not runs(int((tmp_path / "pid").read_text())))


def test_what_a_helper_leaves_behind_ends_with_the_call() -> None:
    """A helper that answers and ends, but leaves a process that has closed its pipes."""
    quiet = ORPHAN.replace('"60"]', '"60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL')
    pid = script(quiet).call("v", {}, 5)["pid"]
    wait_for(lambda: not runs(pid))


ESCAPE = """
import os, subprocess, sys, time
quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
escaped = subprocess.Popen(["sleep", "60"], start_new_session=True, **quiet)
open(PATH, "w").write(str(escaped.pid))
"""


def test_what_left_the_process_group_ends_with_the_timeout(tmp_path: Path) -> None:
    """A child of the helper in a session of its own."""
    path = tmp_path / "pid"
    with pytest.raises(Unavailable, match=r"no answer within 1 s$"):
        script(f"PATH = {str(path)!r}{ESCAPE}time.sleep(60)").call("v", {}, 1)
    wait_for(lambda: not runs(int(path.read_text())))
    assert child.unended() == 0


class Killed:
    """A killed process, as `expect_end` gets it; asking for its state takes until `answers`."""

    def __init__(self, answers: threading.Event) -> None:
        self._answers = answers

    def is_running(self) -> bool:
        self._answers.wait(5)
        return False


def test_a_scrape_does_not_keep_others_from_the_helpers() -> None:
    """The kernel takes its time to tell of a killed process: helpers start and end meanwhile."""
    answers = threading.Event()
    child.expect_end([cast("Any", Killed(answers))])
    with ThreadPoolExecutor() as threads:
        scrape = threads.submit(child.unended)
        try:
            threads.submit(child.known_pids).result(1)
        finally:
            answers.set()
        assert scrape.result(5) == 0


def test_killed_processes_are_forgotten_without_a_scrape() -> None:
    """An agent without Prometheus does not collect them."""
    ended = threading.Event()
    ended.set()
    killed = Killed(ended)
    known = weakref.ref(killed)
    child.expect_end([cast("Any", killed)])
    del killed
    child.expect_end([])
    gc.collect()
    assert known() is None


def test_a_daemon_of_a_helper_ends_with_its_answer(tmp_path: Path) -> None:
    """Its parent, a child of the helper, has ended before: the helper adopts it."""
    path = tmp_path / "pid"
    boot = (
        f"import sys, subprocess; sys.path[:0] = {sys.path!r}\n"
        f"daemon = {f'PATH = {str(path)!r}{ESCAPE}'!r}\n"
        "from agent.helper import main as helper\n"
        "run = lambda _: {'status': subprocess.run([sys.executable, '-c', daemon]).returncode}\n"
        "helper.VERBS['v'] = run\n"
        "sys.exit(helper.main(['v']))"
    )
    assert script(boot).call("v", {}, 20) == {"status": 0}
    wait_for(lambda: not runs(int(path.read_text())))


def is_left(count: int) -> bool:
    """Return True once so many killed processes live."""
    return child.unended() == count


def test_what_cannot_be_killed_is_counted_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: Started
) -> None:
    """The helper and its child, each on its own."""
    monkeypatch.setattr(child, "KILL_TIMEOUT", 0.05)
    path = tmp_path / "pid"
    text = f"PATH = {str(path)!r}{ESCAPE}print(os.getpid(), file=open(PATH, 'a')); time.sleep(60)"
    text = text.replace("str(escaped.pid)", "str(escaped.pid) + ' '")
    command = [sys.executable, "-I", "-S", "-c", text]
    immortal = HelperProcesses(lambda *_: command, started, kill=lambda _pid, _signal: None)
    with pytest.raises(Unavailable, match="was killed and has not ended"):
        immortal.call("v", {}, 1)
    assert child.unended() == 2
    for left, pid in ((1, path.read_text().split()[0]), (0, path.read_text().split()[1])):
        os.kill(int(pid), signal.SIGKILL)
        wait_for(partial(is_left, left))


def test_a_credential_plugin_ends_with_the_timeout(tmp_path: Path) -> None:
    """It is a grandchild, and waits for a person or for a server of its own."""
    plugin = f"echo $$ >{tmp_path}/pid; exec sleep 60"
    run = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", plugin],
        "interactiveMode": "Never",
    }
    path = kubeconfig(tmp_path / "config", user={"exec": run})
    request = {"path": str(path), "context": None}
    with pytest.raises(Unavailable, match=r"helper kubeconfig: no answer within 3 s$"):
        child.call("kubeconfig", request, 3)
    wait_for(lambda: not runs(int((tmp_path / "pid").read_text())))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which temporary files are made."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_temporary_files_go_with_the_helper(temporary: Path) -> None:
    """They are in a folder that no other user may read, and are removed however the helper ends."""
    text = """
import os, tempfile, time
name = tempfile.mkstemp()[1]
print('{"name": "%s", "mode": %d}' % (name, os.stat(os.path.dirname(name)).st_mode), flush=True)
"""
    answer = script(text).call("v", {}, 5)
    assert Path(answer["name"]).is_relative_to(temporary)
    assert stat.S_IMODE(answer["mode"]) == 0o700
    for end in ("1/0", "time.sleep(60)"):
        with pytest.raises(Unavailable):
            script(text + end).call("v", {}, 1)
    assert list(temporary.iterdir()) == []


def test_inline_keys_of_a_kubeconfig_leave_no_file(temporary: Path, tmp_path: Path) -> None:
    """The Kubernetes client writes them to files, which it does not remove when it is killed."""
    inline = base64.b64encode(b"a private key").decode()
    user = {"client-key-data": inline, "client-certificate-data": inline}
    ca = {"certificate-authority-data": inline}
    path = kubeconfig(tmp_path / "config", user=user, **ca)
    request = {"path": str(path), "context": None}
    assert child.call("kubeconfig", request, 20)["key"] == "a private key"
    assert list(temporary.iterdir()) == []


def test_without_a_folder_for_temporary_files_a_helper_runs_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root file system may be read-only, without a mount on /tmp."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert script("print({})").call("v", {}, 5) == {}


def test_running_helpers_are_known(tmp_path: Path) -> None:
    """From their start until they have been waited for."""
    text = f"import os; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); input()"
    process = child.start(
        subprocess.Popen, [sys.executable, "-I", "-S", "-c", text], stdin=subprocess.PIPE
    )
    assert process.pid in child.known_pids()
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    assert int((tmp_path / "pid").read_text()) == process.pid
    assert os.getsid(process.pid) == process.pid
    child.kill_group(process)
    assert child.wait(process, 5) == -signal.SIGKILL
    close_pipes(process)
    assert process.pid not in child.known_pids()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("print('no JSON')", "helper v: its answer is not a JSON object$"),
        ("1/0", "ended with status 1: ZeroDivisionError: division by zero$"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL$"),
        ("while True: print('x' * 100000)", "longer than 8388608 bytes"),
    ],
)
def test_nonsense_is_unavailable_and_names_the_verb(text: str, complaint: str) -> None:
    """Whatever it says, it is one line (tests/unit/helper/test_answer.py has them)."""
    with pytest.raises(Unavailable, match=complaint) as caught:
        script(text).call("v", {}, 5)
    assert str(caught.value).startswith("helper v: ")


def test_a_flood_on_stderr_does_not_stop_the_answer() -> None:
    """Only its end is kept."""
    assert script("import sys; sys.stderr.write('y' * 10**7); print('{}')").call("v", {}, 10) == {}


def test_a_payload_larger_than_a_pipe_arrives() -> None:
    """Writing it does not block: stdin is a file."""
    payload = {"x": "y" * 10**6}
    echo = script("import sys, json; print(json.dumps({'length': len(json.load(sys.stdin)['x'])}))")
    assert echo.call("v", payload, 10) == {"length": 10**6}


def test_a_program_that_is_not_there_is_unavailable() -> None:
    """No traceback for a missing interpreter."""
    with pytest.raises(Unavailable, match="helper v: cannot be started"):
        HelperProcesses(lambda _verb, _deadline_s: ["/nonexistent/python"]).call("v", {}, 5)


def test_an_unknown_verb_is_unavailable() -> None:
    """The last line of the helper's traceback is the explanation."""
    with pytest.raises(Unavailable, match="helper dance: ended with status 1: KeyError: 'dance'"):
        child.call("dance", {}, 5)


def test_what_a_library_prints_is_not_taken_for_the_answer() -> None:
    """The answer has stdout to itself."""
    boot = (
        f"import sys, os; sys.path.append({str(Path(agent.__file__).parents[1])!r});"
        "from agent.helper import main as helper;"
        "helper.VERBS['v'] = lambda payload: {'wrote': os.write(1, b'noise')};"
        "sys.exit(helper.main(['v']))"
    )
    assert script(boot).call("v", {}, 5) == {"wrote": 5}


def test_a_child_whose_parent_is_gone_ends_by_itself(library: str) -> None:
    """Its alarm ends it inside a C library too."""
    assert alone(library).returncode == -signal.SIGALRM


@pytest.mark.parametrize("how", ["ignored", "blocked"])
def test_signals_of_the_parent_do_not_matter(library: str, how: str) -> None:
    """A supervisor may have left SIGALRM and SIGCHLD ignored or blocked."""
    signals = (signal.SIGALRM, signal.SIGCHLD)

    def inherit() -> None:
        for one in signals if how == "ignored" else ():
            signal.signal(one, signal.SIG_IGN)
        if how == "blocked":
            signal.pthread_sigmask(signal.SIG_BLOCK, signals)

    assert alone(library, preexec_fn=inherit).returncode == -signal.SIGALRM


def alone(library: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a helper that hangs, without a parent that ends it."""
    payload = f'{{"ports": [["mlx5_0", 1]], "library": "{library}"}}'
    return subprocess.run(
        child.command("smp", 0),
        input=payload.encode(),
        env=os.environ | {"STAND_IN": "mlx5_0:hang"},
        timeout=60,
        capture_output=True,
        check=False,
        **options,
    )


ASK = """
import sys
from agent.kube.api import connect
connect(sys.argv[1])({"operation": "get", "node": "n"})
"""


def test_a_request_does_not_outlive_who_made_it(tmp_path: Path) -> None:
    """After kill -9 of the agent, its request does not reach a slow API server a minute later."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        path = kubeconfig(tmp_path / "config", url, {})
        with subprocess.Popen([sys.executable, "-c", ASK, str(path)]) as parent:
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
        timeout=60,
        capture_output=True,
        check=True,
    )
    assert json.loads(run.stdout) == {"ports": []}
