"""A capture by the agent's Pod on a Node, with kubectl."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from agent.errors import Malformed, Unavailable
from agent.folder import draft_of
from agent.snapshot.archive import entries
from agent.snapshot.written import WRITER, write_folder

SELECTOR = "app.kubernetes.io/name=bwagent"  # of the manifests and the chart


@dataclass(frozen=True, slots=True)
class Pods:
    """The agents' Pods, and how kubectl reaches them."""

    namespace: str
    kubeconfig: str | None
    context: str | None

    def on(self, node: str) -> str:
        """Return the name of the running Pod on a Node; raises Unavailable without one."""
        fields = f"spec.nodeName={node},status.phase=Running"
        select = ("--selector", SELECTOR, "--field-selector", fields)
        command = self._command(["get", "pods", *select, "-o", "json"])
        try:
            done = subprocess.run(  # noqa: S603 - the kubectl of the user's PATH
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
                f"Node {node}: no running Pod {SELECTOR} in namespace {self.namespace}"
                " (another one: --namespace)"
            )
        return names[0]

    def capture(self, pod: str, words: Sequence[str], file: IO[bytes]) -> int:
        """Write the archive of a Pod into a file; return kubectl's exit code.

        Its messages go to this command's standard error.
        """
        command = self._command(["exec", pod, "--", "bwagent", "capture", "-", *words])
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, check=False)  # noqa: S603 - as above
        return done.returncode

    def _command(self, words: Sequence[str]) -> list[str]:
        flags = ["--namespace", self.namespace]
        flags += ["--kubeconfig", self.kubeconfig] if self.kubeconfig else []
        flags += ["--context", self.context] if self.context else []
        return ["kubectl", *flags, *words]


def save(pods: Pods, node: str, target: str, words: Sequence[str]) -> int:
    """Save the capture of a Node; return the number of its files and links. Raises Unavailable."""
    with draft_of(target, WRITER) as draft:
        pod = pods.on(node)
        archive = draft / "capture.tar"
        with archive.open("wb") as file:
            code = pods.capture(pod, words, file)
        if code:
            raise Unavailable(f"Node {node}: capture in Pod {pod} failed with exit code {code}")
        try:
            found = entries(str(archive))
        except Malformed as error:
            raise Unavailable(f"Node {node}: Pod {pod}: {error}") from error
        if target.endswith(".tar"):
            archive.rename(target)
    if not target.endswith(".tar"):
        write_folder(found, target)
    return sum(entry is not None for entry in found.values())
