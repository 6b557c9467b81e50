"""The system below bwagent's image: Python, the libraries that it loads, and their papers.

    python3 gather.py ROOT PACKAGES LIBRARY...

Invariant: a file is in ROOT because Python, an extension module below PACKAGES or a
named LIBRARY loads it. What they load is what the dynamic loader says (ldd), so no path here names
an architecture or a release. ldconfig comes along because pyudev looks for libudev by
ctypes.util.find_library, and that asks ldconfig. For each Debian package that a file came from, its
copyright file comes along, and its entry of the package database where scanners look in images
without one (var/lib/dpkg/status.d, the convention of the distroless images).
"""
# ruff: noqa: INP001, S603, S607 - a script, which asks programs of the system that it runs on

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

# Of the standard library: what tests, draws, asks at a terminal, compiles, installs or keeps
# databases; with it would come two dozen libraries more.
UNUSED = (
    *(
        "__pycache__",
        "site-packages",
        "dist-packages",
        "sitecustomize.py",
        "config-*",
        "ensurepip",
        "venv",
    ),
    *(
        "test",
        "tests",
        "_test*",
        "_ctypes_test.*",
        "_xxtestfuzz.*",
        "xxlimited*",
        "lib2to3",
        "distutils",
    ),
    *(
        "idlelib",
        "turtle.py",
        "turtledemo",
        "tkinter",
        "_tkinter.*",
        "pydoc_data",
        "ossaudiodev.*",
        "nis.*",
    ),
    *(
        "curses",
        "_curses*",
        "readline.*",
        "_pyrepl",
        "sqlite3",
        "_sqlite3.*",
        "dbm",
        "_dbm.*",
        "_gdbm.*",
    ),
)
ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/sbin/nologin\n"
    "nonroot:x:65532:65532:nonroot:/:/sbin/nologin\n",
    "etc/group": "root:x:0:\nnonroot:x:65532:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
# -I and -S: no variable of the environment and no .pth file chooses what is run.
ENTRY = """\
#!/usr/bin/python3 -IS
import sys

sys.path.append("/opt/bwagent")
from agent.cli import main

main()
"""

LDCONFIG = Path("/sbin/ldconfig")  # statically linked

_RESOLVED = re.compile(r"(/\S+) \(0x[0-9a-f]+\)$")


def gather(root: Path, packages: Path, libraries: list[Path]) -> None:
    """Fill `root`, which is not there yet."""
    python, stdlib = Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))
    shutil.copytree(stdlib, inside(root, stdlib), ignore=shutil.ignore_patterns(*UNUSED))
    modules = [Path("/", path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    extensions = [path for path in [*modules, *packages.rglob("*")] if ".so" in path.suffixes]
    found = [python, *libraries, *loaded([python, *libraries, *extensions], packages), LDCONFIG]
    for path in found:
        place(root, path)
    for name in ("lib", "lib64", "bin", "sbin"):
        if (link := Path("/", name)).is_symlink():
            (root / name).symlink_to(link.readlink())
    settle(root, python)
    for package in owners([*modules, *found]):
        papers(root, package)


def inside(root: Path, path: Path) -> Path:
    """Place of a file below `root`: in the real folder, as /lib is a link to /usr/lib."""
    return root / path.parent.resolve().relative_to("/") / path.name


def loaded(files: list[Path], packages: Path) -> list[Path]:
    """Shared libraries that the loader maps for these files, itself included; no wheels' own."""
    said = subprocess.run(["ldd", *files], check=True, capture_output=True, text=True).stdout
    if "not found" in said:
        sys.exit(
            f"gather.py: {next(line.strip() for line in said.splitlines() if 'not found' in line)}"
        )
    paths = {Path(match[1]) for line in said.splitlines() if (match := _RESOLVED.search(line))}
    return sorted(path for path in paths if not path.is_relative_to(packages))


def place(root: Path, path: Path) -> None:
    """Copy a file under the name that it is loaded by, whatever links that name goes through."""
    target = inside(root, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)


def settle(root: Path, python: Path) -> None:
    """Write accounts, the entry point, a mount point for temporary files, the loader's cache."""
    for folder in ("etc", "tmp", "usr/bin"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name, text in ACCOUNTS.items():
        (root / name).write_text(text)
    (root / "usr/bin/python3").symlink_to(python)
    (root / "usr/bin/bwagent").write_text(ENTRY)
    (root / "usr/bin/bwagent").chmod(0o755)
    (root / "tmp").chmod(0o1777)
    shutil.copy2("/etc/ld.so.conf", root / "etc")
    shutil.copytree("/etc/ld.so.conf.d", root / "etc/ld.so.conf.d")
    subprocess.run([LDCONFIG, "-r", root], check=True)


def owners(paths: list[Path]) -> list[str]:
    """The Debian packages of these files, as `name:architecture`; files of no package have none."""
    # The database knows some libraries below /lib and some below /usr/lib.
    names = {
        name
        for path in paths
        for name in (str(path), str(path).removeprefix("/usr"), f"/usr{path}")
    }
    said = subprocess.run(
        ["dpkg-query", "-S", *names], check=False, capture_output=True, text=True
    ).stdout
    lines = (
        line.rpartition(": ")[0] for line in said.splitlines() if not line.startswith("diversion")
    )
    return sorted({package for line in lines for package in line.split(", ")})


def papers(root: Path, package: str) -> None:
    """A package's copyright file, and its entry of the package database."""
    name = package.partition(":")[0]
    entry = root / "var/lib/dpkg/status.d" / name
    entry.parent.mkdir(parents=True, exist_ok=True)
    entry.write_bytes(
        subprocess.run(["dpkg-query", "-s", package], check=True, capture_output=True).stdout
    )
    copyright_file = Path("/usr/share/doc", name, "copyright")
    (root / "usr/share/doc" / name).mkdir(parents=True, exist_ok=True)
    shutil.copy(copyright_file, root / "usr/share/doc" / name)


if __name__ == "__main__":
    os.umask(0o022)
    gather(Path(sys.argv[1]), Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
