"""What holds for all formats of `fleet export`: goldens, order, and names that attack."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agent.encode import is_subdomain, is_value
from agent.fleet.command import EXPORTS
from agent.fleet.exports import FORMATS
from agent.fleet.exports.topology import topology
from agent.fleet.model import Fleet
from tests.support.wired_fleets import NAMING, flat, fleet, hostile, node, tall

FLEETS: dict[str, Callable[[], Fleet]] = {"flat": flat, "tall": tall}
MANIFESTS = ("kueue", "slurm-yaml")
SCHEDULERS = ("slurm", "slurm-block", *MANIFESTS)
ATTACKS = (
    "\nSwitchName=evil Nodes=gpu-001",
    '"\n---\nkind: Secret',
    *("],[evil", "#", "\\", "-->", "]]>", "</node><node id='evil'/>"),
    '"; evil -- "',
    "\x1b[2J\u202e\u2028",
    "\ud800",
    "\0",
    "${evil}",
    ",evil=1:evil",
)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("which", FLEETS)
def test_golden(repository: Path, update_golden: bool, name: str, which: str) -> None:
    """Every format prints two fleets as reviewed: one with leaf groups only, one with the site's
    levels and NVLink domains.
    """
    path = repository / f"tests/unit/fleet/exports/golden/{which}/{name}.txt"
    text = FORMATS[name](FLEETS[which](), NAMING, ()).text
    if update_golden:
        path.write_text(text)
    assert text == path.read_text()


def test_every_format_is_offered_and_documented(repository: Path) -> None:
    """It is an argument of the command, and has a row in docs/exports.md."""
    text = (repository / "docs/exports.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)
    assert {*EXPORTS} == {*rows} == FORMATS.keys()


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_to_export(name: str) -> None:
    """The text is empty if no Node can be exported, and a note has the reason."""
    exported = FORMATS[name](fleet([node("gpu-001", None)]), NAMING, ())
    assert exported.text == ""
    assert "gpu-001" in " ".join(exported.notes)
    assert FORMATS[name](fleet([]), NAMING, ()).text == ""


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_node_without_a_group_is_said(name: str) -> None:
    exported = FORMATS[name](flat(), NAMING, ())
    comments = [line for line in exported.text.splitlines() if line.startswith("# ")]
    (note,) = (note for note in exported.notes if "gpu-009" in note)
    assert f"# {note}" in comments
    assert f"{NAMING.prefix}/leafgroup.current" in note


@pytest.mark.parametrize("text", ATTACKS)
@pytest.mark.parametrize("name", FORMATS)
def test_hostile_names(name: str, text: str) -> None:
    """A hostile name adds no line to a format, and nothing that does not print."""
    exported = FORMATS[name](hostile(text), NAMING, ())
    assert all(note.isprintable() for note in exported.notes)
    assert all(line.isprintable() for line in exported.text.split("\n"))
    exported.text.encode()
    plain = FORMATS[name](hostile("~"), NAMING, ()).text
    assert len(exported.text.split("\n")) == len(plain.split("\n"))
    if name in MANIFESTS:  # the objects are those of the good Nodes
        assert keys(documents(exported.text)) == keys(documents(plain))


@pytest.mark.slow
@given(st.text(max_size=30))
def test_any_text(text: str) -> None:
    for name in MANIFESTS:
        assert documents(FORMATS[name](hostile(text), NAMING, ()).text)


@given(st.lists(st.tuples(st.text(max_size=70), st.text(max_size=70)), max_size=6))
def test_what_is_exported_is_valid_in_kubernetes(pairs: list[tuple[str, str]]) -> None:
    """No name of Node or group that Kubernetes would refuse reaches a scheduler."""
    exported = topology(fleet(node(name, group) for name, group in pairs), NAMING)
    assert all(is_subdomain(one.name) for one in exported.nodes)
    assert all(is_value(group.value) for group in exported.groups)


def documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


def keys(found: Any) -> Any:
    """Return documents without their texts."""
    if isinstance(found, dict):
        return {str(key): keys(value) for key, value in found.items()}
    return [keys(one) for one in found] if isinstance(found, list) else type(found)


def test_the_names_of_the_formats() -> None:
    assert all(a < b for a, b in itertools.pairwise(FORMATS))
