"""`fleet verify -o html`: one self-contained page with the findings, the wiring and the speeds.

Jinja2 is an optional extra (`bwagent[page]`): only this page needs it, and the image goes without.

Invariants:
- Every text of a Node or a switch passes `visible` (`finalize`) and is escaped (`autoescape`),
  wherever the template prints it.
- The page loads nothing: its policy permits the style and the script that it holds, by their
  hashes, and nothing else.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from agent import __version__
from agent.errors import Unavailable
from agent.fleet.page import worklist
from agent.fleet.page.diagram import pictures
from agent.fleet.page.leaves import Leaves
from agent.fleet.page.marks import APART, SIGNS, Marks
from agent.fleet.page.matrix import matrix
from agent.text import utc, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jinja2 import Template
    from markupsafe import Markup

    from agent.fleet.judged import Group, Judged
    from agent.fleet.page.diagram import Picture
    from agent.fleet.page.matrix import Matrix
    from agent.fleet.page.worklist import Entry

FOLDER = files(__package__)  # of a package in a zip archive, too
MAX_TEXT = 2000  # characters of one text on the page
WIDE = 10  # rails, from which a matrix is printed in landscape


class GroupView(NamedTuple):
    """A group and what the page shows of it."""

    number: int
    group: Group
    matrix: Matrix
    pictures: list[Picture]
    entries: list[Entry]
    is_wide: bool


def page(judged: Judged) -> str:
    """Return the page. Raises Unavailable without Jinja2."""
    template, markup = _template()
    style, script = markup(_text("page.css")), markup(_text("page.js"))
    marks, leaves = Marks(judged.findings), Leaves(judged)
    found = worklist.entries(judged, marks.findings)
    silent = worklist.silent(judged.fleet, found)
    return template.render(
        judged=judged,
        fleet=judged.fleet,
        version=__version__,
        time=utc(judged.fleet.now),
        style=style,
        script=script,
        policy=_policy(style, script),
        summary=worklist.summary(judged, found, silent),
        verdict=worklist.verdict(found),
        work=[one for one in found if one.finding.code not in APART],
        silent=silent,
        groups=list(_groups(judged, found, marks, leaves)),
        shown=leaves.shown,
        node_speeds=worklist.node_speeds(judged.fleet),
        port_speeds=worklist.port_speeds(judged.fleet),
        notes=_notes(judged),
    )


def _text(name: str) -> str:
    return (FOLDER / name).read_text("utf-8").strip()


def _policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy: nothing is loaded, nothing else is run."""
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _template() -> tuple[Template, type[Markup]]:
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError:
        raise Unavailable(
            "the HTML page needs Jinja2: pip install 'bwagent[page]' (or another --output)"
        ) from None
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text),
        autoescape=True,
        finalize=_printable,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"sign": SIGNS, "rate": worklist.rate_text}
    return environment.get_template("page.html.jinja"), Markup


def _printable(value: object) -> object:
    """Return a text of the data without control characters; markup has been through here."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return visible(value, MAX_TEXT)


def _groups(
    judged: Judged, found: Sequence[Entry], marks: Marks, leaves: Leaves
) -> Iterator[GroupView]:
    nodes = {node.name: node for node in judged.fleet.nodes}
    having: dict[int, list[Entry]] = {}
    for one in found:
        for number in one.groups:
            having.setdefault(number, []).append(one)
    for number, group in enumerate(judged.groups, 1):
        of_group = matrix([nodes[name] for name in group.nodes], leaves, marks)
        yield GroupView(
            number,
            group,
            of_group,
            pictures(group, of_group, leaves, marks),
            having.get(number, []),
            len(of_group.rails) > WIDE,
        )


def _notes(judged: Judged) -> list[str]:
    others = judged.fleet.others
    return [
        *judged.notes,
        *judged.fleet.problems,
        *([f"{others:,} Nodes without labels of the agent are left out"] if others else []),
        *(f"{node.name}: {text}" for node in judged.fleet.nodes for text in node.problems),
    ]
