"""The timeline used by the tests of the DaemonSet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.kube.cluster import MERGE
from tests.support.kube.timeline import Timeline

if TYPE_CHECKING:
    from tests.support.kube.cluster import Cluster

NODES = "/api/v1/nodes"


def test_what_was_undone_has_happened(cluster: Cluster) -> None:
    """A label that was removed and restored appears as two changes; other changes, Nodes and
    earlier times do not appear.
    """
    for name in ("timeline", "timeline-other"):
        cluster.node(name, labels={"a": "1"})
    timeline = Timeline(cluster, NODES, "timeline")
    assert timeline.label_changes() == []
    for metadata in ({"labels": {"a": None}}, {"annotations": {"a": "2"}}, {"labels": {"a": "1"}}):
        for name in ("timeline", "timeline-other"):
            cluster.request("PATCH", f"{NODES}/{name}", {"metadata": metadata}, kind=MERGE)
    told = [line.partition(": ")[2] for line in timeline.label_changes()]
    assert told == ["a: 1 -> None", "a: None -> 1"]


def test_the_last_words_of_what_is_gone(cluster: Cluster) -> None:
    """A deleted object has a history, too, which ends with its last version."""
    cluster.node("timeline-gone", labels={"a": "1"})
    timeline = Timeline(cluster, NODES, "timeline-gone")
    cluster.request(
        "PATCH", f"{NODES}/timeline-gone", {"metadata": {"labels": {"a": "2"}}}, kind=MERGE
    )
    cluster.request("DELETE", f"{NODES}/timeline-gone")
    assert [version["metadata"]["labels"]["a"] for version in timeline.versions()] == [
        "1",
        "2",
        "2",
    ]
