"""The subnet administrator's answers in a snapshot, as they are and anonymized."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.host import Host
from agent.infiniband import sa
from agent.infiniband.anonymize import anonymized, by_sa
from agent.infiniband.devices import SubnetPort
from agent.infiniband.smp import Exchange
from agent.infiniband.snapshot import load, record
from agent.model import IbNeighbor
from agent.snapshot.anonymize import Names
from agent.snapshot.tree import MemoryStore, SnapshotFiles, Tree
from tests.support import smps
from tests.support.sas import LEAF, exchanges

PORT = SubnetPort("mlx5_0", 1, 22, 9, 0, 0)
GUIDS = ("b0cf0e0300d66c80", "b0cf0e0300d66c81", "b0cf0e0300d66c82")


def answer(**changes: Any) -> dict[str, Any]:
    return smps.answer(**{"exchanges": exchanges(), **changes})


def neighbor(entry: dict[str, Any]) -> IbNeighbor:
    return sa.replay(map(Exchange.from_json, entry["exchanges"]))


def test_a_record_is_loaded_as_it_was() -> None:
    """The file is named after the port that asked."""
    host = Host(Tree(MemoryStore({}), {}), lambda: 0.0, ask_sa=lambda _ports: {"ports": [answer()]})
    recorded, fields = record(host)
    assert fields["ask_sa"]([PORT]) == {"ports": [answer()]}
    files = {name: data for name, data in recorded.files().items() if data}
    assert [*files] == ["sa/mlx5_0-1.json"]
    loaded = load(SnapshotFiles(MemoryStore(files)), {})
    assert loaded.replayed()["ask_sa"]([PORT, PORT._replace(number=2)]) == {"ports": [answer()]}


@pytest.mark.parametrize(
    ("lid", "error", "text"),
    [
        (22, None, None),
        (23, "sa-foreign", "mlx5_0 port 1: the record is of LID 22, the port has LID 23"),
    ],
)
def test_a_record_of_another_lid_is_no_answer(lid: int, error: str | None, text: str) -> None:
    """The port moved between: the link of the LID that it had may be any port's now."""
    files = {"sa/mlx5_0-1.json": json.dumps(answer()).encode()}
    loaded = load(SnapshotFiles(MemoryStore(files)), {})
    [found] = loaded.ask_sa([PORT._replace(lid=lid)])["ports"]
    assert (found["error"], found["text"]) == (error, text)
    assert bool(found["exchanges"]) == (error is None)


@pytest.mark.parametrize("exchanges", [[], 5, [{}], [{"request": "zz"}], [{"request": "00"}]])
def test_a_record_without_its_lid_is_left_to_the_decoder(exchanges: Any) -> None:
    """It says what is wrong with it."""
    files = {"sa/mlx5_0-1.json": json.dumps(answer(exchanges=exchanges)).encode()}
    loaded = load(SnapshotFiles(MemoryStore(files)), {})
    assert loaded.ask_sa([PORT])["ports"] == [answer(exchanges=exchanges)]


def test_names_are_replaced_and_ports_kept() -> None:
    """GUIDs and the name of the switch; its model, the port and the type are left."""
    hidden = anonymized(answer(), Names(), by_sa)
    text = json.dumps(hidden)
    assert not any(guid in text for guid in GUIDS)
    assert b"L90.1.3".hex() not in text
    found = neighbor(hidden)
    assert (found.node_type, found.port, found.via) == ("switch", 3, "sa")
    assert found.node_guid != LEAF.node_guid
    assert str(found.node_description).endswith(":MQM9700/U1")
    assert neighbor(answer()) == LEAF


def test_what_does_not_follow_the_format_is_left_out() -> None:
    """It may contain anything."""
    strange = [{"request": "00" * 256, "reply": None, "error": None}]
    hidden = anonymized(answer(exchanges=strange), Names(), by_sa)
    assert (hidden["exchanges"], hidden["error"]) == ([], "malformed")


def test_a_reply_that_is_none_is_left_out() -> None:
    """With its reason in place of its octets."""
    strange = exchanges()[0] | {"reply": "ff" * 300}
    [one] = anonymized(answer(exchanges=[strange], error="malformed"), Names(), by_sa)["exchanges"]
    assert (one["reply"], one["error"]) == (None, "malformed")
