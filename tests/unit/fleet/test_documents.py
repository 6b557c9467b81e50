"""docs/fleet.md is equal to the code where it repeats it: codes, and an example of output. So are
the codes of the schemas.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import wrap

import pytest

from agent.cabling.finding import CODES, Code
from agent.fleet.model import Group
from agent.fleet.pattern.infer import Pattern
from agent.fleet.report import FORMATS
from tests.support.documents import NODE_CODES, between
from tests.support.planned_fleets import judge, plan_of
from tests.support.small_fleets import NOW, cabled, rack

DOCUMENT = "docs/fleet.md"


def test_the_table_of_codes(repository: Path) -> None:
    """Every code with its severity, its meaning, when it is found, and what to do."""
    begin = "| code | severity | is | found if | to do |\n|---|---|---|---|---|\n"
    table = between(repository / DOCUMENT, begin, "\n\n", "", update=False)
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()]
    assert [row[:3] for row in rows] == [
        [f"`{code}`", one.severity, one.meaning] for code, one in CODES.items()
    ]
    assert all(len(row) == 5 and row[4] for row in rows)


@pytest.mark.parametrize(("page", "codes"), [("verify", NODE_CODES), ("fleet", CODES)])
def test_the_codes_of_a_schema(
    repository: Path, update_golden: bool, page: str, codes: dict[str, Code]
) -> None:
    words = ", ".join(f'"{code}"' for code in codes)
    truth = f"\n{14 * ' '}".join(wrap(words, 86, break_on_hyphens=False))
    path, begin = repository / f"docs/{page}.schema.json", '"code": {\n            "enum": ['
    assert between(path, begin, "]\n", truth, update=update_golden) == truth


def test_the_example(repository: Path, update_golden: bool) -> None:
    """A fleet with a swap between two nodes, a dead leaf, a pulled cable and silent agents."""
    nodes = planned = rack(64)
    end = {one.name: one.ports[3].far_end for one in nodes}
    for name, other in (("gpu-017", "gpu-018"), ("gpu-018", "gpu-017")):
        nodes = cabled(nodes, name, "mlx5_3", far_end=end[other])
    for name in [one.name for one in nodes]:
        nodes = cabled(nodes, name, "mlx5_1", far_end=None, gbps=0.0)
    nodes = cabled(nodes, "gpu-040", "mlx5_0", far_end=None, gbps=0.0)
    nodes = [replace(one, time=NOW - 9000) if one.name > "gpu-062" else one for one in nodes]
    names = tuple(one.name for one in nodes)
    pattern = Pattern(groups=(Group("leaf00 to leaf03", names, (), "rail-optimized"),))
    truth = FORMATS["table"](judge(nodes, plan_of(planned), pattern=pattern))
    begin = "$ bwagent fleet verify --plan plan.csv\n"
    found = between(repository / DOCUMENT, begin, "```", truth, update=update_golden)
    assert found == truth
