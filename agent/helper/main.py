"""Run one verb in a process of its own: `python -m agent.helper.main VERB [SECONDS [PARENT]]`.

A verb is a callable from one JSON object (stdin) to another (stdout). SECONDS is the alarm that
ends the process, PARENT the process ID whose end ends it too. `serve_forks` is the other entry
point: a process that stays and runs a verb in a fork for each line of stdin
(agent/helper/process.py).

Invariants:
- Code that may crash, hang or leave something mapped runs here, and ends with the process.
- A verb imports what it needs itself, so that no verb pays for another's imports. `typing` is for
  annotations only: it would be 0.5 MB of the fork server's 8.
- An error of one subject (a port, a GPU) is part of the answer. An exception that escapes is a bug;
  the parent (agent/helper/process.py) quotes the last line of the traceback.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

TYPE_CHECKING = False  # a type checker takes it for that of `typing`
if TYPE_CHECKING:
    from typing import Any, NoReturn

    Verb = Callable[[dict[str, Any]], dict[str, Any]]

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # include/uapi/linux/prctl.h
TIMEOUT_MS = 500
TRIES = 2
SA_TIMEOUT_MS = 2000


def smp(payload: dict[str, Any]) -> dict[str, Any]:
    """Query the far ends of InfiniBand ports, all at once.

    In: {"ports": [["mlx5_0", 1], ...], "timeout_ms": 500, "tries": 2, "library":
    "libibumad.so.3"}; only ports is required.
    Out: {"ports": [{"device", "port", "exchanges": [{"request": hex, "reply": hex | null, "error":
    reason | null}], "error": reason | null, "text": text | null}]}. Reasons are those of
    agent.reasons.NeighborReason. A port whose `error` is null has a neighbor, which
    `agent.infiniband.smp.replay` decodes from the exchanges.
    """
    from agent.infiniband.query import query_ports
    from agent.infiniband.umad import LIBRARY, Umad

    library = payload.get("library", LIBRARY)
    queries = query_ports(
        lambda device, port: Umad(library).open(device, port),
        [(device, port) for device, port in payload["ports"]],
        payload.get("timeout_ms", TIMEOUT_MS),
        payload.get("tries", TRIES),
    )
    return {"ports": [query.as_json() for query in queries]}


def sa(payload: dict[str, Any]) -> dict[str, Any]:
    """Ask the subnet administrator for the far ends of InfiniBand ports, one after the other.

    In: {"ports": [[device, number, lid, sm_lid, sm_sl, pkey_index, subnet_prefix], ...],
    "timeout_ms": 2000, "library": "libibumad.so.3"}; only ports is required
    (agent.infiniband.devices.SubnetPort).
    Out: as that of `smp`; agent/infiniband/sa.py decodes the exchanges.
    """
    from agent.infiniband.devices import SubnetPort
    from agent.infiniband.query import query_sa
    from agent.infiniband.umad import LIBRARY, Umad

    library = payload.get("library", LIBRARY)

    def open_port(device: str, port: int, management: Any) -> Any:
        return Umad(library).open(device, port, management)

    ports = [SubnetPort(*port) for port in payload["ports"]]
    queries = query_sa(open_port, ports, payload.get("timeout_ms", SA_TIMEOUT_MS))
    return {"ports": [query.as_json() for query in queries]}


def nvml(payload: dict[str, Any]) -> dict[str, Any]:
    """Query every GPU and its position in the NVLink fabric.

    In: {"library": path}, or {} to search for it. Out: see `agent.nvml.library.query`;
    agent/nvml/decode.py decodes it.
    """
    from agent.nvml.library import query

    return query(payload.get("library"))


def kubeconfig(payload: dict[str, Any]) -> dict[str, Any]:
    """Resolve a kubeconfig: the API server's address and the credentials.

    In: {"path", "context"}, each null for the default.
    Out: the fields of agent.kube.access.Access, or {"error": one line}.
    """
    from agent.kube.kubeconfig import resolve

    return resolve(payload["path"], payload["context"])


def plan(payload: dict[str, Any]) -> dict[str, Any]:
    """Read plan files of bwagent's own kinds for one node.

    In: {"files": [path, ...], "names": of the node, "prefixes": of labels, P and IB, "ends":
    [[device, port], ...], the far ends that the node sees}.
    Out: {"expected"}, which agent.verify.expected loads, or {"error": one line}.
    """
    from agent.verify.one_node import read_limited

    return read_limited(payload)


VERBS: dict[str, Verb] = {
    "smp": smp,
    "sa": sa,
    "nvml": nvml,
    "kubeconfig": kubeconfig,
    "plan": plan,
}
PRELOADED = {"nvml": ("agent.nvml.library",)}  # imported by a fork server, by verb


def main(arguments: list[str]) -> int:
    """Run one verb and return the exit code."""
    _reset_signals()
    verb, *limits = arguments
    if limits:
        # SIGALRM ends the process inside a C library too, if the parent does not live to kill it.
        signal.alarm(int(limits[0]))
    if len(limits) > 1:
        _die_with(int(limits[1]))
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans of a child stay descendants
    answer = _redirect_stdout()
    result = json.dumps(VERBS[verb](json.loads(sys.stdin.buffer.read()))).encode()
    _end_children()
    with os.fdopen(answer, "wb") as out:
        out.write(result)
    return 0


def _end_children() -> None:
    """Kill what the verb has started and left, a credential plugin's own daemon for instance."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # there are none; loading psutil would cost more than most verbs
        return
    import psutil

    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()


def serve_forks(arguments: list[str]) -> int:
    """Run a verb in a fork for each line of stdin, until stdin ends; return the exit code.

    A line is a payload. Its answer has two lines: the JSON, or nothing, and the end of the fork: an
    exit status, a negative signal number, "late", or "limit" at the limit of processes. Only the
    fork touches the verb's subject.
    """
    _reset_signals()
    verb, seconds = arguments[0], float(arguments[1])
    answers, parent = _redirect_stdout(), os.getpid()
    for module in PRELOADED[verb]:
        __import__(module)
    gc.disable()  # a collection would copy pages, and a fork lives for a moment
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
    for line in sys.stdin.buffer:
        payload = json.loads(line)
        try:
            fork = os.fork()
        except BlockingIOError:
            end = b"limit"
        else:
            if fork == 0:
                _run_in_fork(parent, answers, VERBS[verb], payload)
            is_late = signal.sigtimedwait((signal.SIGCHLD,), seconds) is None
            if is_late:
                os.kill(fork, signal.SIGKILL)
            _, status = os.waitpid(fork, 0)
            signal.sigtimedwait((signal.SIGCHLD,), 0)  # the pending SIGCHLD of a killed fork
            end = b"late" if is_late else b"%d" % os.waitstatus_to_exitcode(status)
        os.write(answers, b"\n%s\n" % end)
    return 0


def _run_in_fork(parent: int, answers: int, verb: Verb, payload: dict[str, Any]) -> NoReturn:
    """Run a verb and exit; never return into the fork server's loop."""
    code = 1
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _die_with(parent)
        os.write(answers, json.dumps(verb(payload)).encode())
        code = 0
    except BaseException:  # noqa: BLE001 - nothing may reach the fork server's loop
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _reset_signals() -> None:
    """Restore the dispositions and the signal mask that a parent has left to this process.

    With SIGCHLD ignored, the exit status of a credential plugin would be lost; with SIGALRM
    ignored or blocked, the alarm.
    """
    for number in (signal.SIGALRM, signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _die_with(parent: int) -> None:
    """End when the parent ends.

    A request of an agent that has died must not reach the API server after the next agent's GET.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before the call above
        os._exit(1)


def _redirect_stdout() -> int:
    """Return a descriptor for the answer; what a C library prints on stdout goes to stderr."""
    answer = os.dup(1)
    os.dup2(2, 1)
    return answer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
