"""The tiers above the leaves of published fabrics: `python -m benchmarks.tiers DIR`.

DIR holds dumps of ibnetdiscover (`*.txt`, `*.topofile`; `.gz` as well). Each is asked as a subnet
manager would be, as a full and as a limited member of the partition, for every leaf group.

The first table judges the healthy fabric. A pod is what switches of the two lowest ranks, and nodes
on several of them, hold together; RANKS tells ranks by names, for dumps whose names have them, else
a leaf is a switch with hosts. `split` are pods with more than one value of tier 1, `merged` values
that several pods have, `forked` values of tier 1 with several of tier 2.

The second table takes one part away, for days: each switch of tier 1, each core, SAMPLE links of a
kind and fabric from a fixed seed, each leaf. The last rows change no switch: the hosts of a leaf
leave, two hosts move to a spine, the partition hides all hosts. A fresh agent starts then; an agent
that knew has its memory, restarts, and sees the part come back. A cell is how many of them give
another value than before; GROUPS leaf groups are tried with each part. The exit code is 1 if the
share of fresh agents is above MOST, or an agent that knew changes a label because of what is down.

The third table is `fleet verify` over agents on all nodes of the healthy fabric, without a plan and
with the dump as plan; then CUTS leaves lose an uplink each, and the agents know nothing of before.
"""

from __future__ import annotations

import gzip
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self

from agent.cabling.plans.ib_dump import discovered, read_ibnetdiscover
from agent.cabling.plans.model import PlanCable
from agent.cabling.plans.source import PlanContent
from agent.errors import Malformed
from agent.fleet.tiers import findings
from agent.grouped import grouped
from agent.infiniband.exploration import Exploration
from agent.infiniband.fabric_memory import DAY, HOUR, NOTHING, FabricMemory, merge, text
from agent.infiniband.fabric_memory import read as read_memory
from agent.infiniband.tiers import LinkEnd, Tiers, tiers
from agent.kube.managed_fields import Keys
from agent.node_description import switch_name
from agent.text import listed
from tests.support.subnets import End, Seen, Subnet
from tests.support.tier_fleets import NAMING, fleet_of, memory_of, node_of

SAMPLE = 100
GROUPS = 4
CUTS = 15
# Percent of fresh agents with another value in one tier
MOST = {"tier-1 switch": 6.0, "core": 2.0, "uplink of a leaf": 1.0}
CHANGES = {"a leaf is drained", "a spine gets hosts", "a limited member"}  # nothing is down
# By a part of the file's name: NodeDescriptions of leaves, of tier 1 and of cores; compute nodes
RANKS = {
    "CS8500": ("^Quantum", "/L", "/S"),
    "director": ("MQM", "/L", "/S"),
    "topograph": ("LEAF", "SPINE"),
    "sx6036": ("ib(?![78]:)", "ib[78]:"),
}
NODES = {"CS8500": "agpu", "director": "SAT", "topograph": "dgx", "sx6036": "stage|wn|booster"}
HEALTHY = (
    *("fabric", "member", "switches", "leaf groups", "pods", "tier-1 values"),
    *("split, merged, forked", "tier-2 values", "outcomes", "stray cables", "questions, most"),
)
TRIED = (
    *("fabric", "what is down", "cases", "fresh agents: another tier 1", "another tier 2"),
    "agents that knew: another value",
)
VERIFIED = (
    *("fabric", "nodes", "leaves", "`uplinks`: severity and leaves of each", "`tier-incomplete`"),
    *("with the dump as plan", "cut uplinks found"),
)
_NODE = re.compile(r"(\S+) +(?:HCA-\d+|mlx\d_\d+|ibp\S+)")  # a host's own NodeDescription
_NOBODY = {"localhost", "ubuntu"}
LeafGroup = frozenset[str]


class Dump(NamedTuple):
    """A fabric as published; its nodes are judged by their pods."""

    name: str
    subnet: Subnet
    ranks: dict[str, int]
    groups: dict[LeafGroup, object]  # leaf groups with their pods
    cables: Sequence[PlanCable]


def read(path: Path) -> Dump:
    """Read a dump of ibnetdiscover."""
    data = path.read_bytes()
    content = PlanContent(path.name, gzip.decompress(data) if path.suffix == ".gz" else data)
    subnet, texts = Subnet(), dict[str, str]()
    for _, near, far, _ in discovered(content, set()):
        for peer in (near, far):
            texts[peer.guid] = peer.text
            is_sharp = "Aggregation Node" in peer.text
            subnet.kinds[peer.guid] = (
                "switch" if peer.is_switch else "sharp" if is_sharp else "host"
            )
        subnet.ports[near.guid][int(near.port)] = far.guid, int(far.port)
        subnet.ports[far.guid][int(far.port)] = near.guid, int(near.port)
    for guid, kind in subnet.kinds.items():
        if kind == "switch":
            subnet.names[guid] = switch_name(texts[guid])
        elif kind == "host":
            match = _NODE.fullmatch(texts[guid])
            subnet.nodes[match[1] if match and match[1] not in _NOBODY else guid].append(guid)
    ranks = ranked(subnet, texts, next((r for name, r in RANKS.items() if name in path.name), ()))
    compute = next((pattern for name, pattern in NODES.items() if name in path.name), "")
    for node in [*subnet.nodes]:
        if not re.search(compute, node):
            del subnet.nodes[node]
    cables = [cable for plan in read_ibnetdiscover(content) for cable in plan.cables]
    return Dump(path.name.partition(".")[0], subnet, ranks, pods(subnet, ranks), cables)


def ranked(subnet: Subnet, texts: dict[str, str], patterns: Collection[str]) -> dict[str, int]:
    """Return the rank of each switch: 0 is a leaf."""
    if patterns:
        ranks = {
            guid: next(rank for rank, p in enumerate([*patterns, ""]) if re.search(p, texts[guid]))
            for guid in subnet.names
        }
        return {guid: rank for guid, rank in ranks.items() if rank < len(patterns)}
    edge = {
        guid
        for guid in subnet.names
        if any(subnet.kinds[far] == "host" for far, _ in subnet.ports[guid].values())
    }
    ranks = dict.fromkeys(edge, 0)
    while edge:
        far = {far for guid in edge for far, _ in subnet.ports[guid].values()}
        edge = {guid for guid in far if subnet.kinds[guid] == "switch" and guid not in ranks}
        ranks |= dict.fromkeys(edge, max(ranks.values()) + 1)
    return ranks


def pods(subnet: Subnet, ranks: dict[str, int]) -> dict[LeafGroup, object]:
    """Return the pod of each leaf group of nodes that are on leaves only."""
    groups = {leaves for node in subnet.nodes if (leaves := subnet.leaves(node))}
    groups = {leaves for leaves in groups if all(ranks.get(leaf) == 0 for leaf in leaves)}
    near: defaultdict[str, set[str]] = defaultdict(set)
    for guid in subnet.names:
        for far, _ in subnet.ports[guid].values():
            if ranks.get(guid, 2) < 2 and ranks.get(far, 2) < 2:
                near[guid].add(far)
    for leaves in groups:
        for leaf in leaves:
            near[leaf] |= leaves
    pod: dict[str, str] = {}
    for start in sorted(near):
        edge = {start} - pod.keys()
        while edge:
            pod |= dict.fromkeys(edge, start)
            edge = {far for guid in edge for far in near[guid]} - pod.keys()
    return {leaves: pod[min(leaves)] for leaves in sorted(groups, key=sorted)}


def healthy_row(dump: Dump, *, is_limited: bool) -> str:
    """Return the row of the healthy fabric."""
    subnet, groups = dump.subnet, dump.groups
    seen = subnet.seen(is_limited=is_limited)
    answers = {leaves: subnet.tiers(leaves, seen) for leaves in groups}
    pod, value, tree = (defaultdict[object, set[object]](set) for _ in range(3))
    for leaves, answer in answers.items():
        first = answer.label(1)
        pod[groups[leaves]].add(first)
        if first:
            value[first].add(groups[leaves])
            tree[first].add(answer.label(2))
    split, merged, forked = (
        sum(len(members) > 1 for members in parts.values()) for parts in (pod, value, tree)
    )
    reasons = Counter(answer.reason or "two tiers" for answer in answers.values())
    questions = [answer.questions for answer in answers.values()]
    cells = [
        dump.name,
        "limited" if is_limited else "full",
        f"{len(subnet.names):,}",
        len(groups),
        len(pod),
        len(value),
        f"{split}, {merged}, {forked}",
        len({answer.label(2) for answer in answers.values()} - {None}),
        listed([f"{count} {reason}" for reason, count in sorted(reasons.items())]),
        sum(map(strays, answers.values())),
        f"{median(questions):.0f}, {max(questions)}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def strays(answer: Tiers) -> int:
    """Return the number of cables from the leaves to a switch that is no tier 1."""
    far_ends = (guid for ports in answer.uplinks.values() for guid in ports.values())
    return sum(guid not in answer.tier_1 for guid in far_ends) if answer.tier_1 else 0


def verified_row(dump: Dump) -> str:
    """Return the row of `fleet verify`."""
    subnet, keys, choose = dump.subnet, Keys(NAMING).tiers, random.Random(1)  # noqa: S311
    names = [name for name in subnet.nodes if subnet.leaves(name) in dump.groups]
    nodes = fleet_of(subnet, names).nodes
    leaves = {leaf for group in dump.groups for leaf in group}
    codes = grouped(findings(nodes, keys, ()), lambda finding: finding.code)
    short = [f"{found.severity} {len(found.facts) - 1}" for found in codes.get("uplinks", ())]
    cut = hit = 0
    for leaf in choose.sample(sorted(leaves), min(CUTS, len(leaves))):
        ends = subnet.ports[leaf].items()
        ports = [p for p, (far, _) in ends if subnet.kinds[far] == "switch" and far not in leaves]
        seen = subnet.seen(cut={(leaf, port := choose.choice(ports))})
        on_leaf = [name for name in names if leaf in subnet.leaves(name)]
        fresh = [node_of(subnet, n, memory_of(subnet, subnet.leaves(n), seen)) for n in on_leaf]
        others = [node for node in nodes if node.name not in on_leaf]
        told = findings([*others, *fresh], keys, dump.cables)
        cut, hit = cut + 1, hit + any(f"port {port} to" in found.text for found in told)
    planned = len([*findings(nodes, keys, dump.cables)])
    cells = [dump.name, len(nodes), len(leaves), listed(short) or 0]
    cells += [len(codes.get("tier-incomplete", ())), planned, f"{hit} of {cut}"]
    return f"| {' | '.join(map(str, cells))} |"


class Part(NamedTuple):
    """A part of a fabric that is down, or changed, and the leaf groups that it is tried on."""

    kind: str
    seen: Seen
    groups: Sequence[LeafGroup]


class Place(NamedTuple):
    """A dump with the healthy tiers of its leaf groups, and where these are."""

    dump: Dump
    whole: dict[LeafGroup, Tiers]
    tier_1: dict[str, list[LeafGroup]]  # the leaf groups below a switch
    on_leaf: dict[str, list[LeafGroup]]
    of_pod: dict[object, list[LeafGroup]]

    @classmethod
    def of(cls, dump: Dump) -> Self:
        """Return the place of a dump."""
        whole = {leaves: dump.subnet.tiers(leaves) for leaves in dump.groups}
        tier_1, on_leaf, of_pod = (defaultdict[Any, list[LeafGroup]](list) for _ in range(3))
        for leaves, answer in whole.items():
            of_pod[dump.groups[leaves]].append(leaves)
            for guid in answer.tier_1:
                tier_1[guid].append(leaves)
            for leaf in leaves:
                on_leaf[leaf].append(leaves)
        return cls(dump, whole, tier_1, on_leaf, of_pod)

    def ends(self, guids: Iterable[str], far: Collection[str]) -> list[End]:
        """Return the ports of some switches that lead to others."""
        ports = self.dump.subnet.ports
        return [(guid, p) for guid in guids for p, (end, _) in ports[guid].items() if end in far]

    def beside(self, leaf: str) -> list[LeafGroup]:
        """Return the other leaf groups of a leaf's pod."""
        pod = self.dump.groups[self.on_leaf[leaf][0]]
        return [leaves for leaves in self.of_pod[pod] if leaf not in leaves]


def parts(place: Place) -> Iterator[Part]:
    """Yield the parts to take away, and the changes that take nothing away."""
    subnet, choose = place.dump.subnet, random.Random(7)  # noqa: S311 - a sample
    cores = {guid for guid, rank in place.dump.ranks.items() if rank == 2}
    firsts = [leaves[0] for leaves in place.of_pod.values()]
    lowest = {answer.tier_1[0] for answer in place.whole.values() if answer.tier_1}

    def sample(ends: list[End]) -> list[End]:
        return choose.sample(sorted(ends), min(SAMPLE, len(ends)))

    for guid in sorted(place.tier_1):
        yield Part("tier-1 switch", subnet.seen({guid}), place.tier_1[guid])
    for guid in sorted(cores):
        yield Part("core", subnet.seen({guid}), firsts)
    for kind, far in (("uplink of a leaf", subnet.names.keys()), ("uplink to the lowest", lowest)):
        for end in sample(place.ends(place.on_leaf, far)):
            yield Part(kind, subnet.seen(cut={end}), place.on_leaf[end[0]])
    for end in sample(place.ends(place.tier_1, cores)):
        yield Part("link to a core", subnet.seen(cut={end}), place.tier_1[end[0]])
    for leaf in sorted(place.on_leaf):
        several = [leaves for leaves in place.on_leaf[leaf] if len(leaves) > 1]
        yield Part("one of several leaves", subnet.seen({leaf}), several)
        yield Part("another leaf", subnet.seen({leaf}), place.beside(leaf))
        hosts = {far for far, _ in subnet.ports[leaf].values() if subnet.kinds[far] == "host"}
        yield Part("a leaf is drained", subnet.seen(hosts), place.beside(leaf))
    for guid in sorted(place.tier_1):
        yield Part("a spine gets hosts", with_hosts(subnet.seen(), guid), place.tier_1[guid])
    yield Part("a limited member", subnet.seen(is_limited=True), [*place.dump.groups])


def with_hosts(seen: Seen, guid: str) -> Seen:
    """Return what is seen with two hosts more on a switch."""
    hosts = [LinkEnd(port, "", 1, is_switch=False, is_host=True) for port in (253, 254)]
    return Seen(seen.switches, lambda asked: [*seen.links(asked), *hosts * (asked == guid)])


def remembered(answer: Exploration, leaves: frozenset[str]) -> FabricMemory:
    """Return the memory of an agent that knew."""
    memory = NOTHING
    for now in (0, HOUR, DAY):
        memory = merge(memory, answer, leaves, now)
    return memory


def is_kept(
    memory: FabricMemory, leaves: frozenset[str], down: Exploration, back: Exploration
) -> bool:
    """Return True if no label changes, while a part is down for days and when it is back."""
    labels = [memory.label(1), memory.label(2)]
    memory = read_memory(text(memory))
    for day, answer in enumerate((down, down, down, back, back), 2):
        memory = merge(memory, answer, leaves, day * DAY)
        if [memory.label(1), memory.label(2)] != labels:
            return False
    return True


def tried(place: Place) -> dict[str, Counter[str]]:
    """Return by kind: cases, labels of fresh agents that differ, agents that changed theirs."""
    kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    back = place.dump.subnet.seen()
    healthy = {
        leaves: Exploration(answer, switches=back.switches)
        for leaves, answer in place.whole.items()
    }
    known = {leaves: remembered(answer, leaves) for leaves, answer in healthy.items()}
    for part in parts(place):
        count = kinds[part.kind]
        for leaves in part.groups[:GROUPS] if part.kind != "a limited member" else part.groups:
            if not leaves & part.seen.switches.keys():
                continue
            answer, before = tiers(leaves, *part.seen), place.whole[leaves]
            count["cases"] += 1
            count["tier 1"] += answer.label(1) != before.label(1)
            count["tier 2"] += answer.label(2) != before.label(2)
            down = Exploration(answer, switches=part.seen.switches)
            count["knew"] += not is_kept(known[leaves], leaves, down, healthy[leaves])
    return kinds


def main(folder: Path) -> int:
    """Print the tables; return the exit code."""
    try:
        dumps = [read(path) for path in sorted(folder.iterdir()) if path.suffix != ".md"]
    except Malformed as error:
        print(error, file=sys.stderr)
        return 1
    print(f"| {' | '.join(HEALTHY)} |\n|{'---|' * len(HEALTHY)}")
    for dump in dumps:
        for is_limited in (False, True):
            print(healthy_row(dump, is_limited=is_limited), flush=True)
    print(f"\n| {' | '.join(TRIED)} |\n|{'---|' * len(TRIED)}")
    total: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for dump in dumps:
        for kind, count in tried(Place.of(dump)).items():
            total[kind] += count
            print(row(dump.name, kind, count), flush=True)
    for kind, count in total.items():
        print(row("all", kind, count))
    print(f"\n| {' | '.join(VERIFIED)} |\n|{'---|' * len(VERIFIED)}")
    for dump in dumps:
        print(verified_row(dump), flush=True)
    return int(any(is_missed(kind, count) for kind, count in total.items()))


def is_missed(kind: str, count: Counter[str]) -> bool:
    """Return True if more labels differ than may."""
    most = MOST.get(kind, 100.0) / 100 * count["cases"]
    is_over = max(count["tier 1"], count["tier 2"]) > most
    return is_over or (count["knew"] > 0 and kind not in CHANGES)


def row(name: str, kind: str, count: Counter[str]) -> str:
    """Return a row of the second table."""
    cases = count["cases"] or 1
    shares = [f"{count[tier]} ({100 * count[tier] / cases:.1f} %)" for tier in ("tier 1", "tier 2")]
    return f"| {name} | {kind} | {count['cases']:,} | {shares[0]} | {shares[1]} | {count['knew']} |"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
