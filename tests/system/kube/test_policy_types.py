"""The policies under the type checker of kube-controller-manager."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kube import controllers
from tests.support.kube.agents import install
from tests.support.kube.cluster import Cluster
from tests.support.kube.programs import missing
from tests.support.real_parts import require

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


@pytest.fixture(scope="module")
def checked(fresh: Cluster) -> Iterator[Cluster]:
    """An API server with the policy, and the controller that checks it."""
    require(missing(*controllers.PROGRAMS))
    install(fresh, "sysfs")
    with controllers.controllers(fresh, "validatingadmissionpolicy-status-controller"):
        yield fresh


@pytest.mark.parametrize("name", ["bwagent", "bwagent-events"])
def test_no_warning(checked: Cluster, name: str) -> None:
    """Each expression fits the type of a Node or Event: `kubectl describe` shows no warning."""

    def status() -> dict[str, Any]:
        found = checked.request("GET", f"{POLICIES}/{name}").body.get("status", {})
        return dict(found) if "observedGeneration" in found else {}

    found = controllers.eventually(checked, "the policy is checked", status)
    assert found["typeChecking"] == {}
