"""A real machine of a Cluster: a kubelet with its containerd, in namespaces that are removed as a
whole.

Both need fixed paths and leave mounts, shims and containers behind when they are killed. So they
run in a mount namespace and a PID namespace of their own: killing its process 1 ends every
container, and the last process releases the mounts. A folder and empty cgroups are left, as on the
disk of a machine after a power loss; so `reboot` can be repeated.

The network is the host's, as it is for the agent's Pods, with an address that no other machine has:
the agent's port is a fixed one. There is no CNI and no kube-proxy: the API server's address is set
in the Pods.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Self

from tests.support import few_processes
from tests.support.container import image
from tests.support.kube import programs
from tests.support.kube.cluster import Cluster
from tests.support.kube.controllers import eventually
from tests.support.real_parts import lacks

SCRIPT = Path(__file__).with_name("machine.sh")
TOOLS = ("containerd", "ctr", "runc", "busybox", "ip")
UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--mount-proc")
PAUSE = "localhost/pause:test"  # holds the namespaces of a Pod
CONTAINERFILE = 'FROM scratch\nCOPY sleep /\nENTRYPOINT ["/sleep", "1000000"]\n'
CGROUPS = Path("/sys/fs/cgroup")
# For benchmarks of devices (RFC 2544), so that none is in use: first address, and how many.
ADDRESSES = (IPv4Address("198.18.0.0"), 1 << 17)
AT_ONCE = 16  # machines of one process that have addresses of their own
_numbers = itertools.count()  # of the machines of this process
CONTAINERD = """
version = 2
root = "{folder}/containerd"
[plugins."io.containerd.grpc.v1.cri"]
disable_apparmor = true
restrict_oom_score_adj = true
sandbox_image = "{pause}"
[plugins."io.containerd.grpc.v1.cri".cni]
conf_dir = "{folder}/cni"
"""
# Never asked to do anything: without one the Node is not ready.
NETWORK = {"cniVersion": "0.4.0", "name": "none", "plugins": [{"type": "loopback"}]}


def missing() -> str | None:
    """Return the reason why no kubelet can run the image here; None if it can."""
    return lacks(*TOOLS) or programs.missing("kubelet") or image.missing() or _forbidden()


def _forbidden() -> str | None:
    probe = [*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/run"]
    done = subprocess.run(probe, check=False, capture_output=True, text=True)
    return f"no namespaces to mount in: {done.stderr.strip()}" if done.returncode else None


class Machine:
    """A Node of the cluster, with the built image under the name `agent_image`, if there is one; it
    runs within the block. No mount of it is shared.

    `folder` holds pods/<namespace>_<pod>_<uid>/<container>/<attempt>.log.
    """

    def __init__(
        self, cluster: Cluster, node: str, agent_image: str | None, labels: Mapping[str, str]
    ) -> None:
        self.folder = cluster.folder / node
        self._cluster, self._node, self._image, self._labels = cluster, node, agent_image, labels
        self._power = self._house = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            stack.callback(_forget, self.folder)
            address = stack.enter_context(_address())
            _furnish(self.folder, self._image, address)
            self._kubelet = _kubelet(self._cluster, self.folder, self._node, address, self._labels)
            stack.callback(self.power_off)
            process = self.power_on()
            eventually(
                self._cluster,
                f"{self._node} is ready",
                lambda: _ready(self._cluster, self._node, process),
            )
            self._house = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._house.close()

    def power_on(self) -> subprocess.Popen[bytes]:
        """Start containerd and the kubelet; return their process 1."""
        unshared = [*UNSHARE[1:], "setpriv", "--pdeathsig", "KILL", "sh"]
        arguments = [*unshared, str(SCRIPT), str(self.folder), *self._kubelet]
        with ExitStack() as stack:
            process = stack.enter_context(
                programs.running(self._node, arguments, self._cluster.folder, "unshare")
            )
            stack.callback(_end, process)
            self._power = stack.pop_all()
        return process

    def power_off(self) -> None:
        """Kill all processes at once, as a power loss does."""
        self._power.close()
        _forget(self.folder)

    def forget_images(self) -> None:
        """Drop the images' pages from the page cache: their memory is charged to the first
        container that reads them.
        """
        snapshots = self.folder / "containerd/io.containerd.snapshotter.v1.overlayfs/snapshots"
        # os.walk() passes over what goes away meanwhile: containerd tidies up after a Pod when it
        # likes.
        for path in (
            Path(folder, name) for folder, _, names in os.walk(snapshots) for name in names
        ):
            with suppress(FileNotFoundError):
                if path.is_file() and not path.is_symlink():
                    with path.open("rb") as file:
                        os.fdatasync(file.fileno())
                        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def address_of(process: int, number: int) -> str:
    """Return the address of a process's machine, counted from 0."""
    first, count = ADDRESSES
    return str(first + (process * AT_ONCE + number % AT_ONCE) % count)


@contextmanager
def _address() -> Iterator[str]:
    """Return an address of this host for the machine alone."""
    number = next(_numbers)
    name = f"bwm{os.getpid()}n{number}"
    address = address_of(os.getpid(), number)
    _ip("link", "add", name, "type", "veth", "peer", "name", f"{name}p")
    try:
        _ip("address", "add", address, "dev", name)
        _ip("link", "set", name, "up")
        yield address
    finally:
        _ip("link", "delete", name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _furnish(folder: Path, agent_image: str | None, address: str) -> None:
    """Write the configuration of both, and the images that replace a registry."""
    for name in ("images", "cni", "pods"):
        (folder / name).mkdir(parents=True)
    (folder / "cni/10-none.conflist").write_text(json.dumps(NETWORK))
    (folder / "containerd.toml").write_text(CONTAINERD.format(folder=folder, pause=PAUSE))
    (folder / "kubelet.json").write_text(json.dumps(_settings(folder, address)))
    _save_images(folder / "images", agent_image)


def _save_images(folder: Path, agent_image: str | None) -> None:
    """Write the images as archives; the pause image is a busybox that sleeps."""
    agent = image.Image()
    busybox = Path(shutil.which("busybox") or "busybox")
    known = image.digest((), CONTAINERFILE, hashlib.sha256(busybox.read_bytes()).hexdigest())
    pause = image.saved(f"pause-{known}", lambda path: _pause(busybox, path))
    shutil.copy(pause, folder / "pause.tar")
    if agent_image:
        shutil.copy(agent.archive(f"docker.io/library/{agent_image}"), folder / "agent.tar")


def _pause(busybox: Path, archive: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(busybox, Path(folder, "sleep"))
        Path(folder, "Containerfile").write_text(CONTAINERFILE)
        image.bud("-t", PAUSE, folder)
    image.do("buildah", "push", "--quiet", PAUSE, f"docker-archive:{archive}:{PAUSE}")


def push(name: str, credentials: str) -> None:
    """Push the built image to a registry without TLS."""
    options = ("--quiet", "--tls-verify=false", f"--creds={credentials}")
    image.do("buildah", "push", *options, image.TAG, f"docker://{name}")


def _settings(folder: Path, address: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "port": programs.free_ports(1)[0],
        "healthzPort": 0,
        # The API server has no certificate for the kubelet, and `kubectl exec` needs to get in.
        "authentication": {"webhook": {"enabled": False}, "anonymous": {"enabled": True}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "podLogsDir": str(folder / "pods"),
        "resolvConf": "",
        # No cgroup of the kubelet's own, only containerd's for each container.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "evictionHard": {
            "memory.available": "1Mi",
            "nodefs.available": "1Mi",
            "imagefs.available": "1Mi",
        },
        "imageGCHighThresholdPercent": 100,
    }


def _kubelet(
    cluster: Cluster, folder: Path, node: str, address: str, labels: Mapping[str, str]
) -> list[str]:
    return [
        *(programs.program("kubelet"), f"--kubeconfig={cluster.kubeconfig()}"),
        *(f"--config={folder}/kubelet.json", f"--root-dir={folder}/kubelet"),
        *(f"--cert-dir={folder}/kubelet/pki", f"--hostname-override={node}"),
        f"--node-ip={address}",
        f"--node-labels={','.join(f'{key}={value}' for key, value in labels.items())}",
    ]


def _ready(cluster: Cluster, node: str, process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        raise programs.ClusterError(f"{node} ended:\n{programs.last_words(cluster.folder)}")
    answer = cluster.request("GET", f"/api/v1/nodes/{node}")
    if answer.status != 200:
        return False
    ready = {"type": "Ready", "status": "True"}.items()
    conditions = answer.body["status"].get("conditions", [])
    return any(ready <= each.items() for each in conditions) and not answer.body["spec"].get(
        "taints"
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill process 1 of the namespace; the kernel kills the others, and unshare ends after
    the last one.
    """
    with suppress(FileNotFoundError, ProcessLookupError):  # it ended by itself
        for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    process.wait(60)


def _forget(folder: Path) -> None:
    """Remove the empty cgroups of killed containers from all hierarchies."""
    tasks = (folder / "containerd/io.containerd.runtime.v2.task/k8s.io").glob("*")
    tops = [path for path in (CGROUPS / "k8s.io", *CGROUPS.glob("*/k8s.io")) if path.is_dir()]
    for cgroup in [top / task.name for task in tasks for top in tops]:
        few_processes.remove(cgroup)
    for top in tops:
        with suppress(OSError):  # there are others in it
            top.rmdir()
