"""The older labels `leaves.expected` and `ports.expected`: all devices or ports in one text."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

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


def findings(
    expected: Expected, node: SeenNode, kept: Collection[str], draft: Draft
) -> Iterator[Finding]:
    """Yield the differences; `kept` are the interfaces that are not to be ignored.

    The label may have the ports that --ignore leaves out.
    """
    ports = [port for name, port in node.ports.items() if name in kept]
    seen = [port.far_ends[0] for port in ports if port.far_ends]
    is_complete = len(seen) == len(ports) > 0 and not node.unread
    is_part = len(ports) < len(node.ports)
    leaves = sorted(sorted({end.device for end in seen}), key=natural)  # leaf1 and leaf01 tie
    for name, wanted, texts in (
        (LEAVES, expected.leaves, leaves),
        (PORTS, expected.ports, [end.port_id for end in seen]),
    ):
        is_same = _has if is_part else _is_equal
        if not wanted or is_same(name, wanted, texts):
            continue
        code, why = ("miscabled" if name == LEAVES else "wrong-port"), None
        if not is_complete:
            why = "not every backend port has a neighbor"
        elif is_part and HASH.fullmatch(wanted):
            why = "it is a hash, of which --ignore can leave no port out"
        if why:
            text = f"{name}, {wanted}, not verified: {why}."
            yield draft("unverifiable", [], text, facts={NOT_VERIFIED: code}, key=[name])
            continue
        text = (
            f"Check the cables of this node: {name} is {wanted}, "
            f"and the ports see {', '.join(texts)}."
        )
        actual = "_".join(texts)
        of_leaves, of_ports = ((wanted, None), (actual, None)), ((None, wanted), (None, actual))
        yield draft(code, [], text, ends=of_leaves if name == LEAVES else of_ports, key=[name])


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
