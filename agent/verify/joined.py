"""The older labels `leaves.expected` and `ports.expected`: all devices or ports in one text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from agent.findings.finding import NOT_VERIFIED
from agent.ids import HASH
from agent.labels import encode
from agent.model import natural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from agent.findings.finding import Draft, Finding
    from agent.verify.expected import Expected
    from agent.verify.seen import SeenNode

LEAVES, PORTS = "leaves.expected", "ports.expected"


class Ends(NamedTuple):
    """The far ends of the backend ports that count."""

    leaves: list[str]  # distinct
    ports: list[str]
    is_complete: bool  # each of these ports has one
    is_part: bool  # --ignore leaves other ports out, which the label may have


def findings(
    expected: Expected, node: SeenNode, kept: Collection[str], draft: Draft
) -> Iterator[Finding]:
    """Yield the differences; `kept` are the interfaces that are not to be ignored."""
    if not (expected.leaves or expected.ports):
        return
    ends = _ends(node, kept)
    for name, wanted, seen in (
        (LEAVES, expected.leaves, ends.leaves),
        (PORTS, expected.ports, ends.ports),
    ):
        is_same = _has if ends.is_part else _is_equal
        if wanted and not is_same(name, wanted, seen):
            unknown = _unknown(wanted, ends)
            yield (
                _unverifiable(name, wanted, unknown, draft)
                if unknown
                else _finding(name, wanted, seen, draft)
            )


def _ends(node: SeenNode, kept: Collection[str]) -> Ends:
    ports = [port for name, port in node.ports.items() if name in kept]
    seen = [port.far_ends[0] for port in ports if port.far_ends]
    leaves = sorted(sorted({end.device for end in seen}), key=natural)  # leaf1 and leaf01 tie
    return Ends(
        leaves,
        [end.port_id for end in seen],
        is_complete=len(seen) == len(ports) > 0 and not node.unread,
        is_part=len(ports) < len(node.ports),
    )


def _has(name: str, wanted: str, seen: Sequence[str]) -> bool:
    """Return True if the label has what is seen: leaves in any order, port IDs in theirs."""
    parts, of_label = (encode.replaced(text).casefold() for text in ("_".join(seen), wanted))
    if name == LEAVES:
        return Counter(_parts(parts)) <= Counter(_parts(of_label))
    rest = iter(of_label.split("_"))
    return all(part in rest for part in parts.split("_"))


def _is_equal(name: str, wanted: str, seen: Sequence[str]) -> bool:
    """Return True for the same text, encoded or not; of leaves, in any order."""
    joined = "_".join(seen)
    if encode.value(wanted) == encode.value(joined):
        return True
    return name == LEAVES and _parts(wanted) in (_parts(joined), _parts(encode.value(joined)))


def _parts(text: str) -> list[str]:
    return sorted(text.casefold().split("_"))


def _finding(name: str, wanted: str, seen: Sequence[str], draft: Draft) -> Finding:
    actual = "_".join(seen)
    text = (
        f"Check the cables of this node: {name} is {wanted}, and the ports see {', '.join(seen)}."
    )
    if name == LEAVES:
        return draft("miscabled", [], text, ends=((wanted, None), (actual, None)), key=[name])
    return draft("wrong-port", [], text, ends=((None, wanted), (None, actual)), key=[name])


def _unknown(wanted: str, ends: Ends) -> str | None:
    """Return why a difference proves nothing."""
    if not ends.is_complete:
        return "not every backend port has a neighbor"
    is_hash = ends.is_part and HASH.fullmatch(wanted)
    return "it is a hash, of which --ignore can leave no port out" if is_hash else None


def _unverifiable(name: str, wanted: str, why: str, draft: Draft) -> Finding:
    text = f"{name}, {wanted}, not verified: {why}."
    code = "miscabled" if name == LEAVES else "wrong-port"
    return draft("unverifiable", [], text, facts={NOT_VERIFIED: code}, key=[name])
