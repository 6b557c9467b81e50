"""One finding, of a node or of a fleet: its code, severity, ports, sentence, facts and stable ID.

A node is a fleet of one: `verify`, `fleet verify` and the daemon make, order and print the same
findings, and one of a single node has the same ID in all three.

Invariant: an ID is of what is wrong where, not of how it was found. It is the same with a plan and
without one, and from run to run, whatever is at the far end now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from agent.cabling.names import leaf_key
from agent.cabling.plans.model import End
from agent.text import Json, natural

ERROR, WARNING, UNKNOWN, INFO = SEVERITIES = ("error", "warning", "unknown", "info")
NODE, FLEET = "node", "fleet"  # scopes: found on each node, or in a fleet only


class Code(NamedTuple):
    """A row of the table of codes."""

    severity: str
    scope: str
    meaning: str
    of_node: str = ""  # the meaning in `verify`, if a fleet has more to compare with


# In the order in which findings are listed.
CODES = {
    "leaf-down": Code(ERROR, FLEET, "a leaf lost all its ports, or nearly all of them"),
    "renamed": Code(
        WARNING, FLEET, "a leaf has another name than in the plan, and its cables are right"
    ),
    "exchanged": Code(ERROR, FLEET, "nodes are in each other's place"),
    "moved": Code(ERROR, FLEET, "a node is elsewhere as a whole"),
    "swapped": Code(
        ERROR,
        NODE,
        "two cables, or a ring of several, changed places, also between nodes",
        "two cables of this node, or a ring of several, changed places",
    ),
    "shifted": Code(ERROR, FLEET, "the cables of a node are shifted by a leaf"),
    "miscabled": Code(
        ERROR,
        NODE,
        "another leaf than planned, or than at the others of the group",
        "another device at the far end",
    ),
    "wrong-port": Code(
        ERROR,
        NODE,
        "the right leaf, another port of it than planned",
        "the right device, another port of it",
    ),
    "missing": Code(
        ERROR,
        NODE,
        "no neighbor, where the plan or the others of the group have one",
        "nobody at the far end",
    ),
    "mirrored": Code(ERROR, FLEET, "the nodes of a rack are cabled in the wrong order"),
    "switch-identity": Code(ERROR, FLEET, "one switch GUID or name with two identities"),
    "claimed": Code(ERROR, FLEET, "one switch port is claimed by two nodes, or by two interfaces"),
    "cloned": Code(ERROR, FLEET, "one HCA GUID is on two Nodes: a cloned image, or a stale Node"),
    "slow": Code(
        WARNING,
        NODE,
        "a lower speed than planned, or than at the others of the group",
        "a rate below the plan's, or below that of the same NICs of this node",
    ),
    "unstable": Code(
        WARNING,
        NODE,
        "InfiniBand links have errors: one, or several of a leaf or of a node",
        "InfiniBand links of this node have errors",
    ),
    "uplinks": Code(
        WARNING, FLEET, "leaves have fewer uplinks than planned, or than the others of their kind"
    ),
    "silent": Code(
        UNKNOWN,
        FLEET,
        "the agent of a Node has not reported for two hours, or since its boot",
    ),
    "unreadable": Code(UNKNOWN, FLEET, "labels or annotation of a Node could not be read"),
    "missing-interface": Code(ERROR, NODE, "an interface of the plan is not on this node"),
    "speed": Code(ERROR, NODE, "`speed.current` is below `speed.expected`"),
    "unexpected": Code(
        WARNING, NODE, "a backend port has a neighbor, and the plan has no cable for it"
    ),
    "duplicate": Code(
        WARNING, NODE, "one switch port for two interfaces, in the plan or on the node"
    ),
    "pcie": Code(
        WARNING, NODE, "a PCIe link of a NIC is slower or narrower than both of its ends permit"
    ),
    "firmware": Code(INFO, FLEET, "firmware of few NICs of a model is another than of the others"),
    "tier-incomplete": Code(
        INFO, FLEET, "nodes have another switch above than the others of their leaf group or tier"
    ),
    "unverifiable": Code(UNKNOWN, NODE, "a privilege, a source or a fact is missing"),
}
RANK = {code: rank for rank, code in enumerate(CODES)}
ID_LENGTH = 12  # hex digits
SAME_ID = {"shifted": "swapped"}  # the cables of a node in a ring, which the pattern tells apart
NOT_VERIFIED = "not-verified"  # fact of an `unverifiable` without interfaces: the code in question

Ends = tuple[str | None, str | None]  # device, port
NO_END: Ends = (None, None)


def end_text(end: Ends) -> str:
    """Return `leaf07 port 12`."""
    device, port = end
    return " ".join(filter(None, (device or "the switch", f"port {port}" if port else None)))


class PortRef(NamedTuple):
    """An interface of a node."""

    node: str
    interface: str

    @property
    def text(self) -> str:
        """The port in words, `gpu-017 mlx5_3`."""
        return f"{self.node} {self.interface}"


class Spot(NamedTuple):
    """The place of one end of a cable in the data hall, if the plan has it."""

    rack: str | None = None
    unit: str | None = None
    label: str | None = None  # of the cable

    @property
    def text(self) -> str:
        """The place in words, `rack A1, unit 17, cable C0042`; empty if nothing is known."""
        parts = zip(("rack", "unit", "cable"), self, strict=True)
        return ", ".join(f"{name} {value}" for name, value in parts if value)

    @property
    def in_brackets(self) -> str:
        """The place behind a name, ` (rack A1)`; empty if nothing is known."""
        return f" ({self.text})" if self.text else ""


NO_SPOT = Spot()


def spot(end: End | None, label: str | None = None) -> Spot:
    """Return the place of a plan's end; `label` is that of the cable."""
    return Spot(end.rack, end.unit, label) if end else Spot(label=label)


class Move(NamedTuple):
    """One cable: the far end that is seen, and the one that is wanted; equal, if it may stay."""

    port: PortRef
    actual: Ends
    wanted: Ends
    near_spot: Spot = NO_SPOT  # of the node's end, with the label of the cable
    far_spot: Spot = NO_SPOT  # of the wanted end
    present_spot: Spot = NO_SPOT  # of the end that is seen


class Finding(NamedTuple):
    """One cause, with every port that it concerns."""

    code: str  # of CODES
    severity: str
    nodes: tuple[str, ...]  # in natural order
    ports: tuple[PortRef, ...]
    text: str  # one sentence that says what to do
    moves: tuple[Move, ...] = ()
    confidence: float | None = None  # 0 to 1, by the pattern; None: by a plan, or a fact
    majority: str | None = None  # what the majority is made of, in words
    expected: Ends = NO_END  # of the first port
    actual: Ends = NO_END
    facts: tuple[tuple[str, str], ...] = ()  # (name, value); with the plan's other columns
    id: str = ""

    @property
    def interfaces(self) -> tuple[str, ...]:
        """The interfaces of a finding of one node."""
        return tuple(port.interface for port in self.ports)

    @property
    def interface(self) -> str | None:
        """The first interface, if there is any."""
        return self.ports[0].interface if self.ports else None

    @property
    def leaf(self) -> str | None:
        """The leaf at which the work begins: that of the wanted end, else of the present one."""
        wanted = self.moves[0].wanted[0] if self.moves else None
        return self.expected[0] or wanted or self.actual[0]

    @property
    def rack(self) -> str | None:
        """The rack of that leaf, if the plan has it."""
        return dict(self.facts).get("far-rack")


def finding(  # noqa: PLR0913 - most are keywords
    code: str,
    ports: Sequence[PortRef],
    text: str,
    *,
    nodes: Sequence[str] = (),
    severity: str | None = None,
    key: Sequence[object] = (),
    facts: Mapping[str, object] | None = None,
    **fields: Any,  # of Finding
) -> Finding:
    """Return a finding; facts that are None are left out.

    Its ID is of the code and of its nodes and ports, or else of `key`: the one cause of a finding
    whose ports come and go.
    """
    names = tuple(nodes or dict.fromkeys(port.node for port in ports))
    of_ports = (f"{port.node}/{port.interface}" for port in sorted(ports))
    cause = key or (*sorted(names), *of_ports)
    parts = [SAME_ID.get(code, code), *(str(part or "") for part in cause)]
    identity = "\0".join(parts).casefold().encode(errors="surrogatepass")
    return Finding(
        code,
        severity or CODES[code].severity,
        names,
        tuple(ports),
        text,
        facts=tuple(
            (name, str(value)) for name, value in (facts or {}).items() if value is not None
        ),
        id=hashlib.sha256(identity).hexdigest()[:ID_LENGTH],
        **fields,
    )


class Draft(NamedTuple):
    """Makes the findings of one node."""

    node: str

    def __call__(
        self,
        code: str,
        interfaces: Iterable[str],
        text: str,
        *,
        key: Sequence[object] = (),
        **more: Any,  # keywords of `finding`: severity, facts, and fields of Finding
    ) -> Finding:
        """Return a finding; `key` is of the node."""
        ports = [PortRef(self.node, name) for name in interfaces]
        key = (self.node, *key) if key else ()
        return finding(code, ports, text, nodes=[self.node], key=key, **more)


# The order of lists: of a node by what weighs most, of a fleet by the walk from leaf to leaf


def order(finding: Finding) -> tuple[int, int]:
    """Return the sort key of a node's findings: by severity, then by code."""
    return SEVERITIES.index(finding.severity), RANK[finding.code]


CLASSES = {ERROR: 0, WARNING: 0, UNKNOWN: 1, INFO: 2}


def place_of(finding: Finding) -> tuple[str | None, str]:
    """Return rack and leaf, spelled alike for all findings of one leaf."""
    return finding.rack, leaf_key(finding.leaf or "")


def fleet_order(finding: Finding) -> tuple[object, ...]:
    """Return the sort key of a fleet's findings: a person goes to each leaf once.

    Findings without a leaf come before those of leaves.
    """
    return (
        CLASSES[finding.severity],
        *(natural(part or "") for part in place_of(finding)),
        RANK[finding.code],
        natural(finding.expected[1] or finding.actual[1] or ""),
        natural(finding.nodes[0] if finding.nodes else ""),
        finding.id,
    )


# The objects of docs/verify.schema.json and docs/fleet.schema.json: data is never in keys


def end_document(device: str | None, port: str | None) -> Json:
    """Return the JSON object of one end of a cable."""
    return {"device": device, "port": port}


def finding_document(finding: Finding) -> Json:
    """Return the JSON object of a finding in `verify` and /verdict."""
    return _document(
        finding, {"interface": finding.interface, "interfaces": [*finding.interfaces]}, {}
    )


def fleet_document(finding: Finding) -> Json:
    """Return the JSON object of a finding in `fleet verify`."""
    moves = [
        {
            **move.port._asdict(),
            "actual": end_document(*move.actual),
            "wanted": end_document(*move.wanted),
            "near": move.near_spot._asdict(),
            "far": move.far_spot._asdict(),
            "present": move.present_spot._asdict(),
        }
        for move in finding.moves
    ]
    subject = {"nodes": [*finding.nodes], "ports": [port._asdict() for port in finding.ports]}
    evidence = {"confidence": finding.confidence, "majority": finding.majority}
    return _document(finding, subject, {"moves": moves, **evidence})


def _document(finding: Finding, subject: Json, more: Json) -> Json:
    return {
        "id": finding.id,
        "code": finding.code,
        "severity": finding.severity,
        **subject,
        "expected": end_document(*finding.expected),
        "actual": end_document(*finding.actual),
        "text": finding.text,
        **more,
        "facts": [{"name": name, "value": value} for name, value in finding.facts],
    }
