"""InfiniBand subnets as a subnet manager describes them: switches, hosts and the links of ports.

A subnet is made by a function of SHAPES, or read from a dump (benchmarks/tiers.py). `seen` is what
one asker is told: a limited member of a partition is not told of hosts, and what is down is not
listed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, count, product
from typing import NamedTuple

from agent.infiniband.tiers import LinkEnd, Tiers, tiers

End = tuple[str, int]  # GUID, port


class Seen(NamedTuple):
    """What `tiers` is given."""

    switches: Mapping[str, str | None]
    links: Callable[[str], Sequence[LinkEnd]]


class Subnet:
    """A subnet that is built link by link."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}  # by GUID: switch, host, router, sharp
        self.names: dict[str, str | None] = {}  # of switches
        self.ports: defaultdict[str, dict[int, End]] = defaultdict(dict)
        self.nodes: defaultdict[str, list[str]] = defaultdict(list)  # the HCAs of a host
        self.pods: dict[str, object] = {}  # the pod that a host is in

    def add(self, kind: str, name: str | None = None) -> str:
        """Add a switch, host, router or SHARP CA; return its GUID."""
        guid = f"{0xA000000000000000 + len(self.kinds):016x}"
        self.kinds[guid] = kind
        if kind == "switch":
            self.names[guid] = name
        return guid

    def switches(self, text: str, number: int) -> list[str]:
        """Add switches of these names: `spine{}`."""
        return [self.add("switch", text.format(index)) for index in range(number)]

    def link(self, near: str, far: str, cables: int = 1) -> None:
        """Plug cables between the next free ports of two nodes."""
        for _ in range(cables):
            a, b = (next(p for p in count(1) if p not in self.ports[n]) for n in (near, far))
            self.ports[near][a], self.ports[far][b] = (far, b), (near, a)

    def hosts(self, leaves: Sequence[str], number: int, name: str, pod: object = None) -> None:
        """Add hosts with an HCA on each of the leaves; those of a pod are judged."""
        for index in range(number):
            for leaf in leaves:
                self.link(hca := self.add("host"), leaf)
                self.nodes[f"{name}{index}"].append(hca)
            if pod is not None:
                self.pods[f"{name}{index}"] = pod

    def sharp(self) -> None:
        """Give each switch its internal CA."""
        for guid in [*self.names]:
            self.link(guid, self.add("sharp"))

    def leaves(self, node: str) -> frozenset[str]:
        """Return the leaves of a host."""
        ends = (end for hca in self.nodes[node] for end, _ in self.ports[hca].values())
        return frozenset(end for end in ends if self.kinds[end] == "switch")

    def groups(self) -> dict[frozenset[str], object]:
        """Return the leaf groups of the judged hosts, with their pods."""
        return {self.leaves(node): pod for node, pod in self.pods.items() if self.leaves(node)}

    def named(self, name: str) -> str:
        """Return the switch of this name."""
        return next(guid for guid, text in self.names.items() if text == name)

    def seen(
        self,
        down: Collection[str] = (),
        cut: Collection[End] = (),
        *,
        is_limited: bool = False,
    ) -> Seen:
        """Return what an asker is told while some nodes, and cables (by a port), are down."""

        @cache
        def links(guid: str) -> tuple[LinkEnd, ...]:
            return tuple(ends(guid))

        def ends(guid: str) -> Iterator[LinkEnd]:
            for port, (far, far_port) in sorted(self.ports[guid].items()):
                kind, is_cut = self.kinds[far], (guid, port) in cut or (far, far_port) in cut
                if far in down or is_cut or (is_limited and kind in {"host", "sharp"}):
                    continue
                yield LinkEnd(port, far, far_port, kind == "switch", kind == "host")

        switches = {guid: name for guid, name in self.names.items() if guid not in down}
        return Seen(switches, links)

    def tiers(self, leaves: Collection[str], seen: Seen | None = None) -> Tiers:
        """Return the tiers above some leaves."""
        return tiers(leaves, *(seen or self.seen()))


def single() -> Subnet:
    """One switch."""
    subnet = Subnet()
    subnet.hosts([subnet.add("switch", "only")], 5, "n", 0)
    return subnet


def two_tiers(leaves: int = 8, spines: int = 4, rails: int = 4) -> Subnet:
    """Leaves and spines, all linked; hosts on `rails` leaves each."""
    subnet = Subnet()
    top, bottom = subnet.switches("spine{:02}", spines), subnet.switches("leaf{:02}", leaves)
    for leaf, spine in product(bottom, top):
        subnet.link(leaf, spine, 2)
    for unit in range(leaves // rails):
        subnet.hosts(bottom[unit * rails : (unit + 1) * rails], 4, f"u{unit}n", 0)
    return subnet


def rail_only() -> Subnet:
    """Four rails, each a tree of its own; two subnets are the same."""
    subnet, rails = Subnet(), []
    for rail in range(4):
        spines = subnet.switches(f"r{rail}-spine{{}}", 2)
        rails.append(leaves := subnet.switches(f"r{rail}-leaf{{}}", 3))
        for leaf, spine in product(leaves, spines):
            subnet.link(leaf, spine, 4)
    for unit in range(3):
        subnet.hosts([leaves[unit] for leaves in rails], 4, f"u{unit}n", 0)
    return subnet


def three_tiers(  # noqa: PLR0913, PLR0917 - a shape has as many sizes
    rails: int = 8, pods: int = 3, units: int = 2, spines: int = 4, cores: int = 8, cables: int = 1
) -> Subnet:
    """Pods of rails with spines of their own; each spine has `cables` to its part of the cores."""
    subnet = Subnet()
    core, each = subnet.switches("core{:02}", cores), cores // spines
    for pod, rail in product(range(pods), range(rails)):
        spine = subnet.switches(f"p{pod}-r{rail}-spine{{}}", spines)
        leaves = subnet.switches(f"p{pod}-r{rail}-leaf{{}}", units)
        for index, guid in enumerate(spine):
            for uplink in range(each):
                subnet.link(guid, core[(index * each + uplink) % cores], cables)
            for leaf in leaves:
                subnet.link(leaf, guid, 2)
    for pod, unit in product(range(pods), range(units)):
        leaves = [subnet.named(f"p{pod}-r{rail}-leaf{unit}") for rail in range(rails)]
        subnet.hosts(leaves, 4, f"p{pod}u{unit}n", pod)
    return subnet


def large_pods() -> Subnet:
    """Pods with more leaves than there are cores, each of which knows one spine of a pod."""
    return three_tiers(rails=1, units=24, cores=16, cables=6)


def meshed_cores() -> Subnet:
    """Each spine is linked to each core, as to each leaf; a leaf has a stray cable."""
    subnet = three_tiers(rails=1, pods=2, units=4, spines=4, cores=4)
    for pod, spine, core in product(range(2), range(4), range(4)):
        if spine != core:
            subnet.link(subnet.named(f"p{pod}-r0-spine{spine}"), subnet.named(f"core{core:02}"))
    leaf = subnet.named("p0-r0-leaf3")  # with a stray cable, and below the cores in natural order
    subnet.names[leaf] = "a-leaf"
    subnet.link(leaf, subnet.named("p1-r0-spine0"))
    return subnet


def one_group_a_pod() -> Subnet:
    """No leaf is beside those of a node; management hosts are on a spine."""
    subnet = three_tiers(units=1)
    subnet.hosts([subnet.named("p0-r0-spine0")], 2, "ufm")
    return subnet


def odd() -> Subnet:
    """Three tiers with all that hangs on spines, a border leaf, a stray cable, empty leaves."""
    subnet = three_tiers()
    for pod in range(2):
        subnet.hosts([subnet.named(f"p{pod}-r0-spine0")], 2, f"ufm{pod}-")
        subnet.hosts([subnet.named(f"p{pod}-r1-spine1")], 6, f"storage{pod}-")
    subnet.link(gateway := subnet.add("host"), subnet.named("p0-r2-spine0"), 4)
    subnet.nodes["gateway"].append(gateway)
    subnet.link(subnet.add("router"), subnet.named("core00"), 2)
    subnet.hosts([subnet.named("core00")], 2, "ufm")
    subnet.link(subnet.named("p0-r0-spine2"), subnet.named("p0-r0-spine3"))
    subnet.link(subnet.named("p0-r0-leaf0"), subnet.named("p0-r1-leaf0"))
    border = subnet.add("switch", "a-border")
    for pod, rail in product(range(3), range(8)):
        subnet.link(border, subnet.named(f"p{pod}-r{rail}-spine0"))
    subnet.hosts([border], 12, "login")
    for pod in range(3):
        leaf = subnet.add("switch", f"p{pod}-empty")
        for spine in range(4):
            subnet.link(leaf, subnet.named(f"p{pod}-r0-spine{spine}"), 2)
    subnet.link(subnet.named("p0-r3-leaf0"), subnet.named("p1-r3-spine0"))
    return subnet


def stray() -> Subnet:
    """A leaf of one pod has a cable to another's lowest spine; its name is lower than a core's."""
    subnet = three_tiers()
    subnet.names |= {
        guid: f"z-{name}" for guid, name in subnet.names.items() if f"{name}".startswith("core")
    }
    subnet.link(subnet.named("p1-r3-leaf0"), subnet.named("p0-r0-spine0"))
    return subnet


def unnamed() -> Subnet:
    """Nobody named the spines, and two cores have one name."""
    subnet = three_tiers()
    for guid, name in subnet.names.items():
        subnet.names[guid] = None if "spine" in f"{name}" else name
    subnet.names[subnet.named("core01")] = "core00"
    return subnet


def dragonfly(groups: int = 5, routers: int = 4) -> Subnet:
    """Groups of fully linked routers with hosts."""
    subnet = Subnet()
    made = [subnet.switches(f"g{group}r{{}}", routers) for group in range(groups)]
    for group, members in enumerate(made):
        for near, far in combinations(members, 2):
            subnet.link(near, far, 2)
        for index, router in enumerate(members):
            subnet.hosts([router], 4, f"g{group}r{index}n", (group, index))
    for index, (one, other) in enumerate(combinations(made, 2)):
        subnet.link(one[index % routers], other[(index + 1) % routers], 2)
    return subnet


def dragonfly_plus(groups: int = 5) -> Subnet:
    """Groups of leaves and spines; the spines of all groups are linked."""
    subnet = Subnet()
    tops = []
    for group in range(groups):
        tops.append(spines := subnet.switches(f"g{group}-spine{{}}", 4))
        for index, leaf in enumerate(subnet.switches(f"g{group}-leaf{{}}", 4)):
            for spine in spines:
                subnet.link(leaf, spine, 2)
            subnet.hosts([leaf], 4, f"g{group}l{index}n", group)
    for near, far in combinations(tops, 2):
        for a, b in zip(near, far, strict=True):
            subnet.link(a, b, 2)
    return subnet


def grid(*sizes: int, is_full: bool = False) -> Subnet:
    """A torus; if it is full, all switches of a row are linked (HyperX, mesh)."""
    subnet = Subnet()
    places = {
        place: subnet.add("switch", "t" + "-".join(map(str, place)))
        for place in product(*map(range, sizes))
    }
    for place, guid in places.items():
        for axis, size in enumerate(sizes):
            at = place[axis]
            for other in range(at + 1, size) if is_full else [(at + 1) % size]:
                subnet.link(guid, places[(*place[:axis], other, *place[axis + 1 :])], 2)
        subnet.hosts([guid], 6, f"{place}", place)
    return subnet


class Shape(NamedTuple):
    """A subnet, and its tiers above every leaf group; `limited` as a limited member sees it."""

    make: Callable[[], Subnet]
    tiers: int
    reason: str | None
    limited: str | None = "the same"


SHAPES: dict[str, Shape] = {
    "one switch": Shape(single, 0, "top"),
    "two tiers": Shape(two_tiers, 1, "top"),
    "rails": Shape(lambda: three_tiers(rails=4, units=3), 2, None),
    "rail-only": Shape(rail_only, 1, "top"),
    "three tiers": Shape(lambda: three_tiers(rails=1, pods=4, units=6), 2, None),
    "pods of many leaves": Shape(large_pods, 2, None),
    "meshed cores": Shape(meshed_cores, 2, None),
    "one leaf group a pod": Shape(one_group_a_pod, 2, None, "no-tiers"),
    "all kinds of oddities": Shape(odd, 2, None),
    "a stray cable": Shape(stray, 2, None),
    "unnamed spines": Shape(unnamed, 2, None),
    "dragonfly": Shape(dragonfly, 0, "no-tiers"),
    "dragonfly+": Shape(dragonfly_plus, 1, "peers"),
    "torus": Shape(lambda: grid(4, 4, 4), 0, "no-tiers"),
    "flat torus": Shape(lambda: grid(5, 5), 0, "no-tiers"),
    "ring": Shape(lambda: grid(6), 0, "no-tiers"),
    "hyperx": Shape(lambda: grid(4, 4, is_full=True), 0, "no-tiers"),
    "mesh": Shape(lambda: grid(5, is_full=True), 0, "no-tiers"),
}
