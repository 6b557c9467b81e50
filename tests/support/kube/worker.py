"""A machine that runs the agent's DaemonSet, and an LLDP switch.

An overlay is rolled out as its README describes: through an overlay of the user's that refers to
it. That adds what a cluster would provide: the address of the API server, since there is no
kube-proxy, and RDMA devices, which this host lacks. They are a small sysfs with one RoCE device;
its netdev is real, and a real lldpd at its other end is the switch. Three intervals are shorter:
between two requests, between two readiness probes, and until a probe's result counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.support import switch
from tests.support.kube.agents import Agent, an_agent, denied, install
from tests.support.kube.cluster import Cluster
from tests.support.kube.confinement import Container
from tests.support.kube.controllers import PROGRAMS, controllers, eventually
from tests.support.kube.machine import Machine
from tests.support.kube.machine import missing as no_machine
from tests.support.kube.manifests import (
    IMAGE,
    IMAGES,
    Object,
    pod,
    settings,
    site_overlay,
    with_settings,
)
from tests.support.kube.programs import missing as no_programs

NODE = "worker"
NETDEV = f"bwk{os.getpid()}"
LEAF, PORT = "leaf-7", "swp1"
GPU = {"node.coreweave.cloud/class": "gpu"}  # where the overlay for CoreWeave goes
# The last two: what makes, on deletion, Pods of a DaemonSet and a namespace go.
CONTROLLERS = ("daemonset-controller", "garbage-collector-controller", "namespace-controller")
PODS, DAEMON_SETS = "/api/v1/namespaces/bwagent/pods", "/apis/apps/v1/namespaces/bwagent/daemonsets"
SYSFS = {
    "class/infiniband/rxe0/node_type": "1: CA",
    "class/infiniband/rxe0/ports/1/state": "4: ACTIVE",
    "class/infiniband/rxe0/ports/1/phys_state": "5: LinkUp",
    "class/infiniband/rxe0/ports/1/link_layer": "Ethernet",
    "class/infiniband/rxe0/ports/1/rate": "2.5 Gb/sec (1X SDR)",
    "class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0": NETDEV,
    f"class/net/{NETDEV}/operstate": "up",
    f"class/net/{NETDEV}/speed": "10000",
    "class/net/eth0/device/vendor": "0x1af4",  # the front end, which carries the default route
}
SPEED = {"flavor": "roce", "speed.current": "10G"}
NEIGHBOR = {
    "neighbors.current.rxe0.device": LEAF,
    "neighbors.current.rxe0.port-id": PORT,
    "neighbors.current.rxe0.port-name": PORT,
    "leaves.current": LEAF,
    "leafgroup.current": LEAF,
}


def missing() -> str | None:
    """Return the reason why there can be no such machine here; None if there can."""
    return switch.missing() or no_programs(*PROGRAMS) or no_machine()


@dataclass(frozen=True, slots=True)
class Worker:
    """The machine, its cluster, and `devices`, the folder mounted into its agents as /machine;
    /machine/sys is a sysfs.
    """

    cluster: Cluster
    machine: Machine
    devices: Path
    mighty: Agent

    def roll_out(self, overlay: str, *components: str, **more: str) -> str:
        """Roll out an overlay, with components of the manifests and further settings, to Nodes
        without labels; return the labels' prefix.
        """
        self.remove()
        self._overlay(overlay, more, components)
        prefix = f"{settings(overlay)['BWAGENT_LABEL_PREFIX']}/"
        for node in (NODE, self.mighty.node):
            clear(self.cluster, node)
        self._apply()
        self.until(f"the policy allows {prefix}", lambda: in_force(self.mighty, prefix))
        return prefix

    def update(self, overlay: str, more: Mapping[str, str], *, in_policy: bool) -> None:
        """Apply an overlay with further settings to what runs, with or without its transformer."""
        self._overlay(overlay, more, in_policy=in_policy)
        self._apply()

    def _apply(self) -> None:
        self.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(self.overlay))

    def remove(self) -> None:
        """Delete the DaemonSet, and wait until its Pod is gone."""
        self.cluster.request("DELETE", f"{DAEMON_SETS}/bwagent")
        self.until("the agents have gone", lambda: not self._pods())

    @property
    def overlay(self) -> Path:
        """Return the overlay that was rolled out last."""
        return self.devices.parent / "overlay"

    def until(self, what: str, look: Callable[[], object]) -> None:
        """Wait for a condition; a failure shows the agents' logs."""
        try:
            eventually(self.cluster, what, look)
        except Exception as error:
            error.add_note(self.log())
            raise

    def pod(self) -> Object:
        """Return the Pod of the DaemonSet, unless it is being deleted."""
        pods = [pod for pod in self._pods() if "deletionTimestamp" not in pod["metadata"]]
        return pods[0] if pods else {"metadata": {}, "status": {}}

    def state(self) -> Object:
        """Return the kubelet's status of the agent's container; empty before the first."""
        states: list[Object] = self.pod()["status"].get("containerStatuses", [])
        return states[0] if states else {}

    def is_ready(self) -> bool:
        return bool(self.state().get("ready"))

    def container(self) -> Container:
        """Return the agent's running container, which may have finished its work before the kubelet
        reports it.
        """
        self.until("the kubelet tells of the container", lambda: self.state().get("containerID"))
        return Container(str(self.state()["containerID"]).removeprefix("containerd://"))

    def page(self, path: str, of: Object | None = None) -> tuple[int, str]:
        """Return a page of the HTTP server of an agent, that of this Pod."""
        (port,) = (each["containerPort"] for each in pod("sysfs")["spec"]["containers"][0]["ports"])
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(
                f"http://{(of or self.pod())['status']['hostIP']}:{port}{path}", timeout=10
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode()

    def labels(self, prefix: str) -> dict[str, str]:
        found = self.cluster.labels(NODE).items()
        return {key.removeprefix(prefix): row for key, row in found if key.startswith(prefix)}

    def node(self) -> Object:
        return self.cluster.request("GET", f"/api/v1/nodes/{NODE}").body

    def timeline(self) -> Timeline:
        """Return the Node's timeline, from now on."""
        return Timeline(self.cluster, "/api/v1/nodes", NODE)

    def log(self) -> str:
        """Return the logs of the agents that are still there, oldest first."""
        logs = sorted(
            self.machine.folder.glob("pods/bwagent_*/bwagent/*.log"),
            key=lambda log: log.stat().st_mtime,
        )
        return "\n".join(
            line.split(" ", 3)[-1] for log in logs for line in log.read_text().splitlines()
        )

    def _pods(self) -> list[Object]:
        """Return the Pods of the DaemonSet; `agents.py` creates others, which never run."""
        found = self.cluster.request("GET", f"{PODS}?fieldSelector=spec.nodeName={NODE}").body
        return list(found["items"])

    def _overlay(
        self,
        overlay: str,
        more: Mapping[str, str],
        components: Iterable[str] = (),
        *,
        in_policy: bool = False,
    ) -> None:
        host, port = self.cluster.url.removeprefix("https://").split(":")
        given = {"BWAGENT_SYSFS_ROOT": "/machine/sys", "BWAGENT_RUN_MIN_INTERVAL": "1s"}
        given |= {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        fields = with_settings(*(f"{name}={value}" for name, value in {**given, **more}.items()))
        fields |= {"images": IMAGES, "patches": [{"path": "machine.yaml"}]}
        if not in_policy:
            del fields["transformers"]
        self.overlay.mkdir(exist_ok=True)
        site_overlay(self.overlay, overlay, {"components": components, **fields})
        (self.overlay / "machine.yaml").write_text(json.dumps(_machine(self.devices)))


def _machine(devices: Path) -> Object:
    """Return the patch that mounts this folder into the agent and shortens the intervals."""
    mount = {"name": "machine", "mountPath": "/machine", "readOnly": True}
    volume = {"name": "machine", "hostPath": {"path": str(devices), "type": "Directory"}}
    container = {"name": "bwagent", "volumeMounts": [mount], "readinessProbe": {"periodSeconds": 1}}
    spec = {"containers": [container], "volumes": [volume]}
    about = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "bwagent"}}
    return {**about, "spec": {"minReadySeconds": 1, "template": {"spec": spec}}}


def clear(cluster: Cluster, node: str) -> None:
    """Remove what manager `bwagent` has on a Node."""
    cluster.apply(node, {})


def in_force(mighty: Agent, prefix: str) -> bool:
    """True if the policy lets an agent change a label below this prefix, and no other one."""
    good, bad = ({"labels": {key: os.urandom(4).hex()}} for key in (f"{prefix}flavor", "foreign"))
    is_permitted, refusal = mighty.apply(good).status == 200, mighty.apply(bad)
    if refusal.status == 200:  # no policy is in force, and a later one would not let it go
        clear(mighty.cluster, mighty.node)
    return is_permitted and denied(refusal)


def lay_devices(folder: Path) -> Path:
    """Write the sysfs with one RoCE device, as the agents see it below /machine; its folder."""
    devices = folder / "machine"
    for name, text in SYSFS.items():
        (devices / "sys" / name).parent.mkdir(parents=True, exist_ok=True)
        (devices / "sys" / name).write_text(f"{text}\n")
    return devices


@contextmanager
def worker(folder: Path) -> Iterator[Worker]:
    """Start the machine in a cluster of its own with the manifests applied; nothing is
    labeled yet.
    """
    devices = lay_devices(folder)
    with (
        _leaf(),
        Cluster("--kubelet-preferred-address-types=InternalIP") as cluster,
        controllers(cluster, *CONTROLLERS),
        Machine(cluster, NODE, IMAGE, GPU) as machine,
    ):
        install(cluster, "sysfs")
        yield Worker(cluster, machine, devices, an_agent(cluster, "mighty"))


@contextmanager
def _leaf() -> Iterator[switch.Leaf]:
    """Start a switch at the other end of a netdev of this host."""
    with switch.Leaf(LEAF) as leaf:
        leaf.ip(
            "link", "add", PORT, "type", "veth", "peer", "name", NETDEV, "netns", str(os.getpid())
        )
        leaf.lldpd.configure("lldp", "portidsubtype", "ifname")
        subprocess.run(["ip", "link", "set", NETDEV, "up"], check=True)
        leaf.ip("link", "set", PORT, "up")
        switch.wait_for(lambda: leaf.is_up(PORT))
        leaf.plugged()
        yield leaf


class Timeline:
    """The history of one object since a moment, by the API server; `path` is that of its kind
    (`/api/v1/nodes`).

    It needs no watcher meanwhile: a watch that begins at an old resourceVersion returns every
    change since then, in order, a change and its reversal included. etcd forgets after five
    minutes, and the watch fails with that.
    """

    def __init__(self, cluster: Cluster, path: str, name: str) -> None:
        self._cluster, self._path, self._name = cluster, path, name
        self._began = self._now()

    def versions(self) -> list[Object]:
        """Return the object as it was at the beginning, and after each change; the last one may be
        the deleted object.
        """
        query = f"watch=true&timeoutSeconds=1&resourceVersion={_version(self._began)}"
        told = self._cluster.kubectl(
            "get", "--raw", f"{self._path}?{query}&fieldSelector=metadata.name={self._name}"
        )
        events = [json.loads(line) for line in told.splitlines()]
        assert not [event for event in events if event["type"] == "ERROR"], told
        return [self._began, *(event["object"] for event in events)]

    def label_changes(self) -> list[str]:
        """Return every change of a label as text, in order."""
        now = self._now()  # the resourceVersion of the object, up to which the history must reach
        versions = self.versions()
        assert int(_version(versions[-1])) >= int(_version(now)), "the watch was cut short"
        return [
            line for before, after in pairwise(versions) for line in _differences(before, after)
        ]

    def _now(self) -> Object:
        return self._cluster.request("GET", f"{self._path}/{self._name}").body


def _version(item: Object) -> str:
    return str(item["metadata"]["resourceVersion"])


def _differences(before: Object, after: Object) -> Iterator[str]:
    was, now = (item["metadata"].get("labels", {}) for item in (before, after))
    for key in sorted(was.keys() | now.keys()):
        if was.get(key) != now.get(key):
            yield f"{_version(after)}: {key}: {was.get(key)} -> {now.get(key)}"
