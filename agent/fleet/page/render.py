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
from typing import TYPE_CHECKING

from agent import __version__
from agent.errors import not_installed
from agent.fleet.model import Judged, place_text
from agent.fleet.page import worklist
from agent.fleet.page.groups import matrix, pictures
from agent.fleet.page.lookup import APART, SEVERITIES, SIGNS, LeafTable, Marks
from agent.fleet.report import is_compared
from agent.text import utc, visible

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

FOLDER = files(__package__)  # of a package in a zip archive, too
MAX_TEXT = 2000  # characters of one text on the page
WIDE = 10  # rails, from which a matrix is printed in landscape


def page(judged: Judged) -> str:
    """Return the page. Raises Unavailable without Jinja2."""
    template, markup = _template()
    style, script = markup(_text("page.css")), markup(_text("page.js"))
    marks, leaves = Marks(judged.findings), LeafTable(judged)
    entries = worklist.entries(judged)
    others = judged.fleet.others
    nodes, groups = {node.name: node for node in judged.fleet.nodes}, []
    for number, group in enumerate(judged.groups, 1):
        of_group = matrix([nodes[name] for name in group.nodes], leaves, marks)
        groups.append(
            {
                "number": number,
                "group": group,
                "matrix": of_group,
                "pictures": pictures(group, of_group, leaves, marks),
                "entries": [entry for entry in entries if number in entry.groups],
                "is_wide": len(of_group.rails) > WIDE,
            }
        )
    return template.render(
        judged=judged,
        fleet=judged.fleet,
        version=__version__,
        time=utc(judged.fleet.now),
        style=style,
        script=script,
        policy=(  # nothing is loaded, nothing else is run
            f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        ),
        summary=worklist.summary(judged),
        verdict=worklist.verdict(judged),
        is_compared=is_compared(judged),
        work=[entry for entry in entries if entry.finding.code not in APART],
        stops=worklist.stops(judged),
        silent=worklist.silent(judged.fleet, entries),
        groups=groups,
        shown=leaves.shown,
        speeds=worklist.speeds(judged.fleet.nodes),
        notes=[
            *judged.notes,
            *judged.fleet.problems,
            *([f"{others:,} Nodes without labels of the agent are left out"] if others else []),
            *(f"{node.name}: {text}" for node in judged.fleet.nodes for text in node.problems),
        ],
    )


def _text(name: str) -> str:
    return (FOLDER / name).read_text("utf-8").strip()


def _hash(text: str) -> str:
    """Return the source of a Content-Security-Policy that permits this text alone."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _template() -> tuple[Template, type[Markup]]:
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError:
        instead = ", or take another --output"
        raise not_installed("the HTML page", "Jinja2", "page", instead) from None
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text),
        autoescape=True,
        # a text of the data without control characters; markup has been through here
        finalize=lambda value: (
            visible(value, MAX_TEXT)
            if isinstance(value, str) and not hasattr(value, "__html__")
            else value
        ),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "sign": SIGNS,
        "severities": SEVERITIES,
        "places": worklist.PLACES,
        "place": place_text,
        "rate": worklist.rate_text,
    }
    return environment.get_template("page.html.jinja"), Markup
