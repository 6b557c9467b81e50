"""The shape of the package: who may import whom, and that starting costs nothing that is not used."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

AGENT = Path(__file__).parent.parent / "agent"
MODULES = {
    ".".join(path.relative_to(AGENT).with_suffix("").parts): path
    for path in sorted(AGENT.rglob("*.py"))
    if path.name != "__init__.py"
}
# A room is a folder, or a module beside them. What a room may import; cli sees everything.
ALLOWED = {
    "errors": set(),
    "model": set(),
    "blocking": set(),
    "encode": set(),
    "table": set(),
    "accelerator": {"model"},
    "roles": {"model"},
    "flags": {"encode"},
    "wire": {"errors", "model"},
    "neighbors": {"model", "wire"},
    "host": {"errors", "model", "neighbors", "wire"},
    "sources": {"blocking", "errors", "host", "model", "neighbors", "roles", "wire"},
    "observe": {"errors", "host", "model", "roles", "sources"},
    "live": {"errors", "host", "model", "wire"},
    "claims": {"accelerator", "model"},
    "labels": {"claims", "encode", "model"},
    "report": {"accelerator", "labels", "model"},
    "probe": {"encode", "errors", "labels", "model", "report", "table"},
    "snapshot": {"errors", "host", "model", "observe", "wire"},
    "node": {"accelerator", "encode", "errors", "labels", "model"},
    "run": {
        *(
            "accelerator",
            "errors",
            "host",
            "labels",
            "model",
            "neighbors",
            "node",
            "observe",
            "report",
            "roles",
            "wire",
        ),
    },
}
# The two modules of `bwagent run` that stand where cli stands: its flags, and what puts its parts together.
EDGE = {"cli", "run.flags", "run.daemon"}
THIRD_PARTY = {"live", "cli", "flags", "probe", "run.flags", "run.metrics", "snapshot.archive", "snapshot.pcap"}


def imports(path: Path) -> set[str]:
    """The absolute names that a module imports, at the top or in a function, but for type checking."""
    tree = ast.parse(path.read_text())
    typing = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
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
    names = {name.removeprefix("agent.") for name in imports(MODULES[module]) if name.startswith("agent.")}
    return {m for m in MODULES for name in names if name == m or name.startswith(f"{m}.")}


@pytest.mark.parametrize("module", sorted(MODULES.keys() - EDGE))
def test_imports_go_one_way(module: str) -> None:
    """A room imports only rooms that stand before it in the data's way through the agent."""
    room = module.partition(".")[0]
    assert {name.partition(".")[0] for name in ours(module)} <= ALLOWED[room] | {room}


def test_no_two_modules_import_each_other() -> None:
    """Inside the rooms, too, there is an order in which everything can be read."""
    list(TopologicalSorter({module: ours(module) for module in MODULES}).static_order())


@pytest.mark.parametrize("module", MODULES)
def test_third_parties_stay_at_the_edge(module: str) -> None:
    """Only the doors and the command line import packages that are not the standard library's."""
    tops = {name.partition(".")[0] for name in imports(MODULES[module])} - {"agent", "__future__"}
    foreign = tops - sys.stdlib_module_names
    assert not foreign or {module, module.partition(".")[0]} & THIRD_PARTY, foreign


@pytest.mark.parametrize("module", MODULES)
def test_modules_stay_small(module: str) -> None:
    """A module that outgrows 250 lines holds two things."""
    assert len(MODULES[module].read_text().splitlines()) <= 250


@pytest.mark.parametrize("name", ["agent", "agent.observe", "agent.probe", "agent.snapshot.replay"])
def test_importing_pulls_no_third_party(name: str) -> None:
    """What observes and replays loads the standard library only."""
    code = f"import sys, {name}; print(*{{m.partition('.')[0] for m in sys.modules}})"
    loaded = set(
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(AGENT.parent)!r}); {code}"],
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
