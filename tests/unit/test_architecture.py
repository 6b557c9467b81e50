"""The shape of the package: who may import whom, and that starting costs nothing that is not
used.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

AGENT = Path(__file__).parents[2] / "agent"
MODULES = {
    ".".join(path.relative_to(AGENT).with_suffix("").parts): path
    for path in sorted(AGENT.rglob("*.py"))
    if path.name != "__init__.py"
}
# The modules that touch sockets, devices, drivers, processes or HTTP.
IO = {
    "live_host",
    "events.monitor",
    "events.port_states",
    "events.rtnetlink",
    "events.signals",
    "events.uevents",
    "helper.forkserver",
    "helper.main",
    "helper.process",
    "infiniband.query",
    "infiniband.umad",
    "kube.client",
    "kube.transport",
    "lldp.ethtool",
    "lldp.packet_socket",
    "lldp.wait",
    "nvml.library",
    "telemetry.server",
}
# Modules that every other may import.
BASE = {"errors", "metric", "model", "text"}
# What a package or top-level module may import besides BASE and itself.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "metric": set(),
    "model": set(),
    "text": set(),
    "sysfs": set(),
    "helper": {"infiniband", "kube", "nvml"},
    "lldp": {"sysfs"},
    "infiniband": set(),
    "nvml": set(),
    "events": set(),
    "host": {"lldp", "sysfs"},
    "live_host": {"helper", "host", "infiniband", "lldp", "sysfs"},
    "sources": {"host", "infiniband", "lldp", "nvml", "sysfs"},
    "labels": set(),
    "output": {"labels", "nvml"},
    "snapshot": {"host", "sources", "sysfs"},
    "kube": {"helper", "labels", "nvml", "sources"},
    "telemetry": {"kube", "labels", "nvml", "output", "sources"},
    "daemon": {
        *("events", "host", "infiniband", "kube", "labels", "live_host", "lldp", "nvml"),
        *("output", "sources"),
        *("sysfs", "telemetry"),
    },
    "options": {"daemon", "labels", "sources", "telemetry"},
}
# The modules that put the parts together.
EDGE = {"cli"}
THIRD_PARTY = {
    "cli",
    "events.uevents",
    "kube.client",
    "nvml.library",
    "options",
    "output.formats",
    "snapshot.archive",
    "lldp.pcap",
    "telemetry.collector",
    "telemetry.log",
    "telemetry.server",
}


def imports(path: Path) -> set[str]:
    """The absolute names that a module imports, at the top or in a function, but for type
    checking.
    """
    tree = ast.parse(path.read_text())
    typing = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
    ]
    aside = {id(inner) for outer in typing for inner in ast.walk(outer)}
    found = set()
    for node in (node for node in ast.walk(tree) if id(node) not in aside):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def ours(module: str) -> set[str]:
    """The modules of this package that a module imports."""
    names = {
        name.removeprefix("agent.")
        for name in imports(MODULES[module])
        if name.startswith("agent.")
    }
    return {m for m in MODULES for name in names if name == m or name.startswith(f"{m}.")}


@pytest.mark.parametrize("module", sorted(MODULES.keys() - EDGE))
def test_imports_go_one_way(module: str) -> None:
    """A room imports only rooms that stand before it in the data's way through the agent."""
    package = module.partition(".")[0]
    seen = {name.partition(".")[0] for name in ours(module)}
    assert seen <= ALLOWED[package] | {package} | BASE


def test_no_two_modules_import_each_other() -> None:
    """Inside the rooms, too, there is an order in which everything can be read."""
    list(TopologicalSorter({module: ours(module) for module in MODULES}).static_order())


@pytest.mark.parametrize("module", MODULES)
def test_third_parties_stay_at_the_edge(module: str) -> None:
    """Only the doors and the command line import packages that are not the standard library's."""
    tops = {name.partition(".")[0] for name in imports(MODULES[module])} - {"agent", "__future__"}
    foreign = tops - sys.stdlib_module_names
    assert not foreign or module in THIRD_PARTY, foreign


@pytest.mark.parametrize("module", MODULES)
def test_modules_stay_small(module: str) -> None:
    """A module that outgrows 400 lines holds two things."""
    assert len(MODULES[module].read_text().splitlines()) <= 400


@pytest.mark.parametrize(
    "name", ["agent", "agent.sources.observe", "agent.output.formats", "agent.snapshot.replay"]
)
def test_importing_pulls_no_third_party(name: str) -> None:
    """What observes and replays loads the standard library only."""
    code = f"import sys, {name}; print(*{{m.partition('.')[0] for m in sys.modules}})"
    loaded = set(
        subprocess.run(
            [
                sys.executable,
                "-I",
                "-S",
                "-c",
                f"import sys; sys.path.insert(0, {str(AGENT.parent)!r}); {code}",
            ],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
    )
    assert loaded - sys.stdlib_module_names <= {"agent", "__main__"}


def test_the_median_function_is_small() -> None:
    """Half of all functions have ten lines or fewer."""
    lengths = sorted(
        (node.end_lineno or 0) - node.lineno + 1
        for path in MODULES.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    )
    assert lengths[len(lengths) // 2] <= 10
