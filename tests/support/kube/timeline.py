"""The history of an object since a moment, by the API server.

It needs no watcher meanwhile: a watch that begins at an old resourceVersion returns every change
since then, in order, a change and its reversal included. etcd forgets after five minutes, and the
watch fails with that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tests.support.kube.cluster import Cluster

Object = dict[str, Any]


class Timeline:
    """The history of one object; `path` is that of its kind (`/api/v1/nodes`)."""

    def __init__(self, cluster: Cluster, path: str, name: str) -> None:
        self._cluster, self._path, self._name = cluster, path, name
        self._began = self._now()

    def versions(self) -> list[Object]:
        """Return the object as it was at the beginning, and after each change; the last one may be
        the deleted object.
        """
        query = f"watch=true&timeoutSeconds=1&resourceVersion={_version(self._began)}"
        told = self._cluster.kubectl(
            "get", "--raw", f"{self._path}?{query}&fieldSelector=metadata.name={self._name}"
        )
        events = [json.loads(line) for line in told.splitlines()]
        assert not [event for event in events if event["type"] == "ERROR"], told
        return [self._began, *(event["object"] for event in events)]

    def label_changes(self) -> list[str]:
        """Return every change of a label as text, in order."""
        now = self._now()  # the resourceVersion of the object, up to which the history must reach
        versions = self.versions()
        assert int(_version(versions[-1])) >= int(_version(now)), "the watch was cut short"
        return [
            line for before, after in pairwise(versions) for line in _differences(before, after)
        ]

    def _now(self) -> Object:
        return self._cluster.request("GET", f"{self._path}/{self._name}").body


def _version(item: Object) -> str:
    return str(item["metadata"]["resourceVersion"])


def _differences(before: Object, after: Object) -> Iterator[str]:
    was, now = (item["metadata"].get("labels", {}) for item in (before, after))
    for key in sorted(was.keys() | now.keys()):
        if was.get(key) != now.get(key):
            yield f"{_version(after)}: {key}: {was.get(key)} -> {now.get(key)}"
