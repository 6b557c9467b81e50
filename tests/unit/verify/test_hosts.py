"""Which Node each host of a plan is."""

from __future__ import annotations

import pytest

from agent.findings.names import same_name
from agent.verify.plan_index import Hosts


@pytest.mark.parametrize(
    ("host", "node"),
    [
        ("gpu-001", "gpu-001"),
        ("GPU-001", "gpu-001"),
        ("gpu-001.dc1.example.com", "gpu-001"),
        ("gpu-001", "gpu-001.dc1.example.com"),
        ("GPU-001", "gpu-001.dc1.example.com"),
        ("L90.1.3.example.com", "L90.1.3"),
        ("10.0.1.5", "10.0.1.5"),
    ],
)
def test_one_node(host: str, node: str) -> None:
    """By the name, the case, and the short name of either."""
    assert Hosts([node, "other"], [host]).node(host) == node
    assert Hosts(["other"], [host]).node(host) is None


def test_tolerances_may_be_off() -> None:
    off = frozenset({"fqdn"})
    assert Hosts(["gpu-001"], ["gpu-001.example.com"], off).node("gpu-001.example.com") is None


def test_names_that_begin_alike_cost_no_square() -> None:
    """Addresses as names of Nodes, and hosts in one long domain."""
    names = [f"10.{number >> 8}.{number & 255}.1" for number in range(1000)]
    hosts = [f"{name}.dc1.example.com" for name in names]
    compared = list[str]()

    def same(host: str, node: str, off: frozenset[str]) -> str | None:
        compared.append(host)
        return same_name(host, node, off)

    found = Hosts(names, hosts, same=same)
    assert [found.node(host) for host in hosts] == names
    assert len(compared) == len(hosts)
