"""The shape of the package: who may import whom, and that starting costs nothing that is not used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

AGENT = Path(__file__).parent.parent / "agent"
MODULES = {
    ".".join(path.relative_to(AGENT).with_suffix("").parts): path
    for path in sorted(AGENT.rglob("*.py"))
    if path.name != "__init__.py"
}
# Imports go one way; cli sees everything, and so does the daemon that it starts.
ALLOWED = {
    "errors": set(),
    "model": set(),
    "blocking": set(),
    "encode": set(),
    "accelerator": {"model"},
    "flags": {"encode"},
    "untrusted": set(),
    "exposition": {"untrusted"},
    "samples": {"accelerator", "exposition", "model", "report"},
    "metrics": {"exposition", "model", "samples"},
    "log": {"model", "untrusted"},
    "answers": set(),
    "ownership": {"errors", "labels", "model"},
    "observed": {"errors", "model", "ownership"},
    "plan": {"encode", "model", "observed", "ownership"},
    "negotiate": {"answers", "ownership", "plan"},
    "node": {"answers", "errors", "negotiate", "plan"},
    "cleanup": {"ownership", "plan"},
    "difference": {"answers", "negotiate", "ownership", "plan"},
    "publish": {
        *("accelerator", "answers", "cleanup", "difference", "errors", "labels", "model", "negotiate"),
        *("node", "observed", "ownership", "plan"),
    },
    "claims": {"accelerator", "model"},
    "aside": set(),
    "asking": {"accelerator", "aside", "errors"},
    "ears": {"neighbors", "wire"},
    "holds": {"labels", "model"},
    "pacer": set(),
    "steady": set(),
    "wary": {"host"},
    "speech": {"answers", "errors", "negotiate", "node", "observed", "ownership", "plan"},
    "watch": {"holds", "host", "labels", "model", "observe", "observed", "ownership"},
    "why": {"accelerator", "model", "ownership", "roles", "watch"},
    "voice": {"log", "metrics", "model", "observed", "ownership", "plan", "speech", "watch", "why"},
    "runtime": {
        *("accelerator", "aside", "asking", "ears", "errors", "model", "observed", "ownership", "pacer", "speech"),
        *("steady", "voice", "watch"),
    },
    "run_flags": {"errors", "live", "pacer"},
    "neighbors": {"model", "wire"},
    "pcap": {"errors", "wire"},
    "recorded": {"errors", "host", "pcap", "tree", "wire"},
    "wire": {"errors", "model", "wire"},
    "host": {"errors", "model", "neighbors", "wire"},
    "sources": {"blocking", "errors", "host", "model", "neighbors", "roles", "sources", "wire"},
    "observe": {"errors", "host", "model", "roles", "sources"},
    "roles": {"model"},
    "labels": {"claims", "encode", "model"},
    "report": {"accelerator", "labels", "model"},
    "table": set(),
    "tree": set(),
    "archive": {"errors"},
    "replay": {"archive", "errors", "host", "recorded", "tree"},
    "capture": {"errors", "host", "model", "observe", "recorded", "replay", "tree"},
    "anonymize": {"anonymize_peers", "capture"},
    "anonymize_peers": {"anonymize", "errors", "model", "recorded", "wire"},
    "live": {"errors", "host", "live", "model", "wire"},
    "probe": {"encode", "errors", "labels", "model", "report", "table"},
}
THIRD_PARTY = {"live", "archive", "cli", "flags", "metrics", "run_flags", "pcap", "probe"}


def imports(path: Path) -> set[str]:
    """The absolute names that a module imports, at the top or in a function, but for type checking."""
    tree = ast.parse(path.read_text())
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_one_way(module: str) -> None:
    """A module imports only what stands before it in the data's way through the agent."""
    room = module.partition(".")[0]
    ours = {name.split(".")[1] for name in imports(MODULES[module]) if name.startswith("agent.") and name.count(".")}
    ours -= {"__version__"}
    assert room in {"cli", "daemon"} or ours <= ALLOWED[room] | {room}


@pytest.mark.parametrize("module", MODULES)
def test_third_parties_stay_at_the_edge(module: str) -> None:
    """Only the doors and the command line import packages that are not the standard library's."""
    tops = {name.partition(".")[0] for name in imports(MODULES[module])} - {"agent", "__future__"}
    foreign = tops - sys.stdlib_module_names
    assert not foreign or module.partition(".")[0] in THIRD_PARTY, foreign


@pytest.mark.parametrize("module", MODULES)
def test_modules_stay_small(module: str) -> None:
    """A module that outgrows 250 lines holds two things."""
    assert len(MODULES[module].read_text().splitlines()) <= 250


@pytest.mark.parametrize("name", ["agent", "agent.observe", "agent.probe", "agent.replay"])
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
