"""One API server for the tests of a run, in each worker; each test makes Nodes of its own in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.kube.agents import install
from tests.support.kube.cluster import Cluster
from tests.support.kube.lending import lent
from tests.support.kube.programs import missing
from tests.support.real_parts import require

if TYPE_CHECKING:
    from collections.abc import Iterator


# What takes longest begins first; groups, or folders of files.
FIRST = ("machine", "tests/system/qemu", "rack")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file in one worker: real components are started once a file, those of a
    group of files (`xdist_group`) once a group.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    items.sort(key=rank)


def rank(item: pytest.Item) -> int:
    """Return the place of a test's group in the order of the run."""
    (group,) = (mark.args[0] for mark in item.iter_markers("xdist_group"))
    return next((n for n, name in enumerate(FIRST) if group.startswith(name)), len(FIRST))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A running control plane; the test is skipped where its programs are not built."""
    require(missing())
    with Cluster() as running:
        yield running


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Cluster:
    """The API server with the manifests in it."""
    install(cluster, "sysfs")
    return cluster


@pytest.fixture(scope="session")
def spare() -> Iterator[Cluster]:
    """A second control plane, of which `lent` makes a fresh one for each file."""
    require(missing())
    with Cluster() as running:
        yield running


@pytest.fixture(scope="module")
def fresh(spare: Cluster) -> Iterator[Cluster]:
    """An API server without manifests, for the tests of one file."""
    with lent(spare) as cluster:
        yield cluster
