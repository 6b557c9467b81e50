"""Checks and tests, as contributors and CI run them.

Sessions run in `.venv`, which `sh tests/setup.sh` makes; `versions` alone has environments of its
own. Packages come from pyproject.toml.
"""

import os
from pathlib import Path

import nox

PROJECT = nox.project.load_toml("pyproject.toml")
PYTHON = Path(".venv/bin/python").absolute()
WORKERS = ("-n", "auto", "--maxprocesses", "8")
# Real components are made once a file, in one of the workers; two more than there are cores, since
# these tests wait for two thirds of their time.
MORE = str(min((os.cpu_count() or 1) + 2, 8))
BY_FILE = ("-n", MORE, "--dist", "loadfile", "--no-loadscope-reorder")
BY_FILE += ("--max-worker-restart", "0")  # else xdist repeats what ended a worker
INSTALLED: set[str] = set()

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "none"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = False
nox.options.sessions = ["lint", "tests"]


def packages(*groups: str) -> list[str]:
    """Packages of dependency groups, but for bwagent itself."""
    every = (one for group in groups for one in nox.project.dependency_groups(PROJECT, group))
    return [one for one in every if not one.startswith("bwagent")]


def install(session: nox.Session, *groups: str) -> None:
    """Add the packages of these groups to .venv, if no session before has."""
    if not PYTHON.exists():
        session.error("there is no .venv here; run this first: sh tests/setup.sh")
    if wanted := [one for one in packages(*groups) if one not in INSTALLED]:
        pip = (str(PYTHON), "-m", "pip", "install", "-q", "--disable-pip-version-check")
        session.run_install(*pip, *wanted)
        INSTALLED.update(wanted)


def python(session: nox.Session, module: str, *arguments: str, **env: str) -> None:
    """Run a module in .venv; what it compiles is kept, or each worker would compile all again."""
    variables: dict[str, str | None] = {"PYTHONDONTWRITEBYTECODE": None}  # set in many containers
    session.run(str(PYTHON), "-m", module, *arguments, env=variables | env)


@nox.session(tags=["fast"])
def lint(session: nox.Session) -> None:
    """Style and types."""
    install(session, "test", "lint")
    python(session, "ruff", "check", ".")
    python(session, "ruff", "format", "--check", ".")
    python(session, "mypy", "--num-workers", "auto")


@nox.session
def tests(session: nox.Session) -> None:
    """Unit tests and simulation: no root and no real component."""
    install(session, "test")
    python(
        session,
        "pytest",
        *(*WORKERS, "--dist", "worksteal"),
        *(session.posargs or ("tests/unit", "tests/simulation")),
    )


@nox.session(tags=["fast"])
def unit(session: nox.Session) -> None:
    """The unit tests but those marked slow."""
    install(session, "test")
    python(session, "pytest", "-q", *WORKERS, "-m", "not slow", "tests/unit", *session.posargs)


@nox.session
def system(session: nox.Session) -> None:
    """The tests over real components, which `sh tests/real-parts.sh` installs; mostly as root."""
    install(session, "test")
    python(session, "pytest", *BY_FILE, *(session.posargs or ("tests/system",)))


@nox.session
def sweep(session: nox.Session) -> None:
    """The tests marked `sweep`: every combination of what the other sessions take one of a kind."""
    install(session, "test")
    python(session, "pytest", *BY_FILE, "--sweep", *session.posargs)


@nox.session
def explore(session: nox.Session) -> None:
    """New random examples and faults, from a seed that is printed; `-- --seed N --minutes N`."""
    install(session, "test")
    python(session, "tests.explore", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Branch coverage of unit tests, simulation and what real components are installed."""
    install(session, "test")
    python(session, "pytest", *BY_FILE, "--cov", "--cov-fail-under=95", *session.posargs)


@nox.session(python=nox.project.python_versions(PROJECT), venv_backend="venv")
def versions(session: nox.Session) -> None:
    """Unit tests and simulation on every supported Python that is here."""
    session.install("-q", "-e", ".[page,pcap,plan,zstd]", *packages("test"))
    session.run("pytest", "-q", *WORKERS, "tests/unit", "tests/simulation", *session.posargs)


@nox.session
def release(session: nox.Session) -> None:
    """All files of a release of the tag at HEAD, or of a commit between two: docs/release.md."""
    install(session, "release")
    python(session, "release", *session.posargs)


@nox.session
def mutation(session: nox.Session) -> None:
    """Mutants of the pure modules that survive their unit tests; arguments are modules."""
    install(session, "test", "mutation")
    python(session, "tests.mutation", *session.posargs)


@nox.session
def benchmarks(session: nox.Session) -> None:
    """Side-by-side measurements; prints medians."""
    install(session, "test")
    for name in session.posargs or [
        "probe",
        "lldp_decode",
        "lldp_listen",
        "smp_round",
        "nvml_poll",
        "node_patch",
        "plans",
    ]:
        python(session, f"benchmarks.{name}")
