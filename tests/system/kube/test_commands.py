"""`probe` and `cleanup` as command lines, on a real API server."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.cleanup import CHANGED, foreign_removals, read_nodes, remove_foreign
from agent.encode import Naming
from agent.kube.answers import Answer, Request
from agent.kube.managed_fields import Keys
from tests.support.kube import population
from tests.support.kube.cluster import Cluster
from tests.support.kube.command import bwagent, session
from tests.support.sysfs_on_disk import a_node_without_rdma

FAT = 120  # Nodes
PREFIX = "backend.coreweave.cloud"


@pytest.fixture
def probe(tmp_path: Path) -> tuple[str, ...]:
    """Run a probe of a node without RDMA devices: one label, quickly."""
    return ("probe", "--no-wait", "--sysfs-root", str(a_node_without_rdma(tmp_path)), "--node-name")


def test_probe_applies_and_says_so(cluster: Cluster, probe: tuple[str, ...]) -> None:
    """The first run adds the label, the second finds it up to date; the table comes before
    the difference.
    """
    cluster.node("cmd-applies", labels={f"{PREFIX}/speed.expected": "3200G"})
    first, second = (
        bwagent(*probe, "cmd-applies", kubeconfig=cluster.kubeconfig()) for _ in range(2)
    )
    assert (first.returncode, first.stderr) == (0, "")
    assert f"+ {PREFIX}/speed.current=0G" in first.stdout.splitlines()
    assert first.stdout.index("Labels\n") < first.stdout.index("Node cmd-applies:")
    assert second.stdout.splitlines()[-1] == "Node cmd-applies: no label changes"
    assert cluster.labels("cmd-applies")[f"{PREFIX}/speed.expected"] == "3200G"
    assert cluster.labels("cmd-applies")[f"{PREFIX}/speed.current"] == "0G"


def test_a_difference_changes_nothing(cluster: Cluster, probe: tuple[str, ...]) -> None:
    """`--dry-run --diff` prints what would be added, to standard error beside JSON on
    standard output.
    """
    cluster.node("cmd-diff")
    done = bwagent(
        *probe, "cmd-diff", "--dry-run", "--diff", "-o", "json", kubeconfig=cluster.kubeconfig()
    )
    assert json.loads(done.stdout)["labels"] == {f"{PREFIX}/speed.current": "0G"}
    assert f"+ {PREFIX}/speed.current=0G" in done.stderr.splitlines()
    assert PREFIX not in str(cluster.labels("cmd-diff"))


def test_cleanup_removes_what_is_ours(cluster: Cluster, probe: tuple[str, ...]) -> None:
    """One Node is cleaned, then nothing is left to remove; the site's own labels stay."""
    cluster.node("cmd-clean", labels={f"{PREFIX}/rack": "r1"})
    bwagent(*probe, "cmd-clean", kubeconfig=cluster.kubeconfig())
    clean = ("cleanup", "--yes", "--node-name", "cmd-clean")
    first, second = (bwagent(*clean, kubeconfig=cluster.kubeconfig()) for _ in range(2))
    assert f"- {PREFIX}/speed.current=0G" in first.stdout.splitlines()
    assert second.stdout == "nothing to remove\n"
    assert [key for key in cluster.labels("cmd-clean") if key.startswith(PREFIX)] == [
        f"{PREFIX}/rack"
    ]


STALE = f"{PREFIX}/neighbors.current.x.device"


def clean(cluster: Cluster, node: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Clean a Node up without a question."""
    words = ("cleanup", "--yes", "--node-name", node, *more)
    return bwagent(*words, kubeconfig=cluster.kubeconfig())


def test_cleanup_names_what_others_have_too(cluster: Cluster, probe: tuple[str, ...]) -> None:
    """A label that another manager has applied with the same value survives, and is an error."""
    cluster.node("cmd-shared")
    bwagent(*probe, "cmd-shared", kubeconfig=cluster.kubeconfig())
    shared = {"labels": {f"{PREFIX}/speed.current": "0G"}}
    assert cluster.apply("cmd-shared", shared, "in-house").status == 200
    done = clean(cluster, "cmd-shared")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"not removed, held by in-house: {PREFIX}/speed.current; to remove:" in done.stderr
    assert cluster.labels("cmd-shared")[f"{PREFIX}/speed.current"] == "0G"
    done = clean(cluster, "cmd-shared", "--foreign")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"- {PREFIX}/speed.current=0G, held by in-house" in done.stdout.splitlines()
    assert PREFIX not in str(cluster.labels("cmd-shared"))


@pytest.mark.parametrize("later", [False, True], ids=["nobody", "before-first-apply"])
def test_cleanup_after_a_reset_of_managed_fields(
    cluster: Cluster, probe: tuple[str, ...], *, later: bool
) -> None:
    """`managedFields: [{}]` takes the owner away, and the next server-side apply gives its fields
    to before-first-apply. Neither is "nothing to remove".
    """
    node = f"cmd-reset-{later}".lower()
    cluster.node(node)
    bwagent(*probe, node, kubeconfig=cluster.kubeconfig())
    assert cluster.merge(node, {"managedFields": [{}]}).status == 200
    if later:
        cluster.apply(node, {"labels": {"a": "b"}}, "x")
    owner = "before-first-apply" if later else "no manager"
    for command in (("--node-name", node), ("--all",)):
        done = bwagent("cleanup", "--yes", *command, kubeconfig=cluster.kubeconfig())
        keys = f"{PREFIX}/observed, {PREFIX}/speed.current"
        assert done.returncode == 1
        assert f"Node {node}: not removed, held by {owner}: {keys}; to remove:" in done.stderr
    removed = clean(cluster, node, "--foreign")
    assert f"- {PREFIX}/speed.current=0G, held by {owner}" in removed.stdout.splitlines()
    assert PREFIX not in str(cluster.labels(node))
    cluster.kubectl("annotate", "node", node, f"{PREFIX}/observed-")
    assert clean(cluster, node).stdout == "nothing to remove\n"


def set_by(cluster: Cluster, node: str, key: str, **by: str) -> None:
    """Set a label to `a` as a field manager, by `kubectl label` or otherwise."""
    words = [f"--{flag.replace('_', '-')}={value}" for flag, value in by.items()]
    labeled = {"metadata": {"name": node, "labels": {key: "a"}}}
    if "subresource" in by:
        patch = f"--patch={json.dumps(labeled)}"
        cluster.kubectl("patch", "node", node, "--type=merge", patch, *words)
    else:
        document = json.dumps({"apiVersion": "v1", "kind": "Node", **labeled})
        cluster.kubectl("apply", "--server-side", "--filename=-", *words, stdin=document)


@pytest.mark.parametrize("twice", [True, False], ids=["applied too", "through the status"])
def test_one_manager_with_two_entries_in_managed_fields(cluster: Cluster, *, twice: bool) -> None:
    """`kubectl label` and `kubectl apply` as one manager, and a label that was set through the
    subresource `status`, as a kubelet does: the manager is named once, and alone has the key.
    """
    node = f"cmd-entries-{twice}".lower()
    cluster.node(node, labels={"site.example/rack": "1"})
    if twice:
        cluster.kubectl("label", "--field-manager=old", "node", node, f"{STALE}=a")
        set_by(cluster, node, STALE, field_manager="old")
    else:
        set_by(cluster, node, STALE, field_manager="old", subresource="status")
    done = clean(cluster, node, "--foreign", "--manager", "old")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"- {STALE}=a, held by old" in done.stdout.splitlines()
    assert STALE not in cluster.labels(node)


@pytest.mark.parametrize("taken", [True, False], ids=["taken over", "another change"])
def test_a_change_just_before_the_removal(cluster: Cluster, *, taken: bool) -> None:
    """The request is for the version of the Node that was read last, and repeated for a newer one
    if the label is as it was shown.
    """
    node = f"cmd-just-{taken}".lower()
    cluster.node(node, labels={"site.example/rack": "1", STALE: "a"})
    change = {"key": STALE, "field_manager": "bwagent"} if taken else {"key": "a/b"}
    changes = [partial(set_by, cluster, node, **change)]
    with closing(session(cluster.kubeconfig())) as kube:

        def late(request: Request) -> Answer:
            if request["operation"] == "patch" and changes:
                changes.pop()()
            return kube(request)

        [found] = foreign_removals(read_nodes(kube, node), Keys(Naming()), None)
        step = remove_foreign(late, found)
    assert not changes
    assert step.fault == (f"Node {node}: {CHANGED}" if taken else None)
    assert (STALE in cluster.labels(node)) is taken


def test_a_node_that_is_recreated_meanwhile(cluster: Cluster) -> None:
    """Nothing is removed from the new Node, though it has the same labels."""
    shown = {"site.example/rack": "1", STALE: "a"}
    cluster.node("cmd-again-new", labels=shown)

    def recreate() -> None:
        cluster.request("DELETE", "/api/v1/nodes/cmd-again-new")
        cluster.node("cmd-again-new", labels=shown)

    status, said = answered(cluster, "cmd-again-new", recreate, "--foreign")
    assert (status, said.splitlines()[-1]) == (1, f"bwagent: Node cmd-again-new: {CHANGED}")
    assert cluster.labels("cmd-again-new") == shown


def answered(
    cluster: Cluster, node: str, meanwhile: Callable[[], None], *more: str
) -> tuple[int, str]:
    """Clean a Node up, and say yes after `meanwhile`; return exit code and output."""
    command = [sys.executable, "-m", "agent.cli", "cleanup", "--node-name", node, *more]
    command += ["--kubeconfig", str(cluster.kubeconfig())]
    ours, theirs = pty.openpty()
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    # Unbuffered: communicate() does not return what readline() has read ahead.
    with subprocess.Popen(command, 0, stdin=theirs, stdout=pipe, stderr=both) as process:
        try:
            assert process.stdout
            said = process.stdout.readline()  # it has read the Node
            meanwhile()
            os.write(ours, b"y\n")
            rest, _ = process.communicate(timeout=120)
        finally:
            process.kill()
    os.close(ours)
    os.close(theirs)
    return process.returncode, (said + rest).decode()


def carriers(cluster: Cluster) -> list[str]:
    """The Nodes on which the agent has fields."""
    nodes = cluster.request("GET", "/api/v1/nodes").body["items"]
    return [node["metadata"]["name"] for node in nodes if "bwagent" in managers(node["metadata"])]


def managers(metadata: dict[str, Any]) -> set[str]:
    """The field managers of an object; one without labels may have none."""
    return {entry["manager"] for entry in metadata.get("managedFields", [])}


def test_a_node_of_more_than_a_mebibyte(fresh: Cluster, probe: tuple[str, ...]) -> None:
    """The agent reads and labels it; cleanup removes what it owns there."""
    fresh.node("cmd-huge")
    bwagent(*probe, "cmd-huge", kubeconfig=fresh.kubeconfig())
    assert fresh.merge("cmd-huge", {"labels": population.huge_labels()}).status == 200
    done = bwagent(*probe, "cmd-huge", kubeconfig=fresh.kubeconfig())
    assert (done.returncode, done.stderr) == (0, "")
    clean = bwagent("cleanup", "--all", "--yes", kubeconfig=fresh.kubeconfig())
    assert (clean.returncode, clean.stderr) == (0, "")
    assert "Node cmd-huge: 1 label removed" in clean.stdout
    assert "cmd-huge" not in carriers(fresh)


def test_a_cleanup_that_is_cut_short_is_repeated(fresh: Cluster) -> None:
    """Interrupted, and without its API server, it says which Nodes remain; a third one ends it."""
    population.create_fat(fresh, [f"n{number:03}" for number in range(FAT)])
    interrupted = cut_short(fresh, lambda process: process.send_signal(signal.SIGINT))
    left = carriers(fresh)
    assert 0 < len(left) < FAT
    assert interrupted[0] == 130
    assert interrupted[1] == f"bwagent: {remaining(left, FAT)}"
    status, said = cut_short(fresh, lambda _process: fresh.stop_server())
    fresh.start_server()
    fresh.until_ready()
    more = carriers(fresh)
    assert 0 < len(more) < len(left)
    assert status == 1
    assert f"of {len(left)} Nodes remain: " in said
    done = bwagent("cleanup", "--all", "--yes", kubeconfig=fresh.kubeconfig())
    assert (done.returncode, done.stderr, carriers(fresh)) == (0, "", [])


def remaining(names: list[str], count: int) -> str:
    first, more = ", ".join(names[:20]), len(names) - 20
    return f"{len(names)} of {count} Nodes remain: {first} and {more} more; repeat the command"


# A process that is started in the background of a script ignores SIGINT.
INTERRUPTIBLE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from agent.cli import main
main()
"""


def cut_short(cluster: Cluster, cut: Callable[[subprocess.Popen[str]], None]) -> tuple[int, str]:
    """Clean all Nodes, do this after the tenth; return exit code and the line about the rest."""
    arguments = ("cleanup", "--all", "--yes", "--kubeconfig", str(cluster.kubeconfig()))
    command = [sys.executable, "-c", INTERRUPTIBLE, *arguments]
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, text=True, stdin=nothing, stdout=pipe, stderr=pipe) as process:
        changed = 0
        assert process.stdout
        for line in process.stdout:
            changed += line.endswith("labels removed\n")
            if changed == 10:
                cut(process)
                break
        _, said = process.communicate(timeout=120)
    [line] = [line for line in said.splitlines() if "remain: " in line]
    return process.returncode, line
