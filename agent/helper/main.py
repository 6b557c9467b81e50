"""Run one verb in a process of its own: `python -m agent.helper.main VERB [SECONDS [PARENT]]`.

A verb is a callable from one JSON object (stdin) to another (stdout). It has SECONDS to answer;
PARENT is the process ID whose end ends it too. `serve_forks` is the other entry point: a process
that stays and runs a verb for each line of stdin (agent/helper/process.py).

    parent ── this process, the subreaper ── fork: the verb ── processes of a library or plugin

Invariants:
- Code that may crash, hang or leave something mapped runs in the fork, and ends with it. This
  process does nothing but wait: for the end of the fork, of SECONDS or of the parent.
- Nothing that the fork has started outlives it. Orphans become children of this process, whatever
  their session, and all of its children are killed before it reports the end of the fork.
- A verb does its own imports, so that no verb pays for another's. `typing` is for
  annotations only: it would be 0.5 MB of the fork server's 8.
- An error of one subject (a port, a GPU) is part of the answer. An exception that escapes is a bug;
  the parent (agent/helper/process.py) quotes the last line of the traceback.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

TYPE_CHECKING = False  # a type checker takes it for that of `typing`
if TYPE_CHECKING:
    from typing import Any, NoReturn

    Verb = Callable[[dict[str, Any]], dict[str, Any]]

# include/uapi/linux/prctl.h
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
TIMEOUT_MS = 500
TRIES = 2
SA_TIMEOUT_MS = 2000
PARENT_INTERVAL = 0.5  # seconds between two looks whether the parent lives
KILL_INTERVAL = 0.1  # seconds after which a process that lives is killed again
MAX_KILLS = 20  # if there is no parent any more


def smp(payload: dict[str, Any]) -> dict[str, Any]:
    """Query the far ends of InfiniBand ports, all at once.

    In: {"ports": [["mlx5_0", 1], ...], "timeout_ms": 500, "library": "libibumad.so.3"}; only ports
    is required.
    Out: {"ports": [{"device", "port", "exchanges": [{"request": hex, "reply": hex | null, "error":
    reason | null}], "error": reason | null, "text": text | null}]}. Reasons are those of
    agent.reasons.NeighborReason. A port whose `error` is null has a neighbor, which
    `agent.infiniband.smp.replay` decodes from the exchanges.
    """
    from agent.infiniband.query import query_ports
    from agent.infiniband.umad import opener

    queries = query_ports(
        opener(payload.get("library")),
        [(device, port) for device, port in payload["ports"]],
        payload.get("timeout_ms", TIMEOUT_MS),
        TRIES,
    )
    return {"ports": [query.as_json() for query in queries]}


def sa(payload: dict[str, Any]) -> dict[str, Any]:
    """Ask the subnet administrator for the far ends of InfiniBand ports, one after the other.

    In: {"ports": [[device, number, lid, sm_lid, sm_sl, pkey_index, subnet_prefix], ...],
    "library": "libibumad.so.3"}; only ports is required (agent.infiniband.devices.SubnetPort).
    Out: as that of `smp`; agent/infiniband/sa.py decodes the exchanges.
    """
    from agent.infiniband.devices import SubnetPort
    from agent.infiniband.query import query_sa
    from agent.infiniband.umad import opener

    ports = [SubnetPort(*port) for port in payload["ports"]]
    open_port = opener(payload.get("library"))
    queries = query_sa(open_port, ports, SA_TIMEOUT_MS)
    return {"ports": [query.as_json() for query in queries]}


def tiers(payload: dict[str, Any]) -> dict[str, Any]:
    """Explore the switches above leaves; `agent.infiniband.query.query_tiers` has in and out."""
    from agent.infiniband.query import query_tiers
    from agent.infiniband.umad import opener

    return query_tiers(opener(payload.get("library")), payload)


def perf(payload: dict[str, Any]) -> dict[str, Any]:
    """Read the error counters of both ends of links; of those with errors a second time.

    In: {"ports": [[device, number, [device, number], far port, far LID | null, seconds], ...],
    "root": of sysfs, "library": "libibumad.so.3"}; only ports and root are required
    (agent.infiniband.devices.CounterPort).
    Out: {"ports": [{"device", "port", "far_port", "readings": [{"time", "near": END, "far": END}],
    "error": null, "text": null}]}; an END has exchanges, error and text as those of `smp`, and
    agent/infiniband/perf.py decodes it. The time is CLOCK_BOOTTIME.
    """
    from agent.infiniband.query import CounterQueries
    from agent.infiniband.umad import opener
    from agent.sysfs.parse import number
    from agent.sysfs.reader import LiveRoot, Reader

    reader = Reader(LiveRoot(payload["root"]), "ib")

    def lid_of(address: tuple[str, int]) -> int | None:
        path = "sys/class/infiniband/{}/ports/{}/lid".format(*address)
        return reader.value(path, number)

    queries = CounterQueries(opener(payload.get("library")), lid_of, TIMEOUT_MS, TRIES)
    return {"ports": queries.links(payload["ports"])}


def nics(payload: dict[str, Any]) -> dict[str, Any]:
    """Ask the drivers of NICs; agent/nic/query.py has the payload and the answer."""
    from agent.nic.query import answer

    return answer(payload)


def nvml(payload: dict[str, Any]) -> dict[str, Any]:
    """Query every GPU. In: {"library": path}, or {}. Out: see `agent.nvml.library.query`."""
    from agent.nvml.library import query

    return query(payload.get("library"))


def modules(payload: dict[str, Any]) -> dict[str, Any]:
    """Read transceiver modules. In and out: see `agent.transceiver.query.answer`."""
    from agent.transceiver.query import answer

    return answer(payload)


def kubeconfig(payload: dict[str, Any]) -> dict[str, Any]:
    """Resolve a kubeconfig: the API server's address and the credentials.

    In: {"path", "context"}, each null for the default.
    Out: the fields of agent.kube.access.Access, or {"error": one line}.
    """
    from agent.kube.kubeconfig import resolve

    return resolve(payload["path"], payload["context"])


def plan(payload: dict[str, Any]) -> dict[str, Any]:
    """Read plan files of bwagent's own kinds for one node.

    In: {"files": [path, ...], "names": of the node, "prefixes": of labels, P and IB}.
    Out: {"expected"}, which agent.cabling.expected loads, or {"error": one line}.
    """
    from agent.cabling.one_node import read_limited

    return read_limited(payload)


VERBS: dict[str, Verb] = {
    "smp": smp,
    "sa": sa,
    "tiers": tiers,
    "perf": perf,
    "nics": nics,
    "nvml": nvml,
    "modules": modules,
    "kubeconfig": kubeconfig,
    "plan": plan,
}
PRELOADED = {"nvml": ("agent.nvml.library",)}  # imported by a fork server, by verb


def main(arguments: list[str]) -> int:
    """Run one verb and return the exit code; end by the signal that has ended the verb."""
    verb, *limits = arguments
    seconds = float(limits[0]) if limits else math.inf
    parent = int(limits[1]) if len(limits) > 1 else os.getppid()
    answers = _begin()
    try:
        status = _run(verb, None, answers, seconds, parent)
    except BlockingIOError as error:
        from agent.limits import process_fault

        sys.exit(f"no fork: {process_fault(error)}")
    number = signal.SIGALRM if status is None else -status
    if number > 0:
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)  # a core of this process is of no use
        with suppress(OSError):  # SIGKILL
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return -number


def serve_forks(arguments: list[str]) -> int:
    """Run a verb in a fork for each line of stdin, until stdin ends; return the exit code.

    A line is a payload. Its answer has two lines: the JSON, or nothing, and the end of the fork: an
    exit status, a negative signal number, "late", or "limit" at the limit of processes. Only the
    fork touches the verb's subject.
    """
    verb, seconds = arguments[0], float(arguments[1])
    answers, parent = _begin(), os.getppid()
    for module in PRELOADED[verb]:
        __import__(module)
    gc.disable()  # a collection would copy pages, and a fork lives for a moment
    for line in sys.stdin.buffer:
        try:
            status = _run(verb, line, answers, seconds, parent)
            end = b"late" if status is None else b"%d" % status
        except BlockingIOError:
            end = b"limit"
        os.write(answers, b"\n%s\n" % end)
    return 0


def _begin() -> int:
    """Prepare this process to wait for forks; return the descriptor for their answers."""
    # Restore what a parent has left to this process. With SIGCHLD ignored, the exit status of a
    # credential plugin would be lost; with SIGALRM ignored or blocked, the alarm.
    for number in (signal.SIGALRM, signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, (signal.SIGCHLD,))  # sigtimedwait takes it
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans become children of this process
    answers = os.dup(1)
    os.dup2(2, 1)  # a C library's output on stdout goes to stderr
    return answers


def _run(verb: str, line: bytes | None, answers: int, seconds: float, parent: int) -> int | None:
    """Run a verb in a fork, and end all that it has started; return its exit status.

    `line` is the payload; None: all of stdin. None is returned for a fork that has not ended in
    time, or before the parent. A stopped fork has not ended.
    """
    parent_of_fork = os.getpid()
    fork = os.fork()
    if fork == 0:
        _run_in_fork(parent_of_fork, answers, verb, line)
    end_at = time.monotonic() + seconds
    has_ended = False
    while not has_ended and (left := end_at - time.monotonic()) > 0 and os.getppid() == parent:
        signal.sigtimedwait((signal.SIGCHLD,), min(left, PARENT_INTERVAL))
        # SIGCHLD is sent for a fork that was stopped, too, and for an orphan that has ended.
        ended = os.waitid(os.P_PID, fork, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        has_ended = ended is not None
    status = _end_children(fork, parent)
    return os.waitstatus_to_exitcode(status) if has_ended else None


def _end_children(fork: int, parent: int) -> int:
    """Kill the fork and all its descendants until none is left; return its wait status.

    psutil is loaded only for processes that outlive the fork. A process in uninterruptible sleep is
    waited for, so that no second fork starts beside it; not after the end of the parent.
    """
    status, kills = 0, 0
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == fork:
            status = ended
        if pid:
            continue
        if kills > MAX_KILLS and os.getppid() != parent:
            return status
        if kills == 0:
            with suppress(ProcessLookupError):
                os.kill(fork, signal.SIGKILL)
        else:
            import psutil

            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    process.kill()
        kills += 1
        signal.sigtimedwait((signal.SIGCHLD,), KILL_INTERVAL)


def _run_in_fork(parent: int, answers: int, verb: str, line: bytes | None) -> NoReturn:
    """Run a verb and exit; never return into the loop of this process's parent."""
    code = 1
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # A request of an agent that has died must not reach the API server after the next agent's
        # GET: end when the parent ends.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended before the call above
            os._exit(1)
        payload = json.loads(sys.stdin.buffer.read() if line is None else line)
        answer = memoryview(json.dumps(VERBS[verb](payload)).encode())
        while answer:
            answer = answer[os.write(answers, answer) :]
        code = 0
    except BaseException:  # noqa: BLE001 - nothing may reach the loop
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
