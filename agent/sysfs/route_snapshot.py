"""The default routes of a snapshot.

routes.json    `ip -j route show table main`, and the same with `-6`, in one list; of a route only
               `dst`, `dev`, `nexthops`, `metric`, `type` and `family` (4 or 6) count
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from agent.errors import Malformed
from agent.recorded_answer import Recording
from agent.sysfs import parse as kernel
from agent.sysfs.front_end import Hop

if TYPE_CHECKING:
    from typing import Self

    from agent.host import Host
    from agent.snapshot.anonymize import Names
    from agent.snapshot.tree import SnapshotFiles

FILE = "routes.json"
MAX_ROUTES = 100_000
MAX_METRIC = 0xFFFFFFFF


class RecordedRoutes(Recording):
    """The recorded next hops; None: the tables of /proc/net stand in."""

    def __init__(self, hops: tuple[Hop, ...] | None = None) -> None:
        self.hops = hops

    def replayed(self) -> dict[str, Any]:
        """Return the field of a Host that replays this record."""
        return {"routes": lambda: self.hops}

    def anonymized(self, _names: Names) -> Self:
        """Return the record: it has names of netdevs only, which stay."""
        return self

    def files(self) -> dict[str, bytes | None]:
        """Return the file of the routes, if they were recorded."""
        if self.hops is None:
            return {}
        rows = [
            {"dst": "default", "dev": hop.netdev, "metric": hop.metric, "family": hop.family}
            for hop in self.hops
        ]
        return {FILE: json.dumps(rows, indent=1).encode() + b"\n"}


def record(host: Host) -> tuple[RecordedRoutes, dict[str, Any]]:
    """Return an empty record, and the field of a Host that queries `host` and fills the record."""
    recorded = RecordedRoutes()

    def routes() -> tuple[Hop, ...] | None:
        hops = host.routes()
        recorded.hops = None if hops is None else tuple(hops)
        return recorded.hops

    return recorded, {"routes": routes}


def load(files: SnapshotFiles, _facts: Mapping[str, Any]) -> RecordedRoutes:
    """Load the record; raises Malformed."""
    if not files.has_file(FILE):
        return RecordedRoutes()
    try:
        rows = json.loads(files.read(FILE))
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{FILE}: not JSON: {error}") from None
    if not isinstance(rows, list) or len(rows) > MAX_ROUTES:
        raise Malformed(f"{FILE}: no list of at most {MAX_ROUTES} routes")
    return RecordedRoutes(tuple(hop for row in rows for hop in _hops(row)))


def _hops(row: Any) -> Iterator[Hop]:
    """Yield the next hops of a row of `ip -j route` that is a unicast default route."""
    if not isinstance(row, dict):
        raise Malformed(f"{FILE}: a route is no object")
    if row.get("dst") != "default" or row.get("type", "unicast") != "unicast":
        return
    metric, nexthops = row.get("metric", 0), row.get("nexthops", [row])
    family = row.get("family", 6 if "pref" in row else 4)
    is_valid = type(metric) is int and 0 <= metric <= MAX_METRIC and family in (4, 6)
    if not is_valid or not isinstance(nexthops, list):
        raise Malformed(f"{FILE}: the metric, family or next hops of a default route")
    for hop in nexthops:
        name = hop.get("dev") if isinstance(hop, dict) else None
        if not isinstance(name, str):
            raise Malformed(f"{FILE}: a next hop of a default route without dev")
        try:
            yield Hop(family, metric, kernel.netdev_name(name))
        except Malformed as error:
            raise Malformed(f"{FILE}: {error}") from error
