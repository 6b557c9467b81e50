"""The older labels `leaves.expected` and `ports.expected`: all devices or ports in one text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.labels import encode
from agent.model import natural
from agent.verify.finding import NOT_VERIFIED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agent.verify.expected import Expected
    from agent.verify.finding import Draft, Finding
    from agent.verify.seen import SeenNode

LEAVES, PORTS = "leaves.expected", "ports.expected"


def findings(expected: Expected, node: SeenNode, draft: Draft) -> Iterator[Finding]:
    """Yield the differences."""
    if not (expected.leaves or expected.ports):
        return
    ends = [port.far_ends[0] for port in node.ports.values() if port.far_ends]
    has_all = len(ends) == len(node.ports) > 0 and not node.unread
    leaves = sorted(sorted({end.device for end in ends}), key=natural)  # leaf1 and leaf01 tie
    ports = [end.port_id for end in ends]
    for name, wanted, seen in ((LEAVES, expected.leaves, leaves), (PORTS, expected.ports, ports)):
        if wanted and not _is_equal(name, wanted, seen):
            yield _finding(name, wanted, seen, draft) if has_all else _unknown(name, wanted, draft)


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


def _unknown(name: str, wanted: str, draft: Draft) -> Finding:
    text = f"{name}, {wanted}, not verified: not every backend port has a neighbor."
    code = "miscabled" if name == LEAVES else "wrong-port"
    return draft("unverifiable", [], text, facts={NOT_VERIFIED: code}, key=[name])
