"""The recordings of what is no file: one part for each source that does I/O of its own.

Those of neighbors are in the folders of their protocols. The daemon loads none of them.

routes.json    `ip -j route show table main`, and the same with `-6`, in one list; of a route only
               `dst`, `dev`, `nexthops`, `metric`, `type` and `family` (4 or 6) count
nvml.json      answer of the helper (agent/nvml/library.py, query)
nics.json      answer of the helper (agent/nic/query.py); in its place a capture by capture.sh has
               what programs print (agent/nic/tools.py)
modules.json   answer of the helper (agent/transceiver/query.py)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from agent.errors import Malformed
from agent.host import Host
from agent.infiniband.snapshot import RecordedSmps
from agent.lldp.snapshot import RecordedLldp
from agent.recorded_answer import NO_MODULES, RecordedAnswer, Recording
from agent.snapshot.tree import SnapshotFiles
from agent.sysfs import parse
from agent.sysfs.front_end import Hop

if TYPE_CHECKING:  # its expressions are compiled, for an anonymized capture only
    from typing import Self

    from agent.snapshot.anonymize import Names


ROUTES = "routes.json"
MAX_ROUTES = 100_000
MAX_METRIC = 0xFFFFFFFF
SERIALS = {True: slice(68, 84), False: slice(38, 54)}  # of page 00h; True: SFF-8636, else CMIS
CUSTOM = 96  # octets 224 to 255 of page 00h are the vendor's own


class RecordedRoutes(Recording):
    """The recorded next hops; None: the tables of /proc/net stand in."""

    def __init__(self, hops: tuple[Hop, ...] | None = None) -> None:
        self.hops = hops

    @classmethod
    def record(cls, host: Host) -> tuple[Self, Host]:
        """Return an empty record, and the host with I/O that fills it."""
        recorded = cls()

        def routes() -> tuple[Hop, ...] | None:
            hops = host.routes()
            recorded.hops = None if hops is None else tuple(hops)
            return recorded.hops

        return recorded, host._replace(routes=routes)

    @classmethod
    def load(cls, files: SnapshotFiles, _facts: Mapping[str, Any]) -> Self:
        """Load the record; raises Malformed."""
        if not files.has_file(ROUTES):
            return cls()
        try:
            rows = json.loads(files.read(ROUTES))
        except (ValueError, RecursionError) as error:
            raise Malformed(f"{ROUTES}: not JSON: {error}") from None
        if not isinstance(rows, list) or len(rows) > MAX_ROUTES:
            raise Malformed(f"{ROUTES}: no list of at most {MAX_ROUTES} routes")
        return cls(tuple(hop for row in rows for hop in _hops(row)))

    def replayed(self, host: Host) -> Host:
        """Return the host with I/O that replays this record."""
        return host._replace(routes=lambda: self.hops)

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
        return {ROUTES: json.dumps(rows, indent=1).encode() + b"\n"}


def _hops(row: Any) -> Iterator[Hop]:
    """Yield the next hops of a row of `ip -j route` that is a unicast default route."""
    if not isinstance(row, dict):
        raise Malformed(f"{ROUTES}: a route is no object")
    if row.get("dst") != "default" or row.get("type", "unicast") != "unicast":
        return
    metric, nexthops = row.get("metric", 0), row.get("nexthops", [row])
    family = row.get("family", 6 if "pref" in row else 4)
    is_valid = type(metric) is int and 0 <= metric <= MAX_METRIC and family in (4, 6)
    if not is_valid or not isinstance(nexthops, list):
        raise Malformed(f"{ROUTES}: the metric, family or next hops of a default route")
    for hop in nexthops:
        name = hop.get("dev") if isinstance(hop, dict) else None
        if not isinstance(name, str):
            raise Malformed(f"{ROUTES}: a next hop of a default route without dev")
        try:
            yield Hop(family, metric, parse.netdev_name(name))
        except Malformed as error:
            raise Malformed(f"{ROUTES}: {error}") from error


class RecordedNvml(RecordedAnswer):
    """The answer of NVML."""

    file: ClassVar[str] = "nvml.json"
    field: ClassVar[str] = "gpus"
    absent: ClassVar[str] = "the snapshot has no answer of NVML"

    def replayed(self, host: Host) -> Host:
        """Return the host with I/O that replays this record.

        Where NVML was queried, its answer counts, whatever is on the PCI bus.
        """
        return host._replace(gpus=self.given, gpus_off_bus=self.answer is not None)

    def anonymized(self, names: Names) -> Self:
        """Return the record with replaced UUIDs of GPUs and clusters, and serials."""
        return type(self)(_anonymized(self.answer, names))


def _anonymized(value: Any, names: Names) -> Any:
    """Replace names in JSON: UUIDs of GPUs in text, of clusters as 32 hex digits, serials."""
    if isinstance(value, list):
        return [_anonymized(item, names) for item in value]
    if isinstance(value, dict):
        cluster = value.get("cluster_uuid")
        replaced = {"cluster_uuid": names.digits(cluster)} if isinstance(cluster, str) else {}
        serial = value.get("chassis_serial_number")
        replaced |= {"chassis_serial_number": names.peer(serial, "chassis")} if serial else {}
        return {key: _anonymized(item, names) for key, item in (value | replaced).items()}
    return names.text(value) if isinstance(value, str) else value


class RecordedNics(RecordedAnswer):
    """The answer of the drivers; without one a replay has no NICs to ask about."""

    file: ClassVar[str] = "nics.json"
    field: ClassVar[str] = "ask_nics"

    @classmethod
    def load(cls, files: SnapshotFiles, _facts: Mapping[str, Any]) -> Self:
        """Load the record; raises Malformed."""
        answer = files.json(cls.file)
        if answer is None and (files.has_folder("ethtool") or files.has_folder("devlink")):
            from agent.nic import tools

            answer = tools.answer(files)
        return cls(answer)

    def replayed(self, host: Host) -> Host:
        """Return the host with I/O that replays this record."""
        return host._replace(ask_nics=None if self.answer is None else self.given)


class RecordedModules(RecordedAnswer):
    """The answer about the modules."""

    file: ClassVar[str] = "modules.json"
    field: ClassVar[str] = "modules"
    absent: ClassVar[str] = NO_MODULES

    @classmethod
    def load(cls, files: SnapshotFiles, _facts: Mapping[str, Any]) -> Self:
        """Load the record; raises Malformed."""
        answer = files.json(cls.file)
        if answer is not None:
            from agent.transceiver.eeprom import loaded  # most snapshots have no modules

            loaded(answer)
        return cls(answer)

    def anonymized(self, names: Names) -> Self:
        """Return the record with replaced serial numbers, and without the vendors' own octets."""
        if self.answer is None:
            return self
        from agent.transceiver.eeprom import LOWER, MODULES, QSFP, UPPER, loaded

        modules = []
        for module in loaded(self.answer):
            pages = dict(module.pages)
            if UPPER in pages:
                octets = bytearray(pages[UPPER])
                place = SERIALS[pages.get(LOWER, b"")[:1] in {bytes([kind]) for kind in QSFP}]
                serial = octets[place].decode("ascii", "replace").strip(" \0")
                octets[place] = f"{names.peer(serial, 'serial') if serial else '':16.16}".encode()
                octets[CUSTOM:] = bytes(len(octets[CUSTOM:]))
                pages[UPPER] = bytes(octets)
            modules.append(module._replace(netdev=names.text(module.netdev), pages=pages))
        return type(self)({"modules": MODULES.document(modules)})


Recordings = dict[str, Recording]  # by the name of their source


PARTS: dict[str, type[Recording]] = {
    "rdma": RecordedRoutes,
    "lldp": RecordedLldp,
    "ib": RecordedSmps,
    "nvml": RecordedNvml,
    "nics": RecordedNics,
    "modules": RecordedModules,  # only if asked for
}


def load(files: SnapshotFiles, facts: Mapping[str, Any]) -> Recordings:
    """Load the recordings of a snapshot; `facts` is host.json. Raises Malformed."""
    return {name: part.load(files, facts) for name, part in PARTS.items()}


def merged(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the entries of all parts."""
    return {key: value for part in parts for key, value in part.items()}
