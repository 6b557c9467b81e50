"""The shape of the package: imports, I/O, and the few places that name a data source."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
AGENT = REPOSITORY / "agent"
MODULES = {
    ".".join(path.relative_to(AGENT).with_suffix("").parts): path
    for path in sorted(AGENT.rglob("*.py"))
    if path.name != "__init__.py"
}
# The modules that use sockets, devices, drivers, processes or HTTP. Coverage leaves them out: their
# tests run over the real thing, partly in other processes. The tests of some run in their own
# process, so these are measured.
MEASURED_IO = {
    *("events.event", "events.netlink", "events.port_states", "infiniband.query"),
    *("infiniband.umad", "kube.api", "lldp.driver_flags"),
    *("lldp.inbox", "nic.query", "revision", "shell.doctor"),
    *("telemetry.server", "transceiver.query"),
}
OMITTED_IO = {
    *("live_host", "events.monitor", "helper.main", "helper.process"),
    *("kube.kubeconfig", "lldp.packet_socket"),
    *("nvml.library", "sysfs.routes"),
}
MAX_UNCOVERED_LINES = 2647  # of the folder that once held all modules that do I/O
# What each folder, or module of the top, imports besides itself and BASE, along the flow of
# data. Not as plain as it could be:
# - kube knows what labels of a Node mean to other agents (nvml), and where a function is (sources);
# - kube has the memory of the tiers, whose text is an annotation (infiniband);
# - helper imports what its verbs do in a process of their own;
# - fleet judges snapshots, as Nodes, by the labels and the annotation that `run` would write.
BASE = {
    *("check", "encode", "errors", "exits", "facts", "folder", "ids", "limits", "model"),
    *("grouped", "netlink", "node_description", "pace", "reasons", "recorded_answer"),
    *("revision", "text"),
}
IMPORTS: dict[str, AbstractSet[str]] = {
    **dict.fromkeys(
        [*BASE, "sysfs", "lldp", "infiniband", "nvml", "nic", "events", "transceiver"], frozenset()
    ),
    "cabling": set(),  # plan rows and the node document in, findings out
    "helper": {"cabling", "infiniband", "kube", "nic", "nvml", "sysfs", "transceiver"},
    "host": {"infiniband", "sysfs"},
    "live_host": {"helper", "host", "infiniband", "lldp", "nvml", "sysfs"},
    "sources": {"host", "infiniband", "lldp", "nic", "nvml", "sysfs"},
    "fabric_dump": {"cabling", "infiniband"},  # a plan of cables as the subnet of a replay
    "memory": {"infiniband", "sources"},
    "labels": {"memory", "sources"},
    "kube": {"helper", "infiniband", "labels", "memory", "nvml", "sources"},
    "node_events": {"kube", "memory"},
    "snapshot": {
        *("host", "infiniband", "lldp", "nic", "sources", "sysfs", "transceiver"),
    },
    "output": {"cabling", "labels", "lldp", "memory", "nic", "sources"},
    "telemetry": {"helper", "kube", "labels", "memory", "nvml", "output", "sources"},
    "daemon": {
        *(
            "cabling",
            "events",
            "helper",
            "host",
            "infiniband",
            "kube",
            "labels",
            "live_host",
            "lldp",
        ),
        *("memory", "node_events", "nvml", "output", "sources", "sysfs", "telemetry"),
    },
    "options": {"cabling"},
    "cleanup": {"kube"},
    "shell": {
        *("host", "inputs", "kube", "lldp", "options", "snapshot", "sources", "sysfs"),
        "transceiver",
    },
    "verify": {"cabling", "inputs", "kube", "options", "output"},
    "fleet": {
        *("cabling", "infiniband", "inputs", "kube", "labels", "memory", "options", "output"),
        *("snapshot", "sources"),
    },
}
# The modules that put the parts together.
EDGE = {"cli", "commands", "inputs"}
NO_OBSERVATION = {"model", "check", "folder"}  # of BASE, what the comparison of cables is without
# All modules that may contain "nvml": adding a data source costs no more places than these.
NVML = {
    "nvml",  # its own folder
    "sources.nvml",  # the source
    # its rows in the tables of sources, of their checks and of their pollers
    *("sources.observe", "sources.checks", "daemon.background"),
    "snapshot.recordings",  # its row in the table of recordings
    "options",  # its flag
    "model",  # its field of Observation, and the names of nvml.h that the fields cite
    "memory",  # the domain, which is held
    "helper.main",  # the helper's verb
    # what it alone has: queries, a verdict, metrics, another agent's label
    *("live_host", "daemon.observer", "telemetry.metrics", "kube.commands"),
}
THIRD_PARTY = {
    *(
        "cabling.plans.own",
        "cabling.plans.xlsx",
        "cleanup",
        "cli",
        "commands",
        "events.netlink",
        "exits",
        "fleet.command",
        "fleet.exports.text",
    ),
    *("fleet.page.render", "helper.main", "helper.process", "inputs", "kube.api"),
    *(
        "kube.kubeconfig",
        "lldp.pcap",
        "nic.query",
        "nvml.library",
        "options",
        "output.formats",
    ),
    *("shell.commands", "snapshot.archive", "telemetry.log", "telemetry.metrics"),
    *("telemetry.server", "transceiver.query", "verify.command"),
}


@cache
def imports(path: Path) -> frozenset[str]:
    """Return the absolute names that a module imports, in functions too, but not for typing."""
    found = set()
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def statements(block: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a module at all depths, but those for typing; no expression is looked
    into, of which there are ten times as many.
    """
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        for one in getattr(block, field, ()):
            match one:
                case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                    continue
            yield one
            yield from statements(one)


@cache
def ours(module: str) -> set[str]:
    names = {
        name.removeprefix("agent.")
        for name in imports(MODULES[module])
        if name.startswith("agent.")
    }
    return {m for m in MODULES for name in names if name == m or name.startswith(f"{m}.")}


@pytest.mark.slow
def test_each_folder_imports_what_its_row_says() -> None:
    """The table is exact: a row that permits more than is used would not be noticed."""
    seen: dict[str, set[str]] = {}
    for module in MODULES.keys() - EDGE:
        room = module.partition(".")[0]
        others = {name.partition(".")[0] for name in ours(module)} - {room} - BASE
        seen.setdefault(room, set()).update(others)
    assert seen == IMPORTS


def test_the_comparison_of_cables_knows_no_observation() -> None:
    """Its input is plan rows and the node document."""
    rooms = {name for module in MODULES if module.startswith("cabling.") for name in ours(module)}
    assert rooms.isdisjoint(NO_OBSERVATION)


def test_no_two_modules_import_each_other() -> None:
    """The modules have an order in which each imports only earlier ones."""
    list(TopologicalSorter({module: ours(module) for module in MODULES}).static_order())


def test_third_parties_stay_at_the_edge() -> None:
    """Only the listed modules import packages outside the standard library."""
    own = {"agent", *sys.stdlib_module_names}
    foreign = {
        module: {name.partition(".")[0] for name in imports(MODULES[module])} - own
        for module in MODULES.keys() - THIRD_PARTY
    }
    assert {module: found for module, found in foreign.items() if found} == {}


@pytest.mark.parametrize(
    "name", ["agent", "agent.sources.observe", "agent.output.formats", "agent.snapshot.replay"]
)
def test_importing_pulls_no_third_party(name: str) -> None:
    """Observation and replay load the standard library only."""
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


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_a_short_command_loads_little(flag: str) -> None:
    """No room but those with flags, no slow module; `--version` reads a file, or asks git."""
    loaded = loaded_by(flag)
    assert "agent.options" in loaded
    slow = {"asyncio", "http", "ipaddress", "json", "logging", "pathlib", "socket", "ssl"}
    slow |= {"subprocess", "urllib.parse", "zipfile"}
    asks_git = {"ipaddress", "pathlib", "socket", "subprocess", "urllib.parse"}
    assert loaded & slow <= (asks_git if flag == "--version" else set())
    rooms = {name.split(".")[1] for name in loaded if re.match(r"agent\.\w+\.", name)}
    assert rooms <= {"fleet", "shell"}


def test_a_probe_loads_what_it_observes_with() -> None:
    """Nothing of the daemon, the API server, doctor and protocols that the machine has not."""
    loaded = loaded_by("probe", "--dry-run", "--replay", "sysfs_fixtures/dgx-h100")
    assert "agent.infiniband.smp" in loaded
    rooms = {name.split(".")[1] for name in loaded if re.match(r"agent\.\w+\.", name)}
    assert rooms <= {
        *("infiniband", "labels", "lldp", "nic", "nvml", "output", "snapshot", "sources"),
        *("sysfs", "transceiver"),
    }
    others = {"check", "lldp.frame", "lldp.reception", "sources.steady"}
    others |= {"nvml.poller", "sources.checks", "transceiver.modules"}
    slow = {"asyncio", "http", "ipaddress", "logging", "pathlib", "random", "socket", "ssl"}
    slow |= {"subprocess", "urllib.parse", "zipfile"}
    assert loaded.isdisjoint({f"agent.{name}" for name in others} | slow)


def test_a_probe_defines_few_dataclasses() -> None:
    """Each is six million instructions of every start; named tuples and classes are one or two."""
    code = (
        "import dataclasses, sys\n"
        "sys.argv = 'bwagent probe --replay sysfs_fixtures/dgx-h100'.split()\n"
        "from agent.cli import main\n"
        "try: main()\n"
        "except SystemExit:\n"
        "    for name, module in list(sys.modules.items()):\n"
        "        for key, value in vars(module).items() if name.startswith('agent') else ():\n"
        "            if dataclasses.is_dataclass(value) and isinstance(value, type):\n"
        "                print(key, file=sys.stderr)"
    )
    assert {*_stderr_of(code)} <= {"Host", "Seen"}


def loaded_by(*words: str) -> set[str]:
    """Return the modules that a command loads."""
    code = (
        f"import sys; before = {{*sys.modules}}; sys.argv = ['bwagent', *{words!r}]\n"
        "from agent.cli import main\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules.keys() - before, file=sys.stderr)"
    )
    return {*_stderr_of(code)}


def _stderr_of(code: str) -> list[str]:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY)
    return done.stderr.split()


def test_listed_modules_exist() -> None:
    """A module that was renamed or removed leaves every list."""
    assert MODULES.keys() >= MEASURED_IO | OMITTED_IO | THIRD_PARTY | (NVML - {"nvml"})


def test_coverage_leaves_out_the_io_modules_only() -> None:
    """The list `omit` of pyproject.toml is OMITTED_IO, and does not grow."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    omitted = project["tool"]["coverage"]["run"]["omit"]
    assert sorted(omitted) == sorted(f"*/agent/{name.replace('.', '/')}.py" for name in OMITTED_IO)
    lines = sum(len(MODULES[name].read_text().splitlines()) for name in OMITTED_IO)
    assert lines <= MAX_UNCOVERED_LINES


def test_a_source_is_named_in_few_places() -> None:
    """NVML is named by its folder, source, row, flag, label, helper verb, and what it alone has."""
    naming = {name for name, path in MODULES.items() if "nvml" in path.read_text().lower()}
    assert {name for name in naming if not name.startswith("nvml.")} <= NVML


# The imports of a thousand files are found in a fifth of a second, and parsed in three.
OF_TESTS = re.compile(
    r"^ *(?:from (tests[.\w]*) import (\([^)]*\)|.*)|import (tests[.\w]*))", re.MULTILINE
)


def test_no_test_imports_another_test() -> None:
    """Tests and the simulation share tests.support; benchmarks import nothing else of the tests."""
    wrong = {}
    for folder in ("tests", "benchmarks"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            allowed = ["tests.support"]
            if REPOSITORY / "tests/simulation" in path.parents:
                allowed.append("tests.simulation")
            wrong[path] = {
                name
                for module, names, whole in OF_TESTS.findall(path.read_text())
                for name in (
                    [whole] if whole else [f"{module}.{n}" for n in re.findall(r"\w+", names)]
                )
                if ".".join(name.split(".")[:2]) not in allowed or ".test_" in name
            }
    assert {str(path): found for path, found in wrong.items() if found} == {}
