"""Agents, gates and machines on the API server of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import switch
from tests.support.kube.agents import Agent, an_agent, install
from tests.support.kube.controllers import eventually
from tests.support.kube.rack import Rack, cabled
from tests.support.kube.readiness import a_reporter, denied, install_gate
from tests.support.kube.worker import Worker
from tests.support.kube.worker import missing as no_worker
from tests.support.kube.worker import worker as a_worker
from tests.support.real_parts import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.kube.cluster import Cluster


@pytest.fixture(scope="session")
def gated(installed: Cluster) -> Cluster:
    """The API server with the agent's manifests and the gate of examples/cabling-readiness."""
    install_gate(installed)
    reporter, ready = a_reporter(installed), {"type": "Ready", "status": "True"}
    body = {"metadata": {"name": reporter.node}, "status": {"conditions": [ready]}}
    eventually(installed, "a policy", lambda: denied(reporter.put(body, "?dryRun=All")))
    return installed


@pytest.fixture(scope="package")
def rack(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """A RoCE node in a rack with the agent on it; its changes take their time while other
    tests run.
    """
    require(switch.missing())
    with cabled(cluster, tmp_path_factory.mktemp("rack")) as rack:
        yield rack


@pytest.fixture
def agent(installed: Cluster) -> Agent:
    """An agent with the account of the manifests."""
    return an_agent(installed, "bwagent")


@pytest.fixture
def mighty(installed: Cluster) -> Agent:
    """An agent with all permissions, restricted by the policy alone."""
    return an_agent(installed, "mighty")


@pytest.fixture
def tenant(fresh: Cluster) -> Cluster:
    """An API server with the overlay that names labels of a tenant's own."""
    install(fresh, "coreweave")
    return fresh


@pytest.fixture(scope="package")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A machine with a kubelet, for the agent's DaemonSet."""
    require(no_worker())
    with a_worker(tmp_path_factory.mktemp("worker")) as worker:
        yield worker
