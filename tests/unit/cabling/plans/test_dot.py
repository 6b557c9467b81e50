"""Graphs in DOT: what of the language is read, and what ptmd is told becomes a field."""

from __future__ import annotations

import pytest

from tests.support import plans

EDGES = [plans.cable("leaf01 swp1", "gpu-1 eth0"), plans.cable("leaf01 swp2", "gpu-2 eth0")]


@pytest.mark.parametrize(
    "text",
    [
        'graph G {"leaf01":"swp1" -- "gpu-1":"eth0"; "leaf01":"swp2" -- "gpu-2":"eth0"}',
        "strict graph { leaf01:swp1 -- gpu-1:eth0 leaf01:swp2:n -- gpu-2:eth0:s }",
        'GRAPH "G" { subgraph pod { leaf01:swp1 -- gpu-1:eth0 } { leaf01:swp2--gpu-2:eth0 } }',
        ('graph G {\n  # leaf01\n  leaf01:swp1 -- gpu-1:eth0  # first\n \t# "x":"y" -- "z"\n'
        ' "leaf01":"swp2" -- "gpu-2":"eth0"\n  #}\n}'),
        ("// a\n/* b */ graph G {\n# c\nleaf01:swp1 -- /* d */ gpu-1:eth0 // e\n"
        "leaf01:swp2 -- gpu-2:eth0;; }\n# f"),
        ('graph G { node [shape=box]; edge []; rankdir=LR; "gpu-1" [function="host", os="u"]\n'
        '"leaf01":"swp1" -- "gpu-1":"eth0"\n "leaf01":"swp\\\n2" -- gpu-2:eth0 }'),
    ],
)  # fmt: skip
def test_the_subset(text: str) -> None:
    """Quotes, separators, comments, groups and attributes of nodes are of no account."""
    assert plans.of(plans.read(text)) == plans.meaning(EDGES)


def test_an_edge_without_a_port() -> None:
    """It is no cable; the others are."""
    text = (
        "graph G {\nleaf01:swp1 -- gpu-1:eth0\nleaf01 -- leaf02:swp9\nleaf01:swp2 -- gpu-2:eth0\n}"
    )
    plan = plans.read_one(text)
    assert plans.of([plan]) == plans.meaning(EDGES)
    assert plan.notes == ("1 row skipped, an end without a port (the first: p, row 3)",)


@pytest.mark.parametrize(
    ("attributes", "fields"),
    [
        ('[LLDP="match_type=portdescr"]', {"match_type": "portdescr"}),
        ('[LLDP="lldptmpl=LLDP1"]', {"match_type": "portdescr", "match_hostname": "fqdn"}),
        ('[BFD="bfdtmpl=BFD1", left_mac="a"]', {"BFD": "bfdtmpl=BFD1", "left_mac": "a"}),
        ("", {}),
    ],
)
def test_what_ptmd_is_told(attributes: str, fields: dict[str, str]) -> None:
    """A template stands for its parameters; a port that is a description is a port name, too."""
    (one,) = plans.read_one(
        f"""graph G {{
        hostnametype="fqdn"
        LLDP1="match_type=portdescr,match_hostname=fqdn"
        "leaf01":"to gpu" -- "gpu-1":"eth0" {attributes}
        }}"""
    ).cables
    assert dict(one.fields) == fields | {"hostnametype": "fqdn"}
    assert one.b.port_name == ("eth0" if "portdescr" in fields.values() else None)
    assert one.place.row == 4


def test_the_graphs_own_lldp_is_the_default() -> None:
    """`LLDP` of the graph holds for every edge without one."""
    plan = plans.read_one('graph G { graph [LLDP="match_type=portdescr"] a:b -- c:d }')
    assert plan.cables[0].a.port_name == "b"


def test_the_edges_that_follow_have_the_defaults() -> None:
    """`edge [...]` holds to the end of its group, and an edge's own attributes go before."""
    text = """graph G {
        "a":"1" -- "b":"1";
        { edge [mark="ignore"] "a":"2" -- "b":"2"; a:3 -- b:3 [mark="link-state-only"] }
        "a":"4" -- "b":"4";
    }"""
    assert [one.mark for one in plans.read_one(text).cables] == [
        None,
        "ignore",
        "link-state-only",
        None,
    ]


@pytest.mark.parametrize(
    "text",
    [
        'graph G { "a":"b" -- "c":"d" -- "e":"f"; }',
        'graph G { a [x="c":"d" -- "e":"f"; ] }',
        "graph G { a:b -- {c:d} }",
        "graph G { a:b -- c:d [x] }",
        "graph G { a:b }} ",
    ],
)
def test_what_is_not_read(text: str) -> None:
    assert plans.refusal(text).startswith("p, row 1: ")
