"""The subnet administrator's answers in a snapshot, as they are and anonymized."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.errors import Malformed, Unavailable
from agent.host import Host
from agent.infiniband import sa
from agent.infiniband.anonymize import anonymized, by_sa
from agent.infiniband.devices import SubnetPort
from agent.infiniband.smp import Exchange
from agent.infiniband.snapshot import RecordedSmps
from agent.model import IbNeighbor
from agent.snapshot.anonymize import Names
from agent.snapshot.tree import MemoryStore, SnapshotFiles, Tree
from tests.support import smps
from tests.support.sas import CABLES, LEAF, Administrator, exchanges

PORT = SubnetPort("mlx5_0", 1, 22, 9, 0, 0)
GUIDS = ("b0cf0e0300d66c80", "b0cf0e0300d66c81", "b0cf0e0300d66c82")


def answer(**changes: Any) -> dict[str, Any]:
    return smps.answer(**{"exchanges": exchanges(), **changes})


def neighbor(entry: dict[str, Any]) -> IbNeighbor:
    return sa.replay(map(Exchange.from_json, entry["exchanges"]))


def test_a_record_is_loaded_as_it_was() -> None:
    """The file is named after the port that asked."""
    host = Host(Tree(MemoryStore({}), {}), lambda: 0.0, ask_sa=lambda _ports: {"ports": [answer()]})
    recorded, taped = RecordedSmps.record(host)
    assert taped.ask_sa([PORT]) == {"ports": [answer()]}
    files = {name: data for name, data in recorded.files().items() if data}
    assert [*files] == ["sa/mlx5_0-1.json"]
    loaded = RecordedSmps.load(SnapshotFiles(MemoryStore(files)), {})
    replayed = loaded.replayed(host)
    assert replayed.ask_sa([PORT, PORT._replace(number=2)]) == {"ports": [answer()]}


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
    loaded = RecordedSmps.load(SnapshotFiles(MemoryStore(files)), {})
    [found] = loaded.ask_sa([PORT._replace(lid=lid)])["ports"]
    assert (found["error"], found["text"]) == (error, text)
    assert bool(found["exchanges"]) == (error is None)


@pytest.mark.parametrize("exchanges", [[], 5, [{}], [{"request": "zz"}], [{"request": "00"}]])
def test_a_record_without_its_lid_is_left_to_the_decoder(exchanges: Any) -> None:
    """It says what is wrong with it."""
    files = {"sa/mlx5_0-1.json": json.dumps(answer(exchanges=exchanges)).encode()}
    loaded = RecordedSmps.load(SnapshotFiles(MemoryStore(files)), {})
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


ADMINISTRATOR = Administrator(*CABLES)
ASKED = [ADMINISTRATOR.port("leaf1")]


def explored() -> RecordedSmps:
    """The record of an exploration."""
    root = Tree(MemoryStore({}), {})
    recorded, taped = RecordedSmps.record(Host(root, lambda: 0.0, explore=ADMINISTRATOR.explore))
    assert taped.explore
    assert taped.explore(ASKED, None, {}) == ADMINISTRATOR.explore(ASKED)
    return recorded


def reloaded(recorded: RecordedSmps) -> RecordedSmps:
    """The record as it is loaded from its files."""
    files = {name: data for name, data in recorded.files().items() if data}
    assert [*files] == ["sa/tiers.json"]
    return RecordedSmps.load(SnapshotFiles(MemoryStore(files)), {})


def test_an_exploration_replays_to_the_same_tiers() -> None:
    """Its questions are in a file of their own; a host that does not explore records none."""
    host = Host(Tree(MemoryStore({}), {}), lambda: 0.0)
    replayed = reloaded(explored()).replayed(host)
    assert replayed.explore
    assert replayed.explore(ASKED, None, {}) == ADMINISTRATOR.explore(ASKED)
    assert RecordedSmps.record(host)[1].explore is None


def test_an_anonymized_exploration_has_the_same_switches_under_other_names() -> None:
    """The lowest of a tier is the same one; no name is left."""
    names = Names()
    hidden = reloaded(explored().anonymized(names))
    [[port, leaf]] = ASKED
    again = names.guid(bytes.fromhex(leaf)).hex()
    tiers, *_ = hidden.explore([(port._replace(device=names.text(port.device)), again)])
    truth, *_ = ADMINISTRATOR.explore(ASKED)
    assert [names.peers["spine1"], names.peers["core1"]] == [tiers.label(1), tiers.label(2)]
    assert (len(tiers.tier_1), len(tiers.paths)) == (len(truth.tier_1), len(truth.paths))
    text = b"".join(filter(None, hidden.files().values())).decode()
    assert not any(name.encode().hex() in text for name in ADMINISTRATOR.lids)
    assert truth.tier_1[0] not in text


def test_an_exploration_without_records_is_not_recorded() -> None:
    with pytest.raises(Unavailable, match="ib-leaf1 port 1: not-recorded"):
        RecordedSmps.load(SnapshotFiles(MemoryStore({})), {}).explore(ASKED)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"ports": 5}, "sa/tiers.json: 'ports' is no list"),
        ({"ports": [5]}, "sa/tiers.json: no answer of a port: 'device' is no text"),
        ({"ports": [{"device": "x"}]}, "sa/tiers.json: no answer of a port: 'port' is no number"),
    ],
)
def test_a_malformed_exploration_is_refused(content: Any, text: str) -> None:
    files = {"sa/tiers.json": json.dumps(content).encode()}
    with pytest.raises(Malformed, match=text):
        RecordedSmps.load(SnapshotFiles(MemoryStore(files)), {})
