"""Documents that tests compare: parts of Markdown that are generated from the code, JSON schemas in
docs/, and golden files of titled parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from jsonschema import Draft202012Validator

from agent.cabling.finding import CODES, NODE
from agent.fleet.model import Judged
from agent.fleet.report import outcome, verdict


def between(path: Path, begin: str, end: str, truth: str, *, update: bool) -> str:
    """Return the text between two marks of a document; with `update` replace it by `truth`."""
    before, mark, rest = path.read_text().partition(begin)
    found, closing, behind = rest.partition(end)
    if update:
        path.write_text(before + mark + truth + closing + behind)
        return truth
    return found


DOCS = Path(__file__).parents[2] / "docs"
# The codes of `verify`, with their meaning there.
NODE_CODES = {
    code: row._replace(meaning=row.of_node or row.meaning)
    for code, row in CODES.items()
    if row.scope == NODE
}


def validator(command: str) -> Draft202012Validator:
    """Return the validator of a command's document."""
    return Draft202012Validator(json.loads((DOCS / f"{command}.schema.json").read_text()))


class Golden(NamedTuple):
    """A file, what is to be in it under each title, and the titles."""

    path: Path
    told: Callable[[str], str]
    titles: Iterable[str]

    def check(self, title: str, *, update: bool) -> None:
        """Require the part of this title; with `update` it may be another."""
        assert update or self.told(title) in self.path.read_text()

    def check_all(self, *, update: bool) -> None:
        """Require that the file has these parts only; with `update` rewrite it."""
        whole = "".join(map(self.told, self.titles))
        if update:
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_text(whole)
        assert self.path.read_text() == whole


def judged_text(title: str, judged: Judged) -> str:
    """Return what a fleet is judged to be: verdict, notes, and what is asserted of each finding."""
    lines = [f"== {title}", f"{outcome(judged)}: {verdict(judged)}"]
    lines += [f"note: {note}" for note in judged.notes]
    for found in judged.findings:
        ends = ["/".join(filter(None, end)) or "-" for end in (found.expected, found.actual)]
        counts = f"{len(found.nodes)} nodes, {len(found.ports)} ports, {len(found.moves)} moves"
        sure = "" if found.confidence is None else f", {found.confidence}: {found.majority}"
        of = f"{found.severity} {found.code} {found.id}: {counts}, {' <- '.join(ends)}{sure}"
        lines += [f"   {of}", f"      {found.text}"]
    return "\n".join([*lines, ""])
