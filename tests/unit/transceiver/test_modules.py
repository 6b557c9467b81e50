"""The modules of backend ports: their rows, and their part of a snapshot."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from agent.check import Step, absent, missing
from agent.errors import Malformed, Unavailable
from agent.model import ethernet_netdevs
from agent.output.table import _modules
from agent.recorded_answer import NO_MODULES
from agent.shell.doctor import lines
from agent.snapshot.anonymize import anonymize
from agent.snapshot.capture import entries, record, summary, write_folder
from agent.snapshot.replay import replay
from agent.sources.observe import observe
from agent.transceiver.modules import AS_NOBODY, NO_NETDEV, NOT_ASKED, checks, rows
from agent.transceiver.modules import INFINIBAND as MLXLINK
from tests.support.transceivers import DR8, SR4

ROCE, INFINIBAND = "bond-roce", "dgx-h100"


def answer(netdev: str, pages: dict[str, bytes], error: str | None = None) -> dict[str, Any]:
    return {"netdev": netdev, "pages": {name: page.hex() for name, page in pages.items()}} | {
        "error": error
    }


def asked(names: Sequence[str]) -> dict[str, Any]:
    """Return the answer of a helper: a module, an empty cage, a page that ends early."""
    kinds: list[tuple[dict[str, bytes], str | None]] = [
        (SR4, None),
        ({}, "Input/output error"),
        ({**DR8, "11h": DR8["11h"][:60]}, None),
        (DR8, None),
    ]
    return {"modules": [answer(name, *kinds[at % 4]) for at, name in enumerate(names)]}


def test_each_port_has_a_row_or_a_line(repository: Path) -> None:
    observation = observe(replay(str(repository / "sysfs_fixtures" / ROCE)))
    names = ethernet_netdevs(observation.backend)
    assert len(names) == 4
    described, problems = rows(observation, asked)
    assert problems == []
    schema = json.loads((repository / "docs/probe.schema.json").read_text())
    jsonschema.validate(described, schema["properties"]["modules"])
    lines = [line.partition(": ")[2] for line in _modules(described)]
    assert lines[0] == (
        "QSFP28 Mellanox MMA1B00-SS1 MT1834FT03846, 39.5 C, rx dark dark dark dark dBm, "
        "tx dark dark dark dark dBm, rx loss of signal: lanes 1 2 3 4, tx loss of signal: "
        "lanes 1 2 3 4, rx power low alarm: lanes 1 2 3 4, rx power low warning: lanes 1 2 3 4"
    )
    assert lines[1:3] == ["Input/output error", "page 11h has 60 of 128 octets"]
    assert lines[3] == (
        "OSFP JUNIPER-1G1 740-174932 1G1TK1AA350AZ, 57.9 C, rx 2.3 2.3 3.2 2.3 2.2 2.9 0.3 1.8 "
        "dBm, tx 2.9 1.7 1.8 1.3 2.5 0.7 2.7 1.8 dBm"
    )


def test_infiniband_needs_mlxlink(repository: Path) -> None:
    """No module is asked for there."""
    observation = observe(replay(str(repository / "sysfs_fixtures" / INFINIBAND)))
    described, problems = rows(observation, lambda _names: pytest.fail("asked"))
    assert problems == []
    assert len(described) == 8
    pci = observation.backend[0].device.pci
    text = f"InfiniBand: no network device gives its module; run mlxlink -d {pci} -m"
    assert described[0]["error"] == text


def test_a_port_whose_network_device_is_away_is_no_infiniband(repository: Path) -> None:
    """Two of the four are in pods."""
    observation = observe(replay(str(repository / "sysfs_fixtures/lent-to-pod")))
    described, _ = rows(observation, asked)
    assert [row["error"] for row in described if not row["netdev"]] == [NO_NETDEV] * 2


def refused(names: Sequence[str]) -> dict[str, Any]:
    """Return the answer to a user without CAP_NET_ADMIN."""
    return {"modules": [answer(name, {}, "Operation not permitted") for name in names]}


def test_without_privilege_there_is_one_line(repository: Path) -> None:
    """InfiniBand ports have theirs all the same."""
    observation = observe(replay(str(repository / "sysfs_fixtures/dgx-h100"), (), ("*",)))
    described, problems = rows(observation, refused)
    assert [problem.text for problem in problems] == [AS_NOBODY]
    assert [row["interface"] for row in described] == [
        role.interface for role in observation.backend if role.port.link_layer == "InfiniBand"
    ]


def test_a_capture_without_privilege_says_so(repository: Path, tmp_path: Path) -> None:
    """What else was read is captured, and the replay has the same line."""
    host = replay(str(repository / "sysfs_fixtures" / ROCE))._replace(modules=refused)
    journal, _ = record(host, modules=True)
    assert summary(anonymize(journal)).endswith(f", --modules ({AS_NOBODY})")
    write_folder(entries(journal), str(tmp_path / "node"))
    replayed = replay(str(tmp_path / "node"))
    assert [problem.text for problem in rows(observe(replayed), replayed.modules)[1]] == [AS_NOBODY]


SR4_LINE = (
    "missing  modules     {0}: rx loss of signal: lanes 1 2 3 4, tx loss of signal: lanes 1 2 3 4, "
    "rx power low alarm: lanes 1 2 3 4, rx power low warning: lanes 1 2 3 4; run: bwagent probe "
    "--modules"
)
LINES = [
    "ok       modules     1 transceiver without an alarm",
    "-        modules     {1}: Input/output error",
    "-        modules     {2}: page 11h has 60 of 128 octets",
    SR4_LINE,
]
REFUSED = f"missing  modules     {AS_NOBODY}; run: sudo bwagent doctor --modules"
EIGHT = f"-        modules     {', '.join(f'{{{at}}}' for at in range(8))}: "


@pytest.mark.parametrize(
    ("machine", "query", "expected"),
    [
        (ROCE, asked, LINES),
        (ROCE, refused, [REFUSED]),
        (INFINIBAND, asked, [EIGHT + MLXLINK.format("PCI-ADDRESS")]),
    ],
)
def test_lines_of_doctor(
    repository: Path, machine: str, query: Callable[[Sequence[str]], Any], expected: list[str]
) -> None:
    observation = observe(replay(str(repository / "sysfs_fixtures" / machine)))
    names = [role.interface for role in observation.backend]
    found = lines(("modules", check) for check in checks(observation, query))
    assert found == [line.format(*names) for line in expected]


def test_modules_that_an_answer_lacks_are_one_line_of_doctor(repository: Path) -> None:
    """As of a capture in which the roles were others."""
    observation = observe(replay(str(repository / "sysfs_fixtures" / ROCE)))
    found = [*checks(observation, lambda _names: {"modules": []})]
    names = ", ".join(role.interface for role in observation.backend)
    assert found == [absent(f"{names}: {NOT_ASKED}")]


def test_doctor_of_a_capture_without_modules(repository: Path) -> None:
    """It is no fault of the node."""
    host = replay(str(repository / "sysfs_fixtures" / ROCE))
    assert [*checks(observe(host), host.modules)] == [absent(NO_MODULES)]


def unavailable(_names: Sequence[str]) -> Any:
    raise Unavailable("no answer within 15 seconds")


def test_a_helper_without_answer_is_a_fault(repository: Path) -> None:
    observation = observe(replay(str(repository / "sysfs_fixtures" / ROCE)))
    (check,) = checks(observation, unavailable)
    assert check == missing(Step.DRIVER, "no answer within 15 seconds", "dmesg")


@pytest.mark.parametrize(
    "modules",
    [None, {}, [1], [{"netdev": 1}], [{"netdev": "a", "pages": {"lower": "xx"}}], [{}] * 65],
)
def test_a_malformed_answer_is_one_line(repository: Path, modules: Any) -> None:
    observation = observe(replay(str(repository / "sysfs_fixtures" / ROCE)))
    described, problems = rows(observation, lambda _names: {"modules": modules})
    assert described == []
    assert [problem.text.startswith("modules.json: ") for problem in problems] == [True]


def captured(repository: Path, folder: Path, *, anonymized: bool = False) -> str:
    host = replay(str(repository / "sysfs_fixtures" / ROCE))._replace(modules=asked)
    journal, _ = record(host, modules=True)
    journal = anonymize(journal) if anonymized else journal
    write_folder(entries(journal), str(folder))
    return str(folder)


def test_a_capture_replays_the_modules(repository: Path, tmp_path: Path) -> None:
    host = replay(captured(repository, tmp_path / "node"))
    observation = observe(host)
    assert rows(observation, host.modules) == rows(observation, asked)


def test_an_anonymized_capture_has_other_serials(repository: Path, tmp_path: Path) -> None:
    """Nothing else of the modules changes, but what only the vendor can read."""
    host = replay(captured(repository, tmp_path / "node", anonymized=True))
    described, _ = rows(observe(host), host.modules)
    whole, _ = rows(observe(host), asked)
    kept = [row | {"serial": None} for row in described]
    assert kept == [row | {"serial": None} for row in whole]
    assert [row["serial"] and row["serial"][:7] for row in described] == [
        *("serial-", None, None, "serial-"),
    ]
    text = (tmp_path / "node/modules.json").read_text()
    assert b"MT1834FT03846".hex() not in text
    assert b"826FMA226I0115".hex() not in text


def test_a_capture_without_modules_says_so(repository: Path) -> None:
    host = replay(str(repository / "sysfs_fixtures" / ROCE))
    with pytest.raises(Unavailable, match=NO_MODULES):
        host.modules(["eth0"])
    _, (problem,) = rows(observe(host), host.modules)
    assert problem.text == NO_MODULES


def test_a_malformed_file_refuses_the_snapshot(repository: Path, tmp_path: Path) -> None:
    folder = captured(repository, tmp_path / "node")
    (tmp_path / "node/modules.json").write_text('{"modules": 1}')
    with pytest.raises(Malformed, match=r"modules\.json: no list of at most 64 modules"):
        replay(folder)
