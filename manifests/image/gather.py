"""The system below bwagent's image: Python, the libraries that it loads, and their papers.

    python3 gather.py TREE ROOT PACKAGES LIBRARY...

TREE is a Debian of any architecture with the Python that runs this script. Nothing in it is
started, so that an image for another architecture needs no emulation.

Invariant: a file is in ROOT because Python, an extension module below PACKAGES or a named LIBRARY
loads it. What they load is in their dynamic sections, so no path here names an architecture or a
release. There is no cache of the loader: a library is where the loader looks without one, or the
build fails. For each Debian package that a file came from, its copyright file comes along, and its
entry of the package database where scanners look in images without one (var/lib/dpkg/status.d, the
convention of the distroless images).
"""
# ruff: noqa: INP001, S603 - a script, which asks programs of the system that it runs on

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
# -I and -S: no variable of the environment and no .pth file chooses what is run. -OO: the image has
# bytecode without docstrings.
ENTRY = """\
#!/usr/bin/python3 -ISOO
import sys

sys.path.append("/opt/bwagent")
from agent.cli import main

main()
"""

# pyudev finds libudev by ctypes.util.find_library(), which reads what `ldconfig -p` prints.
LDCONFIG = """\
#!/usr/bin/python3 -ISOO
import os

machine = os.uname().machine.replace("_", "-")
for path in {}:
    print(f"\\t{{os.path.basename(path)}} (libc6,{{machine}}) => {{path}}")
"""

_NEEDED = re.compile(r"\(NEEDED\) .*\[(.+)\]")
_RUN_PATH = re.compile(r"\((?:RPATH|RUNPATH)\) .*\[(.+)\]")
_LOADER = re.compile(r"program interpreter: /(.+)\]")


class System:
    """A Debian's tree of files."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree.resolve()
        self.python = self.file(Path(sys.executable).resolve())
        self.loader = self.tree / _LOADER.findall(printed("readelf", "-lW", self.python))[0]
        (triplet,) = {path.name for path in self.tree.glob("lib/*-linux-gnu")}
        # What Debian's loader searches by itself, in its order.
        self.folders = [
            self.tree / top / name for name in (triplet, "") for top in ("lib", "usr/lib")
        ]

    def file(self, path: Path | str) -> Path:
        """Return the file that the system has under an absolute path."""
        return self.tree / str(path).lstrip("/")

    def place(self, file: Path) -> Path:
        """Return the path of a file, relative, in its real folder: /lib is a link to usr/lib."""
        return file.parent.resolve().relative_to(self.tree) / file.name

    def library(self, name: str, run_path: list[Path]) -> Path:
        """Return the file that the loader maps for a name."""
        for folder in [*run_path, *self.folders]:
            if (folder / name).is_file():
                return folder / name
        sys.exit(f"gather.py: {name} is in no folder that the loader searches")

    def run_path(self, file: Path, said: str) -> list[Path]:
        """Return the folders that a file wants searched before the loader's own."""
        names = [name for text in _RUN_PATH.findall(said) for name in text.split(":")]
        return [
            file.parent / name.removeprefix("$ORIGIN").lstrip("/")
            if name.startswith("$ORIGIN")
            else self.file(name)
            for name in names
        ]

    def needed(self, file: Path) -> list[Path]:
        """Return the libraries that a file names, but the loader, which Python names."""
        said = printed("readelf", "-dW", file)
        folders = self.run_path(file, said)
        names = [name for name in _NEEDED.findall(said) if name != self.loader.name]
        return [self.library(name, folders) for name in names]


def printed(*command: str | Path) -> str:
    """Return what a program prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def gather(system: System, root: Path, packages: Path, libraries: list[Path]) -> None:
    """Fill `root`, which is not there yet."""
    stdlib = system.file(sysconfig.get_path("stdlib"))
    target = root / system.place(stdlib)
    shutil.copytree(stdlib, target, ignore=shutil.ignore_patterns(*UNUSED))
    modules = [stdlib / path.relative_to(target) for path in target.rglob("*") if path.is_file()]
    extensions = [path for path in [*modules, *packages.rglob("*")] if ".so" in path.suffixes]
    programs = [system.python, *libraries]
    mapped = loaded(system, [*programs, *extensions])
    found = [*programs, *(path for path in mapped if not path.is_relative_to(packages))]
    for file in found:
        copy(file, root / system.place(file))
    # Its own name may be an absolute link, which leads out of the tree.
    copy(system.library(system.loader.name, []), root / system.place(system.loader))
    for name in ("lib", "lib64", "bin", "sbin"):
        if (link := system.tree / name).is_symlink():
            (root / name).symlink_to(link.readlink())
    settle(root, system, libraries)
    for package in owners(system, [*modules, *found, system.loader]):
        papers(system, root, package)


def loaded(system: System, files: list[Path]) -> list[Path]:
    """Return the libraries that these files load, directly and indirectly."""
    found: set[Path] = set()
    left = list(files)
    while left:
        new = set(system.needed(left.pop())) - found
        found |= new
        left += new
    return sorted(found)


def copy(source: Path, target: Path) -> None:
    """Copy a file under the name that it is loaded by, whatever links that name goes through."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def settle(root: Path, system: System, libraries: list[Path]) -> None:
    """Write accounts, programs, a mount point for temporary files."""
    for folder in ("etc", "tmp", "usr/bin"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name, text in ACCOUNTS.items():
        (root / name).write_text(text)
    (root / "tmp").chmod(0o1777)
    (root / "usr/bin/python3").symlink_to(f"/{system.python.relative_to(system.tree)}")
    program(root / "usr/bin/bwagent", ENTRY)
    paths = [f"/{file.relative_to(system.tree)}" for file in libraries]
    program(root / system.place(system.file("sbin/ldconfig")), LDCONFIG.format(paths))


def program(path: Path, text: str) -> None:
    """Write a file that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def owners(system: System, files: list[Path]) -> list[str]:
    """The Debian packages of these files, as `name:architecture`; files of no package have none."""
    places = {str(system.place(file)).removeprefix("usr/") for file in files}
    # The database knows some libraries below /lib and some below /usr/lib.
    names = [f"/{top}{place}" for place in sorted(places) for top in ("", "usr/")]
    said = subprocess.run(
        [*database(system), "-S", *names], check=False, capture_output=True, text=True
    ).stdout
    lines = (
        line.rpartition(": ")[0] for line in said.splitlines() if not line.startswith("diversion")
    )
    return sorted({package for line in lines for package in line.split(", ")})


def database(system: System) -> list[str]:
    """Return the command that asks the system's package database."""
    return ["dpkg-query", f"--admindir={system.tree}/var/lib/dpkg"]


def papers(system: System, root: Path, package: str) -> None:
    """A package's copyright file, and its entry of the package database."""
    name = package.partition(":")[0]
    entry = root / "var/lib/dpkg/status.d" / name
    entry.parent.mkdir(parents=True, exist_ok=True)
    entry.write_text(printed(*database(system), "-s", package))
    document = Path("usr/share/doc", name, "copyright")
    copy(system.tree / document, root / document)


if __name__ == "__main__":
    os.umask(0o022)
    tree, root, packages, *libraries = map(Path, sys.argv[1:])
    gather(System(tree), root, packages, libraries)
