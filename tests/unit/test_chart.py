"""The chart is equal to its schema, to the manifests that it has copies of, and to the agent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from agent.commands import run
from agent.encode import tier_keys
from agent.errors import Malformed
from agent.options import Duration
from tests.support.documents import between
from tests.support.helm.chart import CHART
from tests.support.helm.values import SCHEMA, as_yaml, leaves, table, values
from tests.support.kube.manifests import MANIFESTS

# A chart cannot read what lies outside its folder.
COPIES = {
    "policy.yaml": MANIFESTS / "base/policy.yaml",
    "rules.yaml": MANIFESTS / "monitoring/rules.yaml",
    "dashboard.json": MANIFESTS / "monitoring/dashboard.json",
}
# Kubernetes' own types, of which helm's users write a part: there a typo is a warning of helm's.
FREE = {"from", "to", "nodeAffinity", "podAffinity", "podAntiAffinity", "valueFrom"}
FREE |= {"extraVolumes", "extraVolumeMounts"}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_is_its_original(name: str, update_golden: bool) -> None:
    """files/ has what the manifests have, byte by byte."""
    copy, original = CHART / "files" / name, COPIES[name]
    if update_golden and original.exists():
        copy.write_bytes(original.read_bytes())
    assert copy.exists() == original.exists()
    assert not copy.exists() or copy.read_bytes() == original.read_bytes()


def test_no_file_without_original() -> None:
    assert {path.name for path in (CHART / "files").iterdir()} <= COPIES.keys()


def test_values_are_those_of_the_schema(update_golden: bool) -> None:
    """values.yaml has every default below its description."""
    path = CHART / "values.yaml"
    if update_golden:
        path.write_text(as_yaml())
    assert path.read_text() == as_yaml()
    found = yaml.safe_load(path.read_text())
    for one in leaves():
        value = found
        for key in one.path:
            value = value[key]
        assert value == one.schema["default"]


def test_the_table_of_values(update_golden: bool) -> None:
    """The README has a row for each value: default and description."""
    path, begin = CHART / "README.md", "| value | default | meaning |\n|---|---|---|\n"
    assert between(path, begin, "\n## ", table(), update=update_golden) == table()


def objects(schema: object, name: str = "") -> Iterator[tuple[str, dict[str, object]]]:
    """Yield every schema of an object, with its name."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield name, schema
        for key, value in schema.items():
            yield from objects(value, name if key in {"items", "properties"} else str(key))


def test_a_typo_is_an_error() -> None:
    """No object has names but those of the schema, unless it is a map or Kubernetes' own type."""
    (globals_,) = (row for name, row in objects(SCHEMA) if name == "global")
    for name, schema in objects(SCHEMA):
        more = schema.get("additionalProperties")
        is_closed = more is False or isinstance(more, dict)
        assert is_closed or name in FREE or schema is globals_, name


def test_every_value_is_required() -> None:
    """`helm upgrade --reuse-values` from a chart without a value is an error that names it."""
    groups = [SCHEMA, *(one.schema for one in values() if one.is_group)]
    for group in groups:
        assert set(group["required"]) == group["properties"].keys() - {"global"}


def test_the_schema_is_json(repository: Path) -> None:
    """The schema is written as json.dumps() writes it, so that a diff shows what changed."""
    path = repository / "manifests/chart/values.schema.json"
    assert path.read_text() == json.dumps(SCHEMA, indent=2) + "\n"


def test_the_bounds_of_times_are_the_agents(update_golden: bool) -> None:
    """The chart refuses what the agent would refuse on each node."""
    flags = sorted((str(flag.name), flag.type) for flag in run.params)
    truth = " ".join(
        f'"{re.sub("_(.)", lambda part: part[1].upper(), name)}" {kind.least:g}'
        for name, kind in flags
        if isinstance(kind, Duration)
    )
    path, begin = CHART / "templates/_faults.tpl", "$least := dict "
    assert between(path, begin, " }}\n", truth, update=update_golden) == truth


PARTS = st.sampled_from(
    ["", "a", "a.b", "tier-", "x", "{n}", "{a,b,c}", "{a,,c}", "{a,b}", "/", "{"]
)


@given(st.lists(PARTS, max_size=6).map("".join))
@example("a.{b,c,d}/tier")
@example("a.b/tier{,x,y}")
@example("a.b/x-{n}.current")
def test_patterns_of_tiers_are_those_of_the_agent(pattern: str) -> None:
    """Its keys are checked by the agent alone: their ends, their length, that they differ."""
    is_valid = re.search(SCHEMA["properties"]["tierLabel"]["pattern"], pattern) is not None
    fault = ""
    try:
        tier_keys(pattern)
    except Malformed as error:
        fault = str(error)
    assert "name part" in fault or is_valid == (not fault or not pattern)
