"""bwagent in a process of its own that is forked from one which has imported it already.

All but the start is as from a shell: descriptors, environment, folder, limit of memory, exit. It
takes a tenth of the time.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import resource
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import IO, Any

REPOSITORY = Path(__file__).parents[2]
MAX_REQUEST = 64 << 10
ONE_AT_A_TIME = Lock()


def run(  # noqa: PLR0913 - as subprocess.run has them
    arguments: tuple[str, ...],
    environment: dict[str, str],
    *,
    memory: int,
    timeout: float,
    cwd: Path | None = None,
    input: bytes = b"",  # noqa: A002 - as subprocess.run names it
    stdout: int | IO[bytes] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run the program with `memory` bytes of address space; subprocess.TimeoutExpired if it
    takes longer than `timeout`.
    """
    request = {"arguments": arguments, "environment": environment, "memory": memory}
    request["cwd"] = str(cwd or Path.cwd())
    with ExitStack() as files, ONE_AT_A_TIME:
        stdin, out, err = (files.enter_context(TemporaryFile()) for _ in range(3))
        stdin.write(input)
        stdin.seek(0)
        written = out if stdout is None else stdout
        streams = [one if isinstance(one, int) else one.fileno() for one in (stdin, written, err)]
        server = _server()
        socket.send_fds(server, [json.dumps(request).encode()], streams)
        pid = int(server.recv(64))
        server.settimeout(timeout)
        try:
            status = int(server.recv(64))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            server.settimeout(None)
            server.recv(64)
            raise subprocess.TimeoutExpired(arguments, timeout) from None
        finally:
            server.settimeout(None)
        out.seek(0)
        err.seek(0)
        printed = out.read() if stdout is None else None
        # As of subprocess.run: a signal is negative. Without `stdout` nothing was captured.
        code = os.waitstatus_to_exitcode(status)
        return subprocess.CompletedProcess(arguments, code, printed, err.read())


@cache
def _server() -> socket.socket:
    """Start the process from which others are forked; it ends with the tests."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, __file__, str(theirs.fileno())]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def main() -> None:
    """Answer requests until the other end is closed; each in a child that is the program."""
    import agent

    for module in pkgutil.walk_packages(agent.__path__, "agent."):
        __import__(module.name)
    import kubernetes.client  # noqa: F401 - what agent/kube/kubeconfig.py imports in functions
    import yaml  # noqa: F401 - the same

    server = socket.socket(fileno=int(sys.argv[1]))
    gc.freeze()
    while True:
        data, streams, _, _ = socket.recv_fds(server, MAX_REQUEST, 3)
        if not data:
            return
        pid = os.fork()
        if not pid:
            server.close()
            _become(json.loads(data), streams)
            sys.modules["agent.cli"].main()
        for stream in streams:
            os.close(stream)
        server.send(str(pid).encode())
        server.send(str(os.waitpid(pid, 0)[1]).encode())


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Take the streams, folder, environment, arguments and limit of a request."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - stays open, as the next two
    buffering = 1 if os.isatty(1) else -1
    sys.stdout = open(1, "w", buffering=buffering, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    # The interpreter's own references: what it closes last fails in silence.
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["cwd"])
    sys.argv = ["bwagent", *request["arguments"]]
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + request["memory"],) * 2)


if __name__ == "__main__":
    main()
