"""The short-lived child: `python -m agent.helper.main VERB [SECONDS [PARENT]]`, JSON on stdin, JSON on stdout.

`stand_by` is another way in: a process that stays and makes such children by fork (standby.py is its parent's side).

The law of this module: what may crash, hang or leave something mapped happens here and dies with the process. A verb
is a callable from one JSON object to another and imports what it needs itself, so that no verb pays for another's
imports. What goes wrong with one subject is part of the answer; an exception that gets out is a bug, and the parent
(child.py) quotes the last line of the traceback.
"""

from __future__ import annotations

import gc
import os
import sys
from _signal import (  # type: ignore[import-not-found]  # those of signal, which would import enum
    SIG_BLOCK,
    SIGCHLD,
    SIGKILL,
    alarm,
    pthread_sigmask,
    sigtimedwait,
)

from agent.helper.terse import dumps

TYPE_CHECKING = False  # importing typing would be a tenth of the shortest child's life
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from agent.infiniband.query import PortQuery

    Verb = Callable[[dict[str, Any]], dict[str, Any]]

PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
TIMEOUT_MS = 500
TRIES = 2


def smp(payload: dict[str, Any]) -> dict[str, Any]:
    """Ask who is at the far end of InfiniBand ports, all at once.

    In: {"ports": [["mlx5_0", 1], ...], "timeout_ms": 500, "tries": 2, "library": "libibumad.so.3"}; ports is required.
    Out: {"ports": [{"device", "port", "exchanges": [{"request": hex, "reply": hex | null, "error": word | null}],
    "error": word | null, "text": sentence | null}]}. The port's `error` says why there is no neighbour: a reason of
    `umad.Shut`, or `malformed`; where it is null, `agent.infiniband.smp.replay` reads the neighbour out of the exchanges.
    """
    from agent.infiniband.query import query_ports
    from agent.infiniband.umad import LIBRARY, Umad

    library = payload.get("library", LIBRARY)
    talks = query_ports(
        lambda device, port: Umad(library).open(device, port),
        [(device, port) for device, port in payload["ports"]],
        payload.get("timeout_ms", TIMEOUT_MS),
        payload.get("tries", TRIES),
    )
    return {"ports": [_as_json(talk) for talk in talks]}


def _as_json(talk: PortQuery) -> dict[str, Any]:
    exchanges = [
        {
            "request": one.request.hex(),
            "reply": one.reply.hex() if one.reply is not None else None,
            "error": one.error,
        }
        for one in talk.exchanges
    ]
    return {
        "device": talk.device,
        "port": talk.number,
        "exchanges": exchanges,
        "error": talk.error,
        "text": talk.text,
    }


def nvml(payload: dict[str, Any]) -> dict[str, Any]:
    """Ask NVML for every GPU's place in the NVLink fabric.

    In: {"library": path}, or {} to have it searched for. Out: see `agent.nvml.library.look`; `agent.nvml.decode` reads it.
    """
    from agent.nvml.library import look

    return look(payload.get("library"))


def kube(payload: dict[str, Any]) -> dict[str, Any]:
    """Ask the API server for a Node or for a page of them, or apply to one.

    In: {"operation": "get" | "apply" | "list", "node", "body", "force", "continue", "limit", "kubeconfig", "context",
    "service_account": folder, "timeout_s"}; get and apply want `node`, apply wants `body`, the rest may be null.
    Out: "server", its address, and, where it went well, "status" and "node": {"metadata"}, or "nodes" and "continue".
    Where it did not: {"status", "reason", "message", "causes": [{"reason", "field", "message"}], "retry_after"},
    or {"error": kind, "message"} with a kind of `agent.kube.response.KINDS`.
    """
    from agent.helper.bare import leave_out

    leave_out("kubernetes", "kubernetes.config", "kubernetes.utils")
    from agent.kube.client import handle

    return handle(payload)


VERBS: dict[str, Verb] = {"smp": smp, "nvml": nvml, "kube": kube}
WARM = {"nvml": ("agent.nvml.library",)}  # what a verb imports, by verbs that are stood by for


def main(arguments: list[str]) -> int:
    """Do one verb; the exit code."""
    verb, seconds = arguments[0], int(arguments[1]) if arguments[1:] else 0
    # SIGALRM ends the process even inside a C library, should the parent not live to do it.
    alarm(seconds)
    if arguments[2:]:
        _die_with(int(arguments[2]))
    answer = _take_stdout()
    result = VERBS[verb](_payload(sys.stdin.buffer.read()))
    with os.fdopen(answer, "wb") as out:
        out.write(dumps(result).encode())
    return 0


def stand_by(arguments: list[str]) -> int:
    """Do a verb once for each line of stdin, in a fork each time, until stdin ends; the exit code.

    A line is a payload. It is answered by two: the JSON, or nothing, and how the fork ended: an exit code, a signal
    below zero, or "late". Nothing but the fork ever touches what the verb is about.
    """
    verb, seconds = arguments[0], float(arguments[1])
    answers, parent = _take_stdout(), os.getpid()
    for module in WARM[verb]:
        __import__(module)
    gc.disable()  # a fork lives for a moment, and what is collected is copied
    pthread_sigmask(SIG_BLOCK, (SIGCHLD,))
    for line in sys.stdin.buffer:
        payload = _payload(line.strip())
        fork = os.fork()
        if not fork:
            _end_as_fork(parent, answers, VERBS[verb], payload)
        os.write(answers, b"\n%s\n" % _end_of(fork, seconds))
    return 0


def _end_of(fork: int, seconds: float) -> bytes:
    """How a fork ends; it is killed when its time is over."""
    late = sigtimedwait((SIGCHLD,), seconds) is None
    if late:
        os.kill(fork, SIGKILL)
    _, status = os.waitpid(fork, 0)
    sigtimedwait((SIGCHLD,), 0)  # that of one that was killed
    return b"late" if late else b"%d" % os.waitstatus_to_exitcode(status)


def _end_as_fork(parent: int, answers: int, verb: Verb, payload: dict[str, Any]) -> NoReturn:
    """Do a verb and end, whatever comes: nothing of the helper's own business is a fork's."""
    code = 1
    try:
        _die_with(parent)
        os.write(answers, dumps(verb(payload)).encode())
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, it must not get into the helper's own loop
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _die_with(parent: int) -> None:
    """Leave no orphan: what an agent asked for must not reach the API server after the next agent has looked."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent has gone")


def _payload(said: bytes) -> dict[str, Any]:
    if said == b"{}":
        return {}  # which is the question that is asked once a minute
    from json import loads

    return dict(loads(said))


def _take_stdout() -> int:
    """Standard output for the answer alone: what a C library prints goes to standard error."""
    answer = os.dup(1)
    os.dup2(2, 1)
    return answer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
