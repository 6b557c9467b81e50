"""The programs of a control plane: their paths, and running one so that it never outlives
its test.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.support.real_parts import CACHE_OF_PARTS, go_version, lacks

HERE = Path(__file__).parent
VERSION = go_version(HERE, "k8s.io/kubernetes")
CACHE = CACHE_OF_PARTS / "kube" / VERSION
CONTROL_PLANE = ("etcd", "kube-apiserver", "kubectl")
START_LIMIT = 120.0  # seconds


class ClusterError(Exception):
    """A failure of the cluster, not of a request; the message ends with the last lines of
    its logs.
    """


def missing(*programs: str) -> str | None:
    """Return the part of a control plane that this host lacks; None when a Cluster can start.

    `programs` are those needed beyond etcd, kube-apiserver and kubectl.
    """
    for name in (*CONTROL_PLANE, *programs):
        if _find(name) is None:
            build = f"run {HERE / 'build.sh'} {name} (with Go)"
            return f"there is no {name} in $KUBEBUILDER_ASSETS, and none in {CACHE}: {build}"
    return lacks("openssl", "setpriv")


def program(name: str) -> str:
    """Return the path of a program: that in KUBEBUILDER_ASSETS, else the one that build.sh made."""
    path = _find(name)
    if path is None:
        raise ClusterError(missing(name))
    return str(path)


def _find(name: str) -> Path | None:
    folders = (os.environ.get("KUBEBUILDER_ASSETS"), CACHE)
    return next(
        (path for folder in folders if folder and (path := Path(folder) / name).is_file()), None
    )


def environment(home: Path) -> dict[str, str]:
    """Return the environment of the programs, without the user's proxy, kubeconfig and
    cloud settings.
    """
    return {"HOME": str(home), "PATH": os.environ.get("PATH", os.defpath)}


def free_ports(count: int) -> list[int]:
    """Return free ports; all are held until the last is found, so that no two are equal."""
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [int(each.getsockname()[1]) for each in sockets]


@contextmanager
def running(
    name: str, arguments: Sequence[str], folder: Path, at: str | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program with its log in the folder; kill and reap it at the end of the block.

    `at` is its path if it is none of the cluster's own.
    """
    command = ["setpriv", "--pdeathsig", "KILL", "--", at or program(name), *arguments]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=environment(folder),
        )
    with process:
        try:
            yield process
        finally:
            process.kill()


def last_words(folder: Path) -> str:
    logs = sorted(folder.glob("*.log"))
    return "\n".join(
        f"--- {log.name}:\n" + "\n".join(log.read_text().splitlines()[-20:]) for log in logs
    )


def until_answers(url: str, folder: Path, status: int = 200) -> None:
    """Wait until a URL of this host has this status; raises ClusterError if it has not in time."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + START_LIMIT
    found = 0
    while found != status:
        with suppress(OSError):
            try:
                with direct.open(url, timeout=START_LIMIT) as reply:
                    found = reply.status
            except urllib.error.HTTPError as refusal:
                with refusal:
                    found = refusal.code
        if time.monotonic() > deadline:
            raise ClusterError(f"{url} does not answer:\n{last_words(folder)}")
        time.sleep(0.1)
