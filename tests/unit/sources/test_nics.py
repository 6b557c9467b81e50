"""What the drivers of NICs told: which NICs are asked about, and how it is shown and replayed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema

from agent.check import Step, missing
from agent.errors import Pending, Unavailable
from agent.host import Host
from agent.model import Absent, Failed, Problem, Seen
from agent.output.document import Choices, document
from agent.output.explain import speed
from agent.output.table import render
from agent.snapshot.anonymize import anonymize
from agent.snapshot.capture import entries, record, write_folder
from agent.snapshot.replay import replay
from agent.snapshot.tree import MemoryStore, Tree
from agent.sources.checks import of_nics
from agent.sources.observe import observe, read_nics
from tests.support.devices import assign, eth, ib, netdev, port
from tests.support.observations import around
from tests.support.remembering import alone

SCHEMA = json.loads(Path("docs/probe.schema.json").read_text())
MACHINE = "sysfs_fixtures/h200-roce"
FAULT = "its driver reports fw_fatal in error (2 errors)"


def answer(netdev: str, device: str) -> dict[str, Any]:
    """A link without a cable, and a NIC with a reporter in error and firmware to load."""
    return {
        "links": [
            {"netdev": netdev, "link": 0, "ext_state": 4, "ext_substate": 0, "ext_down_cnt": 3},
            {"netdev": "eno1", "link": 0, "ext_state": 4, "ext_substate": 0},
        ],
        "devices": [
            {
                "device": device,
                "driver": "mlx5_core",
                "reporters": [
                    {"name": "fw", "state": 0, "errors": 0, "recoveries": 0},
                    {"name": "fw_fatal", "state": 1, "errors": 2, "recoveries": 1},
                ],
                "running": [{"name": "fw.version", "value": "28.39.1002"}],
                "stored": [{"name": "fw.version", "value": "28.42.1000"}],
            },
            {"device": "0000:ff:00.0"},
        ],
        "errors": [],
    }


def host(ask: Any = None) -> Host:
    return Host(Tree(MemoryStore({}), {}), lambda: 0.0, ask_nics=ask)


def roles() -> tuple[Any, ...]:
    return assign([eth("mlx5_0", 0x18, port(netdev=netdev("eth0"))), ib("ibp0", 0x2A)])


def test_the_netdevs_of_ethernet_ports_are_asked_about() -> None:
    """All in one question; NICs that are no backend are left out of the answer."""
    asked: list[str] = []
    ports = roles()

    def ask(netdevs: Sequence[str]) -> dict[str, Any]:
        asked.extend(netdevs)
        return answer("eth0", "0000:18:00.0")

    outcome, problems = read_nics(host(ask), ports)
    backend = [role.port.netdev for role in ports if role.backend and role.port.netdev]
    assert asked == [netdev.name for netdev in backend if netdev.name == "eth0"]
    assert isinstance(outcome, Seen)
    assert "eno1" not in outcome.value.links
    assert "0000:ff:00.0" not in outcome.value.health
    assert problems == ()


def test_failures() -> None:
    """A helper that fails, a first answer that is awaited, an answer that is none."""

    def failing(error: Exception) -> Any:
        def ask(_netdevs: Sequence[str]) -> dict[str, Any]:
            raise error

        return ask

    assert read_nics(host(failing(Unavailable("late"))), roles()).outcome == Failed("late")
    pending = read_nics(host(failing(Pending("soon"))), roles()).outcome
    assert pending == Failed("soon", pending=True)
    text = "the answer about the NICs is no object of lists"
    assert read_nics(host(lambda _netdevs: {"links": 1}), roles()).outcome == Failed(text)
    assert isinstance(read_nics(host(), roles()).outcome, Absent)
    refused = {"errors": [["eth0", "Operation not permitted"]]}
    assert read_nics(host(lambda _netdevs: refused), roles()).problems == (
        Problem("nics", "eth0", None, "Operation not permitted"),
    )


def test_a_capture_replays_to_the_same_sentences(tmp_path: Path) -> None:
    """Document, table, explain and doctor; also anonymized."""
    machine = replay(MACHINE)
    role = next(role for role in observe(machine).ports if role.backend)
    netdev, pci = role.port.netdev, role.device.pci
    assert netdev
    assert pci
    live = machine._replace(ask_nics=lambda _netdevs: answer(netdev.name, pci))
    recorded, observation = record(live)
    for kind, snapshot in (("plain", recorded), ("anonymized", anonymize(recorded))):
        write_folder(entries(snapshot), str(tmp_path / kind))
        replayed = observe(replay(str(tmp_path / kind)))
        assert replayed.nics == observation.nics
        shown = document(*alone(replayed), Choices())
        jsonschema.validate(shown, SCHEMA)
        row = next(row for row in shown["ports"] if row["pci"] == pci)
        assert row["link_state"]["text"] == "no cable is plugged in"
        assert row["netdev_downs"] == 3
        assert [nic["fault"] for nic in shown["nics"]] == [FAULT]
        text = " ".join(render(shown, color=False).split())
        assert f"{FAULT}, although its link is up" in text
        told = [fact.value for fact in speed(*alone(replayed), None)]
        assert {"no cable is plugged in", "error"} <= {*told}
        assert [*of_nics(around(replayed))][1:] == [
            missing(Step.FIRMWARE, f"{pci}: {FAULT}", f"devlink health show pci/{pci}")
        ]


def test_doctor_names_what_is_missing() -> None:
    """The library, and nothing where the drivers were not asked."""
    observation = observe(replay(MACHINE))
    assert [*of_nics(around(observation))] == []
    failed = observation._replace(nics=Failed("No module named 'pyroute2'"))
    assert [check.missing for check in of_nics(around(failed))] == [Step.LIBRARY]
