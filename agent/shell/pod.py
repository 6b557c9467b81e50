"""A capture by the agent's Pod on a Node, with kubectl."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

from agent.errors import Malformed, Unavailable
from agent.folder import draft_of
from agent.snapshot.archive import entries
from agent.snapshot.capture import STANDARD_OUTPUT, WRITER, write_folder
from agent.text import many

CLOSING = f"{STANDARD_OUTPUT}: "  # of the last line of a capture
SELECTOR = "app.kubernetes.io/name=bwagent"  # of the manifests and the chart


def save(
    node: str, target: str, words: Sequence[str], namespace: str, flags: Mapping[str, str | None]
) -> str:
    """Save the capture of a Node; return its summary by the agent: `17 files, 1 link`.

    `words` are flags of its `bwagent capture`, `flags` those of kubectl. Raises Unavailable.
    """
    kubectl = ["kubectl", "--namespace", namespace]
    for name, value in flags.items():
        kubectl += [f"--{name}", value] if value else []
    with draft_of(target, WRITER) as draft:
        pod = _pod_on(node, namespace, kubectl)
        archive = draft / "capture.tar"
        command = [*kubectl, "exec", pod, "--", "bwagent", "capture", "-", *words]
        summary = ""
        with (
            archive.open("wb") as file,
            subprocess.Popen(  # noqa: S603 - the kubectl of the user's PATH
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE
            ) as process,
        ):
            for octets in process.stderr or ():
                line = octets.decode(errors="replace")
                if CLOSING in line:
                    summary = line.partition(CLOSING)[2].strip()
                else:
                    sys.stderr.write(line)
        if code := process.returncode:
            raise Unavailable(f"Node {node}: capture in Pod {pod} failed with exit code {code}")
        try:
            contents = entries(str(archive))
        except Malformed as error:
            raise Unavailable(f"Node {node}: Pod {pod}: {error}") from error
        if target.endswith(".tar"):
            archive.rename(target)
    if not target.endswith(".tar"):
        write_folder(contents, target)
    return summary or many(sum(content is not None for content in contents.values()), "file")


def _pod_on(node: str, namespace: str, kubectl: Sequence[str]) -> str:
    """Return the name of the agent's running Pod on a Node; raises Unavailable if there is none."""
    fields = f"spec.nodeName={node},status.phase=Running"
    select = ("--selector", SELECTOR, "--field-selector", fields)
    command = [*kubectl, "get", "pods", *select, "-o", "json"]
    try:
        done = subprocess.run(  # noqa: S603 - as above
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except OSError as error:
        raise Unavailable(f"kubectl: {error.strerror}") from error
    if done.returncode:
        text = " ".join(done.stderr.decode(errors="replace").split())
        raise Unavailable(f"Node {node}: kubectl get pods: {text}")
    try:
        items = json.loads(done.stdout)["items"]
        names = sorted(str(item["metadata"]["name"]) for item in items)
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable(f"Node {node}: kubectl printed no list of Pods") from error
    if not names:
        raise Unavailable(
            f"Node {node}: no running Pod {SELECTOR} in namespace {namespace}"
            " (another one: --namespace)"
        )
    return names[0]
