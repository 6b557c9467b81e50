"""`cleanup --lost`: Nodes whose annotation it cannot change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.cleanup import forget_lost, losses, unforgotten
from agent.errors import Rejected
from agent.kube.annotation import render
from agent.kube.answers import Answer
from agent.labels.table import Naming
from agent.memory import Fact
from tests.support.api_server import replies
from tests.support.nodes import ANNOTATED, KEYS, NOW, node

GONE = Fact("ibp3", "0000:5e:00.0", lost_since=NOW)
LOST = replace(ANNOTATED, lost=(GONE,))


def by_hand(text: str) -> dict[str, Any]:
    """A Node whose annotation another manager has."""
    found = node(observed=text)
    found["metadata"]["managedFields"][0]["manager"] = "hand"
    return found


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (render(LOST), "is held by hand"),
        ("{", "malformed annotation, ignored"),
        (render(ANNOTATED), None),
    ],
)
def test_losses_that_cannot_be_removed(text: str, line: str | None) -> None:
    """An annotation with lost ports that another manager has, and a malformed one, are faults."""
    found = losses([by_hand(text)], KEYS)
    assert bool(found) == bool(line)
    for plan in found:
        (fault,) = unforgotten(plan)
        assert not plan.is_due
        assert fault.startswith(f"Node {plan.node}: ")
        assert (line or "") in fault
        kube = replies(Answer(200, node=by_hand(text)))[1]
        with pytest.raises(Rejected, match=line):
            forget_lost(kube, "n1", Naming(), yes=True)
    (own,) = losses([node(observed=render(LOST))], KEYS)
    assert (own.is_due, unforgotten(own)) == (True, [])
