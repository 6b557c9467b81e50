"""Graphs in DOT, as ptmd of Cumulus Linux and NVIDIA AIR take them: topology.dot.

    graph G {
        hostnametype="hostname"
        LLDP1="match_type=portdescr"
        "leaf01":"swp1s0" -- "gpu-017":"enp3s0np0" [LLDP="lldptmpl=LLDP1"]
    }

The subset (https://graphviz.org/doc/info/lang.html): one undirected graph; nodes, assignments,
`graph`, `node` and `edge` with attributes, subgraphs as groups, and edges of two nodes with their
ports. Malformed are directed graphs, chains of edges, edges to a subgraph, and
texts in HTML. Comments are `//`, `/* */` and `#` to the end of its line, also within one, which
Graphviz has at the beginning of a line only. An edge with an end that has no port is skipped.

ptmd's parameters for LLDP become fields of the cable (`match_type`, `match_hostname`,
`hostnametype`), so do other attributes of an edge; with `match_type=portdescr` a port's text is
also its port name. The attribute `mark` is the mark of the cable.

pydot 4.0 takes a hundred times as long for an edge, and does not know its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from agent.cabling.plans.columns import mark_of
from agent.cabling.plans.model import NO_FIELDS, Cables, End, FilePlace, Plan, PlanCable, quoted
from agent.cabling.plans.source import PlanContent
from agent.errors import Malformed

KIND = "dot"
MAX_PARAMETERS = 500  # characters
MAX_DEPTH = 32  # of subgraphs
_COMMENT = r"//[^\n]*|/\*.*?\*/|#[^\n]*"
_START = re.compile(
    rf"(?:\s|{_COMMENT})*+(?:strict\s+)?(?:di)?graph\b[^{{]{{0,200}}\{{", re.IGNORECASE | re.DOTALL
)
_TOKEN = re.compile(
    rf'(?P<space>\s+|{_COMMENT})|"(?P<quoted>[^"\\]*(?:\\.[^"\\]*)*)"|(?P<edge>--|->)'
    r"|(?P<name>-?\.?\d[\w.]*|[^\W\d][\w.]*(?:-[\w.]+)*)|(?P<mark>[{}\[\]=:;,])",
    re.DOTALL,
)
_ESCAPE = re.compile(r'\\(["\\\n])')
# Kind, text, row: the kind is `text` for an ID, else the characters; "" ends the file.
Token = tuple[str, str, int]
_KEYWORDS = frozenset({"graph", "node", "edge"})
_PAIR = re.compile(r"\s*([\w-]+)\s*=\s*([^,\s]+)\s*(?:,|$)")


EdgeEnd = tuple[str, str]  # one end of an edge: its name, and the port or ""


def recognizes(source: PlanContent) -> bool:
    """Return True if the text begins with a graph."""
    return _START.match(source.head) is not None


def read(source: PlanContent) -> list[Plan]:
    """Return the plan of a graph."""
    parser = _Parser(source)
    parser.graph()
    return [parser.cables.whole(KIND, source.notes)]


def _tokens(text: str, place: FilePlace) -> Iterator[Token]:
    at, row = 0, 1
    for match in _TOKEN.finditer(text):
        start, end = match.span()
        if start != at:
            break
        kind, token = match.lastgroup, match[0]
        if kind == "quoted":
            # a backslash joins two lines
            yield "text", _ESCAPE.sub(lambda escape: escape[1].strip("\n"), token[1:-1]), row
        elif kind == "name":
            yield "text", token, row
        elif kind != "space":
            yield token, token, row
        at = end
        row += token.count("\n")
    if at < len(text):
        where = place.at(row)
        if text.startswith(('"', "/*"), at):
            raise Malformed(f"{where}: the file ends within a text or comment: truncated")
        raise Malformed(f"{where}: not of the subset: {quoted(text[at : at + 20])}")
    yield "", "", row


class _Parser:
    """A recursive descent over the tokens, one ahead."""

    def __init__(self, source: PlanContent) -> None:
        self.cables = Cables(source.place)
        self._place = source.place
        self._tokens = _tokens(source.text, source.place)
        self._next, self._ahead, self._row = next(self._tokens)
        self._graph: dict[str, str] = {}  # attributes of the graph
        self._edge: Mapping[str, str] = NO_FIELDS  # attributes of the edges that follow
        self._edges: list[tuple[EdgeEnd, EdgeEnd, Mapping[str, str], int]] = []

    def graph(self) -> None:
        """Parse the whole file."""
        if self._ahead.lower() == "strict":
            self._take("text")
        if self._take("text").lower() != "graph":
            raise self._error("not an undirected graph")
        self._skip("text")
        self._group(0)
        if self._next:
            raise self._error("more than one graph")
        for a, b, attributes, row in self._edges:
            place = self._place.at(row)
            names = [(name.strip(), port.strip()) for name, port in (a, b)]
            if not all(map(all, names)):
                self.cables.skip("an end without a port", place)
                continue
            # ptmd's parameters of an edge: its own ones, by a template perhaps
            lldp = dict(_pairs(attributes.get("LLDP", self._graph.get("LLDP", ""))))
            if template := lldp.pop("lldptmpl", None):
                lldp |= dict(_pairs(self._graph.get(template, "")))
            if kind := self._graph.get("hostnametype"):
                lldp["hostnametype"] = kind
            described = lldp.get("match_type") == "portdescr"
            near, far = (End(*pair, pair[1] if described else None) for pair in names)
            mark = mark_of(attributes.get("mark"), place)
            fields = {k: v for k, v in attributes.items() if k not in {"mark", "LLDP"}} | lldp
            self.cables.add(PlanCable(near, far, place, None, mark, fields or NO_FIELDS))

    def _group(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} subgraphs in each other")
        outside = self._edge
        self._take("{")
        while not self._skip("}"):
            if self._next == "{":
                self._group(depth + 1)
            elif not self._skip(";", ","):
                self._statement(depth)
        self._edge = outside

    def _statement(self, depth: int) -> None:
        row = self._row
        first = self._take("text")
        if first.lower() == "subgraph" and self._next in {"text", "{"}:
            self._skip("text")
            self._group(depth + 1)
        elif self._skip("="):
            self._graph[first] = self._take("text")
        elif first.lower() in _KEYWORDS and self._next == "[":
            attributes = self._attributes()
            if first.lower() == "graph":
                self._graph |= attributes
            elif first.lower() == "edge":
                self._edge = {**self._edge, **attributes}
        else:
            a = self._node(first)
            if not self._skip("--"):
                self._attributes()
                return
            b = self._node(self._take("text"))
            if self._next in {"--", "->"}:
                raise self._error("a chain of edges")
            self._edges.append((a, b, {**self._edge, **self._attributes()}, row))

    def _node(self, name: str) -> EdgeEnd:
        if not self._skip(":"):
            return name, ""
        port = self._take("text")
        if self._skip(":"):
            self._take("text")  # a compass point
        return name, port

    def _attributes(self) -> dict[str, str]:
        attributes: dict[str, str] = {}
        while self._skip("["):
            while not self._skip("]"):
                name = self._take("text")
                self._take("=")
                attributes[name] = self._take("text")
                self._skip(",", ";")
        return attributes

    def _skip(self, *kinds: str) -> bool:
        """Return True if the next token is of one of these kinds, and go on behind it."""
        is_next = self._next in kinds
        if is_next:
            self._take(self._next)
        return is_next

    def _take(self, kind: str) -> str:
        """Return the text of the next token, which is to be of this kind, and go on."""
        text = self._ahead
        if self._next != kind:
            expected = "a name" if kind == "text" else repr(kind)
            raise self._error(f"{quoted(text)} instead of {expected}")
        self._next, self._ahead, self._row = next(self._tokens)
        return text

    def _error(self, text: str) -> Malformed:
        place = self._place.at(self._row)
        if not self._next:
            return Malformed(f"{place}: the file ends within the graph: truncated")
        return Malformed(f"{place}: {text}")


def _pairs(text: str) -> list[tuple[str, str]]:
    """Return the parameters of `match_type=ifname,match_hostname=fqdn`."""
    return _PAIR.findall(text[:MAX_PARAMETERS])
