"""Checks and tests, as contributors and CI run them; packages come from pyproject.toml."""

import nox

PROJECT = nox.project.load_toml("pyproject.toml")
GROUPS = PROJECT["dependency-groups"]

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = False
nox.options.sessions = ["lint", "tests"]


def install(session: nox.Session, *groups: str) -> None:
    packages = [
        package for group in groups for package in nox.project.dependency_groups(PROJECT, group)
    ]
    session.install(
        "-q",
        "-e",
        ".[page,pcap,plan,zstd]",
        *(package for package in packages if not package.startswith("bwagent")),
    )


@nox.session(tags=["fast"])
def lint(session: nox.Session) -> None:
    """Style and types."""
    install(session, "test", "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """Every test, with branch coverage; real components where they are installed."""
    install(session, "test")
    # Real components are made once per file, in one of the workers.
    workers = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
    session.run("pytest", *workers, "--cov", "--cov-fail-under=95", *session.posargs)


@nox.session(tags=["fast"])
def unit(session: nox.Session) -> None:
    """The unit tests, which need no real component and no root, but those of a second or more."""
    install(session, "test")
    session.run("pytest", "-q", "-n", "3", "-m", "not slow", "tests/unit", *session.posargs)


@nox.session(python=nox.project.python_versions(PROJECT))
def versions(session: nox.Session) -> None:
    """The tests that need no real component, on every supported Python that is here."""
    install(session, "test")
    session.run("pytest", "-q", "-n", "3", "tests/unit", "tests/simulation", *session.posargs)


@nox.session
def release(session: nox.Session) -> None:
    """All files of a release of the tag at HEAD, in dist/: docs/release.md."""
    session.install("-q", *nox.project.dependency_groups(PROJECT, "release"))
    session.run("python", "-m", "release", *session.posargs)


@nox.session
def mutation(session: nox.Session) -> None:
    """Mutants of the pure modules that survive their unit tests; arguments are modules."""
    install(session, "test", "mutation")
    session.run("python", "-m", "tests.mutation", *session.posargs)


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
        session.run("python", "-m", f"benchmarks.{name}")
