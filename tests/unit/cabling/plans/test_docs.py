"""docs/plans.md: every example is a file that is read as it says."""

from __future__ import annotations

import re
from pathlib import Path

from agent.cabling.plans.columns import COLUMNS
from agent.cabling.plans.reader import KINDS, LOOKS
from tests.support.plans import read_one

EXAMPLE = re.compile(
    r"^### `([\w-]+)`[^\n]*\n\n```\n(.*?)```\n\n((?:- [^\n]*\n)+)", re.MULTILINE | re.DOTALL
)
OWN = {"labels", "own"}  # kinds of the agent itself
CABLE = re.compile(r"- `(.*)` to `(.*)`\n")


def test_every_example_is_read(repository: Path) -> None:
    """The kind is recognized, and the cables are those below the example."""
    text = (repository / "docs/plans.md").read_text()
    examples = EXAMPLE.findall(text)
    assert len(examples) == text.count("\n### ")
    for kind, content, expected in examples:
        plan = read_one(content)
        found = [(f"{a.node} {a.interface}", f"{b.node} {b.interface}") for a, b, *_ in plan.cables]
        assert (plan.kind, found) == (kind, CABLE.findall(expected))


def test_every_kind_has_a_row_and_an_example(repository: Path) -> None:
    """The table of kinds names those of `--plan-format`, and the columns; so do the examples."""
    text = (repository / "docs/plans.md").read_text()
    assert set(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)) == KINDS.keys()
    assert {kind for kind, _, _ in EXAMPLE.findall(text)} == KINDS.keys() - OWN
    assert all(re.search(f"[`,]{column.name}[`,]", text) for column in COLUMNS)


def test_every_refused_format_has_a_row(repository: Path) -> None:
    """With the words of the refusal, and the kind to make of the file."""
    text = (repository / "docs/plans.md").read_text()
    for _, name, nearest in LOOKS:
        words = re.escape(f"`looks like {name.partition(' (')[0]}`")
        (row,) = re.findall(rf"^\|.*{words}.*\|$", text, re.MULTILINE)
        assert f"`{nearest}`" in row.rpartition(" | ")[2]
