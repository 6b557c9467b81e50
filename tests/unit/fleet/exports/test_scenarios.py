"""What is exported of a fleet, in golden/scenarios.txt: its names, levels, blocks and notes.

A title says what the fleet has, and what that is for a scheduler.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from agent.encode import Naming
from agent.fleet.exports import FORMATS
from agent.fleet.exports.topology import Levels
from agent.fleet.model import ROCE, Fleet, FleetNode
from agent.kube.managed_fields import Keys
from tests.support.documents import Golden
from tests.support.wired_fleets import (
    NAMING,
    Rack,
    flat,
    fleet,
    fleet_of,
    hash_of,
    mixed,
    names,
    node,
    tall,
    tiered,
)

TIER_1, TIER_2 = Keys(NAMING).tiers
BLOCK, ISLAND = "fabric.topograph.run/tier-1", "fabric.topograph.run/tier-2"
ONE = {"fabric": "f1", "superpod": "sp1"}


class Export(NamedTuple):
    """A fleet, the formats that it is exported in, and the operator's choices."""

    forms: str
    fleet: Fleet
    given: Levels = ()
    naming: Naming = NAMING


def without(nodes: Fleet, *keys: str) -> Fleet:
    """Return a fleet whose first node lacks these labels."""
    first, *others = nodes.nodes
    labels = {key: value for key, value in first.labels.items() if key not in keys}
    return fleet([replace(first, labels=labels), *others])


def of_sizes(*sizes: int) -> Fleet:
    """Return a leaf group of each size."""
    racks = [names(100 * at, 100 * at + size - 1) for at, size in enumerate(sizes, 1)]
    return fleet_of(*(Rack(nodes, (f"leaf{at}",)) for at, nodes in enumerate(racks)))


def tier(*values: dict[str, str]) -> list[FleetNode]:
    """Return nodes with these labels, two on each leaf."""
    of_nodes = zip(names(1, len(values)), values, strict=True)
    return [node(name, f"leaf{at // 2}", site=site) for at, (name, site) in enumerate(of_nodes)]


def blocked(changed: str | None = None) -> Fleet:
    """Return four leaf groups of two nodes in two blocks of one island; `changed` is a node of
    another block than its neighbor.
    """
    nodes = []
    for at in range(8):
        found = node(f"gpu-{at}", f"leaf{at // 2}")
        block = "b9" if found.name == changed else f"b{at // 4}"
        more = {ISLAND: "i1", BLOCK: block, "pool": f"p{at // 4}", "network.example/eth": f"e{at}"}
        nodes.append(replace(found, labels={**found.labels, **more}))
    return fleet(nodes)


def named(*hosts: str) -> Export:
    return Export("slurm", fleet(node(name, "leaf1") for name in hosts))


SITES = [
    {"fabric": "f1", "superpod": f"sp{at}", "tier-1.current": f"s{at}", "tier-2.current": "c1"}
    for at in range(2)
]
S1, C1 = {"tier-1.current": "s1"}, {"tier-1.current": "s1", "tier-2.current": "c1"}
OF_ROCE = fleet_of(Rack(names(20, 21), ("leaf9",), flavor=ROCE)).nodes
OF_IB = [
    FleetNode(f"gpu-{at}", leaf_group="leaf1", labels={f"{NAMING.ib_prefix}/fabric": "f1"})
    for at in (1, 2)
]
DOMAINS = [Rack((f"gpu-{at}",), (f"leaf{at}",), domain=f"d{at // 2}") for at in range(4)]
CROSSED, FEW = ["d1", "d1", "d1", "d2"], ["d1", "d1", None, None]
OTHER = Naming(prefix="net.example.org", accelerator="net.example.org/domain")
OTHERS = tuple(f"example.com/tier-{tier}" for tier in range(3))
SCENARIOS = {
    # names
    "leaf groups have the usual name of a root: it has another": Export(
        "slurm slurm-yaml", fleet(node(f"n{at}", at) for at in ("root", "root-1", "x"))
    ),
    "equal superpods of two fabrics: values are unique within their level above only": Export(
        "slurm",
        fleet_of(
            Rack(names(1, 4), ("leaf0",), {"fabric": "f1", "superpod": "1"}),
            Rack(names(5, 8), ("leaf1",), {"fabric": "f2", "superpod": "1"}),
        ),
    ),
    "a leaf group of two fabrics is two switches, each named with its fabric": Export(
        "slurm",
        fleet_of(*(Rack((f"gpu-{at}",), ("leaf1",), {"fabric": f"f{at}"}) for at in (1, 2))),
    ),
    "a fabric that is called as a leaf group, and paths of over 64 characters, get a hash": Export(
        "slurm",
        fleet_of(
            Rack(("gpu-1",), ("f1",), {"fabric": "f1"}),
            Rack(("gpu-2",), ("leaf2",), {"fabric": "f" * 60, "superpod": "s" * 60}),
            Rack(("gpu-3",), ("leaf3",), {"fabric": "f" * 60, "superpod": "s" * 61}),
        ),
    ),
    "a node is called in Slurm what hostname -s prints": named(
        "gpu-1.example.org", "gpu-2.example.org"
    ),
    "unless that is two nodes": named("gpu-1.a.org", "gpu-1.b.org", "gpu-2.a.org"),
    "addresses are whole names": named("10.0.0.1", "10.0.0.2"),
    "names that begin as addresses are none": named(
        "ip-10-0-0-9.ec2.internal", "ip-10-0-0-10.ec2.internal"
    ),
    "names of YAML are texts": Export(
        "slurm-yaml",
        fleet(
            node(f"gpu-{at}", name)
            for at, name in enumerate(("1e3", "null", "0x10", "2026-11-22", "007"))
        ),
    ),
    # blocks
    "a block has no doublings": Export("slurm-block", of_sizes(18)),
    "of two blocks there is one": Export("slurm-block", of_sizes(18, 18)),
    "the smallest block is the base, which is said": Export("slurm-block", of_sizes(18, 17, 18)),
    "of nine blocks there are three": Export("slurm-block", of_sizes(*[8] * 9)),
    "blocks are in the order of the fabric, and UUIDs of NVLink domains in any": Export(
        "slurm-block",
        fleet_of(
            *(
                Rack(
                    names(4 * at + 1, 4 * at + 4),
                    (f"leaf{at // 2}",),
                    {"superpod": f"su{at // 4}"},
                    domain=f"{hash_of(f'{at:08}') * 7919 % 65521:04x}-uuid.1",
                )
                for at in range(16)
            )
        ),
    ),
    # NVLink domains and kinds of machines
    "domains that have whole leaf groups are the level above these": Export(
        "kueue", fleet_of(*DOMAINS)
    ),
    "domains that cross leaf groups are no level": Export(
        "kueue",
        fleet(node(f"gpu-{at}", f"leaf{at // 2}", domain=to) for at, to in enumerate(CROSSED)),
    ),
    "domains that few nodes have are no level": Export(
        "kueue",
        fleet(node(f"gpu-{at}", f"leaf{at // 2}", domain=to) for at, to in enumerate(FEW)),
    ),
    "a domain that is no label value": Export(
        "slurm-block", fleet([node("gpu-1", "leaf1", domain="d/1")])
    ),
    "machines with other levels are in a Topology of their own, not left out of one": Export(
        "kueue", mixed()
    ),
    "machines that no label tells apart are one flavor": Export("kueue", mixed(None)),
    "products with the same levels are one flavor: its name stays with another product": Export(
        "kueue", fleet(replace(one, accelerator="d1") for one in mixed().nodes)
    ),
    "a node without a product": Export("kueue", without(mixed(), "nvidia.com/gpu.product")),
    "InfiniBand and RoCE are two flavors of one Topology": Export(
        "kueue", fleet([*fleet_of(Rack(names(1, 2), ("leaf1",))).nodes, *OF_ROCE])
    ),
    "a node without the label of its fabric is in no ResourceFlavor": Export(
        "kueue", fleet([replace(flat().nodes[0], flavor=None), *flat().nodes[1:]])
    ),
    "a node of another fabric alone": Export(
        "kueue", fleet([replace(flat().nodes[0], flavor="evil")])
    ),
    # the site's levels
    "labels below IB count as those below P do": Export("slurm", fleet(OF_IB)),
    "not without that prefix": Export("slurm", fleet(OF_IB), (), NAMING._replace(ib_prefix="")),
    "a node without the site's labels is where its leaf group is": Export(
        "slurm", fleet([*fleet_of(Rack(names(1, 3), ("leaf1",), ONE)).nodes, node("x4", "leaf1")])
    ),
    "a label on half of the nodes makes no level, so that few cannot change the whole tree": Export(
        "slurm", fleet(tier({}, {}, *[{"superpod": "sp1"}] * 2))
    ),
    "what is left out": Export(
        "slurm",
        fleet(
            [
                *(node(f"gpu-00{at}", group) for at, group in enumerate(("leaf1", None, None), 1)),
                node("gpu-004", "leaf/1"),
                node("GPU_5", "leaf1"),
            ]
        ),
    ),
    # tiers
    "a node with another tier is where its leaf group is": Export(
        "slurm slurm-yaml kueue", tiered()
    ),
    "RoCE nodes have no tiers": Export("kueue", fleet([*tiered().nodes, *OF_ROCE])),
    "with --level there are no others, and what is no tree is refused": Export(
        "slurm", tiered(), (TIER_2,)
    ),
    "a node without the labels of tiers": Export("slurm", without(tiered(), TIER_1, TIER_2)),
    "of a leaf group no node knows the core: it is where the others of its tier 1 are": Export(
        "slurm", fleet(tier(*[C1] * 4, S1, S1))
    ),
    "half of the nodes have a tier: it is none": Export("slurm", fleet(tier(S1, S1, {}, {}))),
    "more than half have it": Export("slurm", fleet(tier(S1, S1, S1, {}))),
    "a tier within the site's levels is a level, and one that joins what they part is none": Export(
        "slurm", fleet(tier(*(site for site in SITES for _ in range(2))))
    ),
    "columns of tiers": Export("csv", fleet_of(Rack(names(1, 1), ("leaf1",), C1))),
    "tiers under the keys of --tier-label": Export(
        "kueue",
        fleet(
            replace(one, labels={**one.labels, OTHERS[1]: "s1", OTHERS[2]: "c1"})
            for one in fleet_of(Rack(names(1, 2), ("leaf1",))).nodes
        ),
        (),
        NAMING._replace(tiers=OTHERS),
    ),
    "labels under another prefix": Export(
        "slurm kueue",
        fleet(
            replace(
                one,
                labels={
                    key.replace(NAMING.prefix, OTHER.prefix): value
                    for key, value in one.labels.items()
                },
            )
            for one in tall().nodes
        ),
        (),
        OTHER,
    ),
    # --level
    "levels of the operator": Export("slurm kueue", blocked(), (ISLAND, BLOCK)),
    "labels that join whole leaf groups, and look like a topology, are named": Export(
        "slurm", blocked()
    ),
    "those that do not are not": Export("slurm", blocked("gpu-0")),
    "a level that is no tree": Export("slurm kueue", blocked("gpu-0"), (ISLAND, BLOCK)),
    "a level that no node has": Export("slurm", blocked(), ("rack",)),
    "the innermost first is no order": Export("kueue", blocked(), (BLOCK, ISLAND)),
    "a node without the label is where its leaf group is": Export(
        "slurm", without(blocked(), BLOCK), (ISLAND, BLOCK)
    ),
}


def told(name: str) -> str:
    scenario, lines = SCENARIOS[name], [f"== {name}"]
    for form in scenario.forms.split():
        exported = FORMATS[form](scenario.fleet, scenario.naming, scenario.given)
        notes = [f"note: {note}" for note in exported.notes if note not in exported.text]
        lines += [f"-- {form}, {len(exported.notes)} notes", *notes, *exported.text.splitlines()]
    return "\n".join(lines) + "\n"


GOLDEN = Golden(Path(__file__).parent / "golden/scenarios.txt", told, SCENARIOS)


@pytest.mark.parametrize("title", SCENARIOS)
def test_exported(title: str, update_golden: bool) -> None:
    GOLDEN.check(title, update=update_golden)


def test_the_golden_has_no_others(update_golden: bool) -> None:
    GOLDEN.check_all(update=update_golden)
