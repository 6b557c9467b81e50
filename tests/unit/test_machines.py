"""A machine is a test: every folder of sysfs_fixtures/ is replayed."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from agent.output.formats import FORMATS
from agent.output.layout import WIDTH
from agent.output.table import render
from tests.support.machines import MACHINES, document_of
from tests.support.trees import parse

every_machine = pytest.mark.parametrize("machine", MACHINES, ids=lambda path: path.name)
SCHEMA = jsonschema.Draft202012Validator(
    json.loads((Path(__file__).parents[2] / "docs/probe.schema.json").read_text())
)


@cache
def document(machine: Path) -> dict[str, Any]:
    """The document of a machine; no package of the extras can be imported, as without them."""
    with pytest.MonkeyPatch.context() as patched:
        for package in ("scapy", "backports.zstd"):
            patched.setitem(sys.modules, package, None)
        return document_of(machine)


@pytest.mark.slow
@every_machine
def test_labels(machine: Path, update_golden: bool) -> None:
    """A machine has the labels that were worked out for it from the contract."""
    labels = FORMATS["labels"](document(machine))
    golden = machine / "expected.labels"
    if update_golden:
        golden.write_text(labels)
    assert labels == golden.read_text()


def evidence(document: dict[str, Any]) -> str:
    """A line for each piece of evidence: role, rule, distance to a GPU, words, and the ports."""
    ports: defaultdict[str, list[str]] = defaultdict(list)
    for port in document["ports"]:
        found = port["evidence"]
        facts = port["role"], found["rule"], found["distance"] or "-", found["text"]
        ports["\t".join(facts)].append(port["interface"])
    return "".join(f"{line}\t{' '.join(names)}\n" for line, names in sorted(ports.items()))


@pytest.mark.slow
@every_machine
def test_evidence(machine: Path, update_golden: bool) -> None:
    """The rule that decided about each port, and its words."""
    found = evidence(document(machine))
    golden = machine / "expected.evidence"
    if update_golden:
        golden.write_text(found)
    assert found == golden.read_text()


@pytest.mark.slow
@every_machine
def test_document_follows_its_schema(machine: Path) -> None:
    SCHEMA.validate(document(machine))


@every_machine
def test_table_fits_the_terminal(machine: Path) -> None:
    """No line of the table is wider than 80 columns, and color adds no word."""
    plain, colored = (render(document(machine), color=color) for color in (False, True))
    assert max(map(len, plain.splitlines())) <= WIDTH
    for code in ("\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m"):
        colored = colored.replace(code, "")
    assert colored == plain


@every_machine
def test_every_port_has_its_reason(machine: Path) -> None:
    """Every port has a reason for its role, and the names of backend ports are distinct."""
    ports = document(machine)["ports"]
    assert all(port["reason"] for port in ports)
    backend = [port["interface"] for port in ports if port["role"] == "backend"]
    assert len(set(backend)) == len(backend)


@every_machine
def test_readme_names_its_source(machine: Path) -> None:
    text = (machine / "README.md").read_text()
    assert len(text.splitlines()) > 5
    assert "source" in text.lower()
    assert "proves" in text.lower()


@pytest.mark.slow
@pytest.mark.parametrize(
    "machine",
    [machine for machine in MACHINES if (machine / "tree.txt").exists()],
    ids=lambda path: path.name,
)
def test_a_tree_is_that_of_its_description(machine: Path) -> None:
    """The files of a machine with a tree.txt are those that tests/support/trees.py makes of it."""
    tree = parse(machine.name, (machine / "tree.txt").read_text())
    found = [path for top in ("sys", "proc") for path in (machine / top).rglob("*")]
    links = {path for path in found if path.is_symlink()}
    files = {path for path in found if path.is_file()} - links
    notes = {machine / name for name in ("errors.json", "host.json", "meta.json")}
    texts = {str(path.relative_to(machine)): path.read_text() for path in files | notes}
    assert texts == tree.contents()
    assert {str(path.relative_to(machine)): str(path.readlink()) for path in links} == tree.links


@pytest.mark.parametrize(
    "name", ["dgx-h100", "gb200-nvl72", "hgx-b200-nvswitch", "lent-to-pod", "soft-roce"]
)
def test_a_healthy_machine_has_no_problem(name: str, repository: Path) -> None:
    """A machine without faults; boards whose NVLink ends in the chassis are in no domain."""
    assert document(repository / "sysfs_fixtures" / name)["problems"] == []


def test_the_hardware_page_has_every_machine(repository: Path) -> None:
    """docs/hardware.md has one row per folder, in the order of their names, with its labels."""
    lines = (repository / "docs/hardware.md").read_text().splitlines()
    row = re.compile(r"\| \[(.+)\]\(\.\./sysfs_fixtures/\1/README\.md\) \|.*\| (.+) \| .+ \|")
    found = {match[1]: match[2] for match in map(row.fullmatch, lines) if match}
    assert list(found) == [machine.name for machine in MACHINES]
    for machine in MACHINES:
        lines = (machine / "expected.labels").read_text().splitlines()
        labels = dict(line.split("=", 1) for line in lines)
        flavor, speed = (
            labels.get(f"backend.coreweave.cloud/{key}") for key in ("flavor", "speed.current")
        )
        assert found[machine.name] == (f"{flavor or 'none'}, {speed}" if speed else "no label")


def test_there_are_enough_machines() -> None:
    """The number of captured machines does not shrink unnoticed."""
    assert len(MACHINES) >= 94


def test_the_index_lists_every_machine(repository: Path) -> None:
    """sysfs_fixtures/README.md has one row per folder, in the order of their names."""
    lines = (repository / "sysfs_fixtures/README.md").read_text().splitlines()
    rows = [re.fullmatch(r"\| \[(.+)\]\(\1\) \| (.+) \| (.+) \|", line) for line in lines]
    assert [row[1] for row in rows if row] == [machine.name for machine in MACHINES]
