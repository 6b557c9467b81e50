"""Golden files of titled parts: each part is compared by itself, all are rewritten together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from agent.fleet.model import Judged
from agent.fleet.report import outcome, verdict


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
