"""The finding `unstable`: InfiniBand links with errors, and the side to touch first.

Each link has the end that its errors accuse (agent/infiniband/bad_link.py). Several bad links
accuse what they have in common: a leaf, BLOCK neighboring ports of one (they share a transceiver or
a part of the ASIC), or a node, so its HCAs. They do so unless it may be a coincidence: if its
links had errors by the share of all others, fewer than COINCIDENCE groups of the fleet would have
as many bad links.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import exp, lgamma, log, log1p
from typing import NamedTuple

from agent.cabling import words
from agent.cabling.cables import IGNORED, ComparedCable
from agent.cabling.finding import Finding, Move, PortRef, end_text, finding
from agent.cabling.names import leaf_key
from agent.cabling.seen import SeenEnd, SeenNode
from agent.reasons import BadLink
from agent.text import listed, many, natural, utc

LEAF, BLOCK_OF_LEAF, NODE = "leaf", "block", "node"
BLOCK = 4  # ports
LEAST = {LEAF: 3, BLOCK_OF_LEAF: 2, NODE: 2}  # bad links that accuse a group of each kind
COINCIDENCE = 0.01
MAX_NAMED = 4  # links in a sentence

Common = tuple[str, ...]  # kind, then the switch and the number of the block, or the node
Ending = tuple[str, SeenEnd]  # the node and the far end of a link, bad or not


class UnstableLink(NamedTuple):
    """A link with errors."""

    ref: PortRef
    bad: BadLink
    end: SeenEnd
    near: str  # in words: the interface, in a fleet of which node, and its place
    cable: ComparedCable | None = None  # of the plan

    @property
    def far(self) -> str:
        """The far end in words, with its place."""
        return end_text(self.move.actual) + self.move.present_spot.in_brackets

    @property
    def move(self) -> Move:
        """The cable, which stays."""
        ends = self.end.device, self.end.port
        return self.cable.stay if self.cable else Move(self.ref, ends, ends)


def of_node(node: SeenNode, compared: Iterable[ComparedCable]) -> Iterator[Finding]:
    """Yield the findings of one node."""
    if not any(port.bad_link for port in node.ports.values()):  # as nearly everywhere in a fleet
        return
    cables = {cable.ref.interface: cable for cable in compared}
    ends = {port.interface: port.far_ends[0] for port in node.ports.values() if port.far_ends}
    links = [
        UnstableLink(
            PortRef(node.name, name),
            bad,
            end,
            words.near(cable.row) if (cable := cables.get(name)) else name,
            cable,
        )
        for name, end in ends.items()
        if (bad := node.ports[name].bad_link)
        and not (name in cables and cables[name].status == IGNORED)
    ]
    yield from findings(links, ((node.name, end) for end in ends.values()))


def findings(links: Sequence[UnstableLink], every: Iterable[Ending]) -> Iterator[Finding]:
    """Yield a finding for each cause; `every` are all links, bad or not."""
    if not links:
        return
    every = [*every]
    sizes = Counter(chain.from_iterable(map(_groups, every)))
    kinds = Counter(kind for kind, *_ in sizes)
    members: dict[Common, list[UnstableLink]] = defaultdict(list)
    for link in links:
        for group in _groups((link.ref.node, link.end)):
            members[group].append(link)
    left = {link.ref: link for link in links}
    # the worst first; of two with the same links the smaller one
    for group in sorted(members, key=lambda group: (-len(members[group]), sizes[group], group)):
        kind = group[0]
        same = [link for link in members[group] if link.ref in left]
        size = sizes[group] - len(members[group]) + len(same)
        others = len(every) - len(links) + len(left) - size
        share = (len(left) - len(same)) / others if others > 0 else 0.0
        has_several = kind == NODE or len({link.ref.node for link in same}) > 1
        if len(same) < LEAST[kind] or not has_several:
            continue
        if kinds[kind] * _chance(len(same), size, share) < COINCIDENCE:
            yield _of_group(kind, same, size)
            for link in same:
                del left[link.ref]
    for link in left.values():
        sentence, last = SENTENCES[link.bad.end], utc(link.bad.time)
        text = f"{sentence.format(near=link.near, far=link.far)}, last at {last}."
        yield _finding([link], text, {"bad-end": link.bad.end, "last-errors": last})


def _groups(ending: Ending) -> Iterator[Common]:
    node, end = ending
    yield NODE, node
    yield LEAF, end.switch
    if (number := end.port_id or "").isdecimal() and int(number):
        yield BLOCK_OF_LEAF, end.switch, str((int(number) - 1) // BLOCK)


def _chance(bad: int, size: int, share: float) -> float:
    """Return how likely `bad` or more of `size` links are, if each is by `share` (binomial)."""
    if bad <= size * share:
        return 1.0
    if not share:
        return 0.0
    ways = lgamma(size + 1) - lgamma(bad + 1) - lgamma(size - bad + 1)
    chance, term = 0.0, exp(ways + bad * log(share) + (size - bad) * log1p(-share))
    for count in range(bad, size + 1):
        chance += term
        term *= (size - count) / (count + 1) * share / (1 - share)
    return chance


SENTENCES = {
    "near": "Reseat and clean the plug of {near}, then replace the cable to {far}: the path into "
    "the node has errors",
    "far": "Reseat and clean the plug at {far}, then replace the cable to {near}: the path into "
    "the switch has errors",
    "cable": "Replace the cable of {near} to {far}: both directions have errors",
    "cannot-tell": "Look at the cable of {near} to {far}: it has errors, and the counters do not "
    "tell at which end",
}


def _of_group(kind: str, links: Sequence[UnstableLink], size: int) -> Finding:
    """Return the finding of a part that `size` links have in common, of which these are bad."""
    links = sorted(links, key=lambda link: [natural(link.end.port_id or ""), natural(link.near)])
    first, count = links[0], f"{len(links)} of its {many(size, 'link')}"
    if kind == NODE:
        node = first.ref.node
        place = first.move.near_spot._replace(label=None).in_brackets
        subject, key = f"the HCAs of {node}{place}", [node, NODE]
        links = sorted(links, key=lambda link: natural(link.ref.interface))
        pairs = listed([f"{link.ref.interface} to {link.far}" for link in links], MAX_NAMED)
        fix = f"{pairs}: look at seat, firmware and temperature of the HCAs before any cable"
    else:
        ports = listed([link.end.port or "?" for link in links], MAX_NAMED)
        of_nodes = listed([" ".join(link.ref) for link in links], MAX_NAMED)
        leaf = first.end.device + first.move.present_spot.in_brackets
        subject, key = leaf, [leaf_key(first.end.device), LEAF]
        if kind == BLOCK_OF_LEAF:
            block = (int(first.end.port_id or 1) - 1) // BLOCK
            subject = f"ports {block * BLOCK + 1} to {block * BLOCK + BLOCK} of {leaf}"
            count, key = f"{len(links)} of {many(size, 'link')} there", [*key, str(block)]
        fix = f"ports {ports}, to {of_nodes}: look at the switch's side before any cable"
    last = utc(max(link.bad.time for link in links))
    text = f"Look at {subject}: {count} have errors, last at {last}: {fix}."
    facts = {"common": kind, "bad-links": len(links), "links": size, "last-errors": last}
    return _finding(links, text, facts, key)


def _finding(
    links: Sequence[UnstableLink],
    text: str,
    facts: Mapping[str, object],
    key: Sequence[object] = (),
) -> Finding:
    first = links[0]
    of_plan = first.cable.facts if first.cable else {}
    return finding(
        "unstable",
        [link.ref for link in links],
        text,
        key=key,
        facts={**of_plan, **facts},
        moves=tuple(link.move for link in links),
        actual=first.move.actual,
    )
