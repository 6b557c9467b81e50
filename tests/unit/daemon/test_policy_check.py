"""The check of the admission policy by a running agent: when, and what its results mean."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from agent.kube.answers import Answer
from tests.support import nodes
from tests.support.kernel_tree import hca
from tests.support.running import HOUR, Api, World

DAY = 86400.0
DENIED = Answer(
    422,
    message="nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'bwagent' with "
    "binding 'bwagent' denied request: bwagent changes its own labels only, not x",
)
FORBIDDEN = Answer(403, message="cannot patch resource")
READY = (True, "ok\n")
NOT_IN_FORCE = (False, "the admission policy is not in force (--require-policy)\n")
NOT_CHECKED = (False, "the admission policy was not checked yet (--require-policy)\n")


class Policy:
    """The answer to the checks: a reply, or None where the API server accepts the label."""

    def __init__(self, reply: Answer | None) -> None:
        self.reply = reply

    def __call__(self, request: Mapping[str, Any]) -> Answer | None:
        if request["operation"] != "check-policy":
            return None
        label = request["body"]["metadata"]["labels"]
        return self.reply or Answer(200, node=nodes.node(label))


def world(reply: Answer | None, **changes: Any) -> tuple[World, Policy]:
    policy = Policy(reply)
    tree = hca("ibp0", "0000:18:00.0")
    return World(tree, api=Api(trouble=policy), policy=True, **changes), policy


def checks(world: World) -> list[float]:
    return [at for at, operation in world.api.requests if operation == "check-policy"]


def lines(world: World, text: str) -> list[str]:
    return [line for line in world.lines if text in line]


@pytest.mark.slow
def test_a_policy_that_is_in_force_is_checked_once_a_day() -> None:
    """After the labels; no line, and the metric is 1."""
    found, _ = world(DENIED)
    found.run(1.2 * DAY)
    times = checks(found)
    assert times[0] > found.api.applied()[0]
    assert len(times) == 2
    assert all(0.9 * DAY <= b - a <= 1.1 * DAY for a, b in pairwise(times))
    assert (found.metrics.snapshot.policy_in_force, lines(found, "policy")) == (True, [])


@pytest.mark.slow
def test_a_policy_that_is_not_in_force_has_one_line() -> None:
    """The metric is 0, and the agent ready; it is checked again after a time that doubles up to an
    hour.
    """
    found, policy = world(None)
    found.run(6 * HOUR)
    assert found.state.readiness() == READY
    assert found.metrics.snapshot.policy_in_force is False
    (line,) = lines(found, "policy")
    assert "policy not in force" in line
    assert "kubectl apply --server-side" in line
    times = checks(found)
    assert times[1] - times[0] <= 30.0
    assert 10 <= len(times) <= 20
    policy.reply = DENIED
    found.run(HOUR)
    assert lines(found, "policy in force") == lines(found, "policy")[1:]
    assert found.metrics.snapshot.policy_in_force is True


@pytest.mark.slow
@pytest.mark.parametrize("reply", [FORBIDDEN, Answer(error="timeout", message="none")])
def test_a_check_without_result(reply: Answer) -> None:
    """It is unknown: a line, no metric, and no reason to be unready."""
    found, policy = world(reply, require_policy=True)
    found.run(HOUR)
    assert found.metrics.snapshot.policy_in_force is None
    assert len(lines(found, "policy not checked")) == 1
    assert found.state.readiness() == READY
    policy.reply = DENIED
    found.run(2 * HOUR)
    assert len(lines(found, "policy checked")) == 1


def test_a_check_without_result_changes_no_earlier_one() -> None:
    found, policy = world(None, require_policy=True)
    found.run(60.0)
    policy.reply = FORBIDDEN
    found.run(HOUR)
    assert found.metrics.snapshot.policy_in_force is False
    assert found.state.readiness() == NOT_IN_FORCE


def test_readiness_with_require_policy() -> None:
    """Unready before the first check and without the policy, with labels applied all the same."""
    found, policy = world(None, require_policy=True)
    found.run(1.0)
    assert (found.labels["flavor"], found.state.readiness()) == ("infiniband", NOT_CHECKED)
    found.run(10.0)
    assert (found.state.readiness(), found.metrics.snapshot.ready) == (NOT_IN_FORCE, False)
    policy.reply = DENIED
    found.run(HOUR)
    assert (found.state.readiness(), found.metrics.snapshot.ready) == (READY, True)


def test_both_reasons_are_shown() -> None:
    found, policy = world(None, require_policy=True)
    refusal = Answer(403, message=f"not {nodes.FLAVOR}")
    found.api.trouble = lambda request: (
        policy(request) or (refusal if request["operation"] == "apply" else None)
    )
    found.run(60.0)
    ready, text = found.state.readiness()
    assert (ready, text.splitlines()[-1]) == (False, NOT_IN_FORCE[1].strip())
    assert "keys refused" in text


def test_sighup_checks_a_policy_that_is_missing() -> None:
    """One that is in force is left to the daily check."""
    found, policy = world(None)
    found.run(3 * HOUR)
    before = len(checks(found))
    policy.reply = DENIED
    found.look(1.0)
    assert len(checks(found)) == before + 1
    found.look(60.0)
    assert len(checks(found)) == before + 1


def test_a_late_answer_holds_up_no_label() -> None:
    """The check has a request of its own."""
    found, _ = world(DENIED)
    found.slow = 20.0
    found.run(70.0)
    assert found.api.applied()[0] < checks(found)[0]
    assert found.labels["flavor"] == "infiniband"


def test_no_check_before_the_node_was_read() -> None:
    found, policy = world(DENIED)
    found.api.trouble = lambda request: policy(request) or Answer(404, message="no")
    found.run(HOUR)
    assert checks(found) == []
