"""Which Node each host of a plan is: by the tolerances of agent/verify/names.py, or by its name.

A host that may be several Nodes is none of them, unless it has the very name of one; and of several
hosts that may be one Node, the one with its very name is it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.verify.finding import grouped
from agent.verify.names import label_value, same_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Off = frozenset[str]


class Hosts:
    """The Nodes of the names in a plan."""

    def __init__(self, nodes: Sequence[str], names: Iterable[str], off: Off = frozenset()) -> None:
        self._off = off
        self._nodes: dict[str, list[str]] = {}
        for node in nodes:
            for key in _keys(node):
                self._nodes.setdefault(key, []).append(node)
        self.ambiguous: dict[str, list[str]] = {}  # host to Nodes, and Node to hosts
        self._found: dict[str, str] = {}
        for name in names:
            self._find(name)
        self._refuse_doubled()

    def node(self, host: str) -> str | None:
        """Return the Node that a host is; None for a switch, or a host without a Node."""
        return self._found.get(host)

    def _find(self, host: str) -> None:
        candidates = {node for key in _keys(host) for node in self._nodes.get(key, ())}
        if host in candidates:
            self._found[host] = host
            return
        found = sorted(node for node in candidates if same_name(host, node, self._off))
        if len(found) == 1:
            self._found[host] = found[0]
        elif found:
            self.ambiguous[host] = found

    def _refuse_doubled(self) -> None:
        """Drop the hosts that may all be one Node, but for the one with its very name.

        Spellings that are equal to each other are one host.
        """
        for node, hosts in grouped(self._found, self._found.__getitem__).items():
            if len(hosts) > 1 and not self._are_one(hosts):
                for host in hosts:
                    if host != node:
                        del self._found[host]
                if node not in hosts:
                    self.ambiguous[node] = hosts

    def _are_one(self, hosts: Sequence[str]) -> bool:
        longest = max(hosts, key=len)
        return all(same_name(longest, other, self._off) for other in hosts)


def _keys(name: str) -> set[str]:
    """Return texts of which names that may be equal share one."""
    short = name.partition(".")[0]
    return {label_value(text).casefold() for text in (name, short)}
