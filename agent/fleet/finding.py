"""One finding of a fleet: its code, severity, ports, sentence, moves, facts and stable ID."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from agent.verify.finding import CODES as NODE_CODES
from agent.verify.finding import ERROR, ID_LENGTH, NO_END, UNKNOWN, WARNING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.verify.finding import Ends

# In the order in which findings are listed: (severity, meaning).
CODES = {
    "leaf-down": (ERROR, "a leaf lost all its ports, or nearly all of them"),
    "renamed": (WARNING, "a leaf has another name than in the plan, and its cables are right"),
    "swapped": (ERROR, "two cables, or a ring of several, changed places, also between nodes"),
    "shifted": (ERROR, "the cables of a node are shifted by a port or a leaf"),
    "miscabled": (ERROR, "another leaf than planned, or than at the others of the group"),
    "wrong-port": (ERROR, "the right leaf, another port of it than planned, or by the pattern"),
    "missing": (ERROR, "no neighbor, where the plan or the others of the group have one"),
    "mirrored": (ERROR, "the nodes of a rack are cabled in the wrong order"),
    "switch-identity": (ERROR, "one switch GUID or name with two identities"),
    "claimed": (ERROR, "one switch port is claimed by two nodes, or by two interfaces"),
    "cloned": (ERROR, "one HCA GUID is on two Nodes: a cloned image, or a stale Node"),
    "slow": (WARNING, "a lower speed than planned, or than at the others of the group"),
    "silent": (UNKNOWN, "the agent of a Node has not reported for two hours, or since its boot"),
    "unreadable": (UNKNOWN, "labels or annotation of a Node could not be read"),
}
# Those of agent/verify/finding.py, too, which a comparison with a plan finds on each node.
ALL_CODES = CODES | {code: row for code, row in NODE_CODES.items() if code not in CODES}


class PortRef(NamedTuple):
    """An interface of a Node."""

    node: str
    interface: str


class Move(NamedTuple):
    """One cable to move: from the far end that is seen to the one that is wanted."""

    port: PortRef
    actual: Ends  # device, port
    wanted: Ends


class FleetFinding(NamedTuple):
    """One cause, with every port that it concerns."""

    code: str
    severity: str
    nodes: tuple[str, ...]  # in natural order
    ports: tuple[PortRef, ...]
    text: str  # one sentence that says what to do
    moves: tuple[Move, ...] = ()
    confidence: float | None = (
        None  # 0 to 1, of a finding by the pattern; None: by a plan, or a fact
    )
    majority: str | None = None  # what the majority is made of, in words
    expected: Ends = NO_END  # of the first port
    actual: Ends = NO_END
    facts: tuple[tuple[str, str], ...] = ()
    id: str = ""  # equal from run to run; see `finding`


def finding(  # noqa: PLR0913 - most are keywords
    code: str,
    ports: Sequence[PortRef],
    text: str,
    *,
    nodes: Sequence[str] = (),
    severity: str | None = None,
    key: Sequence[object] = (),
    facts: Mapping[str, object] | None = None,
    **others: object,
) -> FleetFinding:
    """Return a finding whose ID is of its code and of `key`, or else of its ports and nodes."""
    names = tuple(nodes or dict.fromkeys(port.node for port in ports))
    identity = key or [*names, *(f"{port.node}/{port.interface}" for port in sorted(ports))]
    text_of_id = "\0".join([code, *(str(part) for part in identity)]).casefold()
    digest = hashlib.sha256(text_of_id.encode(errors="surrogatepass")).hexdigest()
    known = {name: str(value) for name, value in (facts or {}).items() if value is not None}
    return FleetFinding(
        code,
        severity or ALL_CODES[code][0],
        names,
        tuple(ports),
        text,
        facts=tuple(known.items()),
        id=digest[:ID_LENGTH],
        **others,  # type: ignore[arg-type]
    )
