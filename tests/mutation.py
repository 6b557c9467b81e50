"""Mutation testing of the pure modules: `python -m tests.mutation [agent/sysfs/parse.py ...]`.

mutmut changes one expression of a function and runs the unit tests of its module, and no others. A
mutant that survives is printed: either a test is missing, or the mutant is equivalent.

Limits: constants of a module and decorated functions, such as properties, are not mutated. Code
that a test module runs on import, in a list of parameters, runs unmutated.

A unit runs in a folder of its own below build/mutation/, in which `mutmut browse` shows more. It
ends after `--seconds`; the rest of its mutants are counted as not checked then.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
SCRATCH = REPOSITORY / "build/mutation"
# Patterns: unit tests, and the modules that they test.
UNITS = {
    "tests/unit/daemon/test_flapping.py": ("agent/daemon/flapping.py",),
    "tests/unit/daemon/test_schedule.py": ("agent/daemon/schedule.py",),
    "tests/unit/infiniband/test_smp.py": ("agent/infiniband/smp.py",),
    "tests/unit/kube/test_annotation.py": ("agent/kube/annotation.py",),
    "tests/unit/kube/test_negotiation.py": ("agent/kube/negotiation.py",),
    "tests/unit/kube/test_managed_fields.py": ("agent/kube/managed_fields.py",),
    "tests/unit/kube/test_[cno]*.py": ("agent/kube/change.py",),  # cleanup, ownership, ...
    "tests/unit/labels/test_*.py": ("agent/labels/*.py",),
    "tests/unit/lldp/test_frame.py": ("agent/lldp/frame.py",),
    "tests/unit/lldp/test_neighbors.py": ("agent/lldp/neighbors.py",),
    "tests/unit/nvml/test_decode.py": ("agent/nvml/decode.py",),
    "tests/unit/nvml/test_domain.py": ("agent/nvml/domain.py",),
    "tests/unit/sources/test_roles*.py": ("agent/sources/roles.py",),
    "tests/unit/sources/test_routes.py": ("agent/sources/netdev.py",),
    "tests/unit/sysfs/test_parse.py": ("agent/sysfs/parse.py",),
    "tests/unit/test_encode.py": ("agent/encode.py",),
    "tests/unit/test_memory.py": ("agent/memory.py",),
    "tests/unit/test_node_description.py": ("agent/node_description.py",),
}
PYTEST = ("-p", "no:cacheprovider", "--hypothesis-seed=0")
LOG = "mutmut.log"
KILLED = ("killed", "timeout", "segfault")
UNCHECKED = ("not checked", "check was interrupted by user")


def main() -> int:
    """Run the units of the modules that the command line names, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", help="agent/sysfs/parse.py, for example; else all")
    parser.add_argument("--seconds", type=float, default=900, help="the time limit of a unit")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    failed = 0
    for tests, modules in units(options.modules):
        folder = prepare(tests, modules)
        if run(folder, options.processes, options.seconds):
            report(folder, modules)
        else:
            failed += 1
            print(f"{' '.join(modules)}: mutmut failed, see {folder}/{LOG}", flush=True)  # noqa: T201
    return int(failed > 0)


def units(named: Sequence[str]) -> Iterable[tuple[str, Sequence[str]]]:
    """Yield the tests and the modules of each unit; only the modules in `named`, if there are any.

    Raises SystemExit for a module of no unit.
    """
    for module in named:
        if not any(fnmatch(module, pattern) for of in UNITS.values() for pattern in of):
            raise SystemExit(f"{module} is in no unit of tests/mutation.py")
    for tests, patterns in UNITS.items():
        chosen = [one for one in named if any(fnmatch(one, pattern) for pattern in patterns)]
        if chosen or not named:
            yield tests, chosen or patterns


def prepare(tests: str, modules: Sequence[str]) -> Path:
    """Make the folder in which mutmut runs: links to the sources, and its configuration.

    Raises SystemExit for a pattern that matches no file.
    """
    for pattern in (tests, *modules):
        if not any(REPOSITORY.glob(pattern)):
            raise SystemExit(f"{pattern} is no file: tests/mutation.py has an old name")
    folder = SCRATCH / tests.removeprefix("tests/unit/").removesuffix(".py").replace("*", "all")
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for name in ("agent", "docs", "tests"):
        (folder / name).symlink_to(REPOSITORY / name)
    selected = sorted(str(path.relative_to(REPOSITORY)) for path in REPOSITORY.glob(tests))
    configuration = {
        "source_paths": ["agent"],
        "also_copy": ["docs"],
        "only_mutate": [*modules],
        "do_not_mutate_patterns": [r"\bcast\("],
        "pytest_add_cli_args_test_selection": selected,
        "pytest_add_cli_args": [*PYTEST],
        "use_git_change_detection": False,
        "timeout_multiplier": 8.0,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in configuration.items()]
    project = (REPOSITORY / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text("\n".join([project, "[tool.mutmut]", *lines, ""]))
    return folder


def run(folder: Path, processes: int, seconds: float) -> bool:
    """Run mutmut, and interrupt it at the end of its time; return False if it failed."""
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(processes)]
    with (folder / LOG).open("w") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait()
    return process.returncode == 0


def report(folder: Path, modules: Sequence[str]) -> None:
    """Print the score of a unit, and the mutants that survived."""
    found = dict(
        line.strip().rsplit(": ", 1) for line in mutmut(folder, "results", "--all", "true")
    )
    counts = Counter(found.values())
    unchecked = sum(counts[status] for status in UNCHECKED)
    killed = sum(counts[status] for status in KILLED)
    print(  # noqa: T201 - a report on the terminal
        f"{' '.join(modules)}: {killed} of {len(found) - unchecked} mutants killed "
        f"({counts['timeout']} by a timeout), {unchecked} not checked",
        flush=True,
    )
    for name, status in found.items():
        if status not in KILLED + UNCHECKED:
            print(*mutmut(folder, "show", name), sep="\n", flush=True)  # noqa: T201


def mutmut(folder: Path, *arguments: str) -> list[str]:
    """Return the lines that a command of mutmut prints."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
