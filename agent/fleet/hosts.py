"""Which Node each host of a plan is: by the tolerances of agent/verify/names.py, or by its name.

A host that may be several Nodes is none of them, unless it has the very name of one; and of several
hosts that may be one Node, the one with its very name is it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.findings.finding import grouped
from agent.findings.names import hosts, node_key, same_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Off = frozenset[str]


class Hosts:
    """The Nodes of the names in a plan."""

    def __init__(
        self,
        nodes: Sequence[str],
        names: Iterable[str],
        off: Off = frozenset(),
        same: Callable[[str, str, Off], str | None] = same_name,
    ) -> None:
        self._off, self._same = off, same
        self._by_name = grouped(nodes, node_key)
        self._by_short: dict[str, list[str]] = {}
        for node in nodes:
            for short in hosts(node):
                self._by_short.setdefault(node_key(short), []).append(node)
        self.ambiguous: dict[str, list[str]] = {}  # host to Nodes, and Node to hosts
        self._found: dict[str, str] = {}
        for name in names:
            self._find(name)
        self._refuse_doubled()

    def node(self, host: str) -> str | None:
        """Return the Node that a host is; None for a switch, or a host without a Node."""
        return self._found.get(host)

    def _find(self, host: str) -> None:
        key = node_key(host)
        candidates = {*self._by_name.get(key, ()), *self._by_short.get(key, ())}
        for short in hosts(host):
            candidates.update(self._by_name.get(node_key(short), ()))
        if host in candidates:
            self._found[host] = host
            return
        found = sorted(node for node in candidates if self._same(host, node, self._off))
        if len(found) == 1:
            self._found[host] = found[0]
        elif found:
            self.ambiguous[host] = found

    def _refuse_doubled(self) -> None:
        """Drop the hosts that may all be one Node, but for the one with its very name.

        Spellings that are equal to each other are one host.
        """
        for node, names in grouped(self._found, self._found.__getitem__).items():
            if len(names) > 1 and not self._are_one(names):
                for host in names:
                    if host != node:
                        del self._found[host]
                if node not in names:
                    self.ambiguous[node] = names

    def _are_one(self, names: Sequence[str]) -> bool:
        longest = max(names, key=len)
        return all(self._same(longest, other, self._off) for other in names)
