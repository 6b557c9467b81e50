"""Checks the verdict on the cables: each page in itself, and the last one against the true cables.

The expected labels are set by the site before the agent starts. Shares no code with the agent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from tests.simulation.names import P, encode
from tests.simulation.node import HERE, Hca, Node
from tests.support.server_side_apply import Key

STATUS = {"pass": "200", "unverified": "200", "fail": "503", "pending": "404", "no-plan": "404"}


class Verdicts:
    """The verdicts of a node's agents; `fault` records a violation."""

    def __init__(self, node: Node, fault: Callable[[float, str], None]) -> None:
        self._node, self._fault = node, fault
        self._planned = {hca.name: encode(hca.peer.device) for hca in node.hcas}
        self.word = ""

    @property
    def expected(self) -> dict[Key, str | None]:
        """The labels of the site: the devices as cabled at the start."""
        return {("labels", self._key(name)): device for name, device in self._planned.items()}

    def page(self, now: float, status: str, body: bytes) -> None:
        """Check that a page agrees with its findings."""
        document = json.loads(body)
        self.word = word = document["verdict"]
        errors = [one["id"] for one in document.get("findings", ()) if one["severity"] == "error"]
        if status[:3] != STATUS[word]:
            self._fault(now, f"the verdict {word} with status {status}")
        # A new agent has the verdict of the one before, and says so, until it has one of its own.
        is_before = "of the agent before" in document.get("reason", "") and not errors
        if bool(errors) != (word == "fail") and not is_before:
            self._fault(now, f"the verdict {word} with the errors {errors}")

    def finish(self, now: float, fields: Mapping[Key, str]) -> None:
        """Check the last verdict, long after all faults, if the site's labels are still there."""
        expected = {key: value for key, value in fields.items() if ".expected" in key[1]}
        if expected != self.expected or not self._planned:
            return
        if self.word in {"pending", "no-plan"}:
            self._fault(now, f"the verdict is {self.word}, and cables are planned")
        if self.word == "pass" and any(map(self._is_wrong, self._node.hcas)):
            self._fault(now, "the verdict is pass, and a cable is not as planned")
        if self.word == "fail" and all(map(self._is_right, self._node.hcas)):
            self._fault(now, "the verdict is fail, and all cables are as planned")

    def _is_wrong(self, hca: Hca) -> bool:
        planned = self._planned.get(hca.name)
        return planned is not None and planned != encode(hca.peer.device)

    def _is_right(self, hca: Hca) -> bool:
        is_shown = hca.where == HERE and hca.up and hca.state == "ACTIVE"
        return is_shown and self._planned.get(hca.name) == encode(hca.peer.device)

    @staticmethod
    def _key(name: str) -> str:
        return f"{P}/neighbors.expected.{name}.device"
