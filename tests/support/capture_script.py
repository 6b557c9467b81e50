"""Runs sysfs_fixtures/capture.sh, and reads the list of files in sysfs_fixtures/README.md."""

from __future__ import annotations

import glob
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from agent.host import Host
from agent.snapshot.capture import entries, record, write_folder
from agent.snapshot.replay import replay
from agent.sources.observe import observe
from agent.sources.pci import PciePath, functions_on_bus, read_paths
from agent.sysfs.reader import LiveRoot
from tests.support import snapshots

FIXTURES = Path(__file__).parents[2] / "sysfs_fixtures"
SCRIPT = FIXTURES / "capture.sh"
SHELLS = {"dash": ["dash"], "busybox": ["busybox", "sh"]}
HOMES = {"DEV": "sys/class/infiniband/", "IF": "sys/class/net/", "BDF": "sys/bus/pci/devices/"}
_NAME = re.compile(r"\b(DEV|IF|BDF|NAME|N)\b|(?<=_)NAME")
_BRACES = re.compile(r"(.*?)\{(.*?)\}(.*)")


def run(
    shell: str, folder: Path, root: Path | str = "/", *, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Capture the tree at `root` into a new folder."""
    return subprocess.run(
        [*SHELLS[shell], str(SCRIPT), str(folder)],
        env=os.environ | {"ROOT": str(root)},
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def said(snapshot: Path) -> dict[str, Any]:
    """Return the report on a snapshot, without what differs between any two captures."""
    return snapshots.report(str(snapshot)) | {"node": None}


def pcie(snapshot: Path) -> tuple[frozenset[str], dict[str, PciePath]]:
    """Return the functions on the bus of a snapshot, and the PCIe paths of its backend NICs."""
    host = replay(str(snapshot))
    return functions_on_bus(host), read_paths(host, observe(host).ports)


def capture(tree: Path, folder: Path) -> Path:
    """Capture a tree as `bwagent capture` does."""
    root = LiveRoot(str(tree / "sys"), str(tree / "proc"))
    captured, _ = record(Host(root, clock=lambda: 0.0, name="node"))
    write_folder(entries(captured), str(folder))
    return folder


def listed() -> list[str]:
    """Return the patterns of the README's list, as `glob` has them."""
    text = (FIXTURES / "README.md").read_text()
    block = text.partition("## What the agent reads")[2].split("```")[1]
    words = [word for line in block.splitlines() for word in line.split()]
    paths = [word for word in words if re.match(r"(sys|proc|DEV|IF|BDF)/", word)]
    return [_pattern(path) for word in paths for path in _expanded(word)]


def matching(tree: Path) -> set[str]:
    """Return the files and links of a tree that the list names, by their real path."""
    # glob, since Path.glob gives no dangling link
    found = [path for pattern in listed() for path in glob.glob(pattern, root_dir=tree)]  # noqa: PTH207
    split = [path.rpartition("/") for path in found]
    real = {folder: _real(tree, folder) for folder in {folder for folder, _, _ in split}}
    places = {f"{real[folder]}/{name}" for folder, _, name in split}
    return {place for place in places if _is_file_or_link(tree / place)}


def files(tree: Path) -> set[str]:
    """Return all files and links of the `sys` and `proc` of a tree.

    proc/net is a link to proc/self/net in captures of the agent, and a folder in others.
    """
    found = [path for top in ("sys", "proc") for path in (tree / top).rglob("*")]
    paths = {str(path.relative_to(tree)) for path in found if _is_file_or_link(path)}
    return {path.replace("proc/self/net/", "proc/net/") for path in paths}


def _is_file_or_link(path: Path) -> bool:
    return path.is_symlink() or path.is_file()


def _real(tree: Path, folder: str) -> str:
    """Return a folder of a tree with its links resolved."""
    if f"{folder}/".startswith("proc/"):
        return folder
    return str((tree / folder).resolve().relative_to(tree.resolve()))


def _expanded(word: str) -> list[str]:
    braces = _BRACES.fullmatch(word)
    if not braces:
        return [word]
    rests = _expanded(braces[3])
    return [braces[1] + name + rest for name in braces[2].split(",") for rest in rests]


def _pattern(path: str) -> str:
    """Return a pattern: `DEV/ports/N/rate` is below the folder of the class."""
    home = HOMES.get(path.partition("/")[0], "")
    return home + _NAME.sub("*", path)
