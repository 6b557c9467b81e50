"""The dashboard is one that Grafana loads; nothing that it shows is made up, and nothing empty is
left unexplained.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.grafana import faults
from tests.support.prometheus import MONITORING, alerts

BOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
NODES_OWN = ("$node", "$leaf")


def set_field(panel: int, *path: str | int, to: object) -> Callable[[dict[str, Any]], None]:
    """Return the change of one field of a panel."""

    def change(board: dict[str, Any]) -> None:
        *groups, last = path
        at = board["panels"][panel]
        for group in groups:
            at = at[group]
        at[last] = to

    return change


def test_grafana_knows_every_field() -> None:
    """Grafana's own types have all of the dashboard, each value with its type."""
    assert faults(BOARD) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        set_field(1, "type", to="statt"),
        set_field(1, "title", to=3),
        set_field(1, "gridPos", "h", to="4"),
        set_field(1, "options", "colourMode", to="none"),
        set_field(1, "options", "colorMode", to="backgrund"),
        set_field(1, "targets", 0, "expression", to="up"),
        set_field(1, "fieldConfig", "defaults", "novalue", to="0"),
        set_field(9, "transformations", 0, "id", to=1),
    ],
)
def test_a_mistake_is_found(change: Callable[[dict[str, Any]], None]) -> None:
    """The judge finds names and values that Grafana does not know."""
    board = copy.deepcopy(BOARD)
    change(board)
    assert faults(board)


def sources(value: Any) -> Iterator[Any]:
    """Yield every data source below a value."""
    if isinstance(value, dict):
        yield from (one for key, one in value.items() if key == "datasource")
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from sources(one)


def test_any_prometheus_is_its_source() -> None:
    """Imported by hand or by the sidecar, it asks the Prometheus that is chosen in it."""
    assert BOARD["templating"]["list"][0]["type"] == BOARD["templating"]["list"][0]["name"]
    assert all(one == SOURCE for one in sources(BOARD))
    assert all(panel["datasource"] == SOURCE for panel in PANELS)
    assert not {"id", "__inputs", "__requires"} & BOARD.keys()


def test_three_views() -> None:
    """Fleet, node and leaf; a panel asks about the node or leaf of its view only."""
    views: dict[str, list[dict[str, Any]]] = {}
    for panel in BOARD["panels"]:
        if panel["type"] == "row":
            views[panel["title"]] = []
        else:
            views[[*views][-1]].append(panel)
    assert [*views] == ["Fleet", "Node $node", "Leaf $leaf"]
    for title, panels in views.items():
        for panel in panels:
            text = json.dumps(panel["targets"])
            assert [name in text for name in NODES_OWN] == [name in title for name in NODES_OWN]


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_a_panel_explains_itself(panel: dict[str, Any]) -> None:
    """It has a description, a text for when it is empty, and a name for each of its lines."""
    assert panel["description"]
    assert panel["fieldConfig"]["defaults"]["noValue"]
    lines = panel["type"] in {"timeseries", "state-timeline"} or len(panel["targets"]) > 1
    for target in panel["targets"]:
        assert target.get("legendFormat") or not lines
        assert target.get("instant", False) is (panel["type"] in {"stat", "table"})


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_a_number_has_its_unit(panel: dict[str, Any]) -> None:
    """Rates are bits, times seconds: what a query returns decides the unit."""
    (first, *_) = (target["expr"] for target in panel["targets"])
    units = {"8 * ": "bps", "time() - ": "s", "max(process_resident_memory_bytes": "bytes"}
    expected = next((unit for head, unit in units.items() if first.startswith(head)), None)
    if "rate(" in first:
        expected = "percentunit" if "cpu" in first else "reqps"
    assert panel["fieldConfig"]["defaults"].get("unit") == expected


def test_no_number_is_made_up() -> None:
    """Without its series a query has no result: a zero of its own would say that all is well."""
    made = [t["expr"] for panel in PANELS for t in panel["targets"] if "vector(" in t["expr"]]
    assert made == []


def links() -> Iterator[tuple[str, str]]:
    """Yield the column and the address of every link."""
    for panel in PANELS:
        for override in panel["fieldConfig"]["overrides"]:
            for row in override["properties"]:
                if row["id"] == "links":
                    yield from (
                        (override["matcher"]["options"], one["url"]) for one in row["value"]
                    )


def test_links_lead_to_a_view() -> None:
    """A node or leaf in a table of the fleet leads to its view, with the same source and time."""
    found = list(links())
    assert {column for column, _ in found} == {"node", "leaf"}
    for column, address in found:
        path, _, query = address.partition("?")
        assert path == f"/d/{BOARD['uid']}"
        chosen = f"var-{column}=${{__value.text:percentencode}}"
        assert query.split("&") == ["${datasource:queryparam}", "${__url_time_range}", chosen]


def test_every_alert_has_its_first_step() -> None:
    """The table of alerts says for each what to do first, in one line."""
    (panel,) = (one for one in PANELS if one["title"] == "Alerts")
    (override,) = (
        one
        for one in panel["fieldConfig"]["overrides"]
        if one["matcher"]["options"] == "first_step"
    )
    (steps,) = (one["value"] for one in override["properties"] if one["id"] == "mappings")
    assert list(steps[0]["options"]) == [rule["alert"] for rule in alerts()]
    assert all(re.fullmatch(".{20,90}", one["text"]) for one in steps[0]["options"].values())
