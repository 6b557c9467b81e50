"""What ethtool and devlink print, as the answer of the helper."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.errors import Malformed
from agent.nic.driver import LINK_STATES, Firmware, decode
from agent.snapshot.recordings import RecordedNics
from agent.snapshot.tree import MemoryStore, SnapshotFiles

PCI = "0000:18:00.0"
REPORTERS = {
    f"pci/{PCI}": [
        {"reporter": "fw", "state": "healthy", "error": 0, "recover": 0, "auto_dump": True},
        {"reporter": "fw_fatal", "state": "error", "error": 2, "recover": 1, "grace_period": 1},
    ],
    f"pci/{PCI}/65535": [{"reporter": "tx", "state": "healthy", "error": 0, "recover": 0}],
    "netdevsim/netdevsim1": [{"reporter": "dummy", "state": "healthy", "error": 1, "recover": 1}],
}
INFO = {
    f"pci/{PCI}": {
        "driver": "mlx5_core",
        "serial_number": "",
        "versions": {
            "fixed": {"fw.psid": "MT_0000000838"},
            "running": {"fw.version": "28.39.1002", "fw": "28.39.1002"},
            "stored": {"fw.version": "28.42.1000"},
        },
    }
}


def loaded(files: dict[str, str]) -> Any:
    contents = {path: text.encode() for path, text in files.items()}
    return RecordedNics.load(SnapshotFiles(MemoryStore(contents)), {}).answer


def decoded(**links: str) -> tuple[Any, list[tuple[str, str]]]:
    """Decode a link as `decoded(eth0="no (No cable)")`."""
    files = {f"ethtool/{name}.txt": f"\tLink detected: {said}\n" for name, said in links.items()}
    return decode(loaded(files))


def test_what_devlink_prints() -> None:
    files = {"health": {"health": REPORTERS}, "info": {"info": INFO}}
    nics, faults = decode(
        loaded({f"devlink/{name}.json": json.dumps(value) for name, value in files.items()})
    )
    assert faults == []
    nic = nics.health[PCI]
    assert (nic.driver, nic.fault) == (
        "mlx5_core",
        "its driver reports fw_fatal in error (2 errors)",
    )
    assert [(row.name, row.state, row.recoveries, row.port) for row in nic.reporters] == [
        ("fw", "healthy", 0, None),
        ("fw_fatal", "error", 1, None),
        ("tx", "healthy", 0, 65535),
    ]
    assert nic.firmware == (
        Firmware("fw.version", "28.39.1002", "28.42.1000"),
        Firmware("fw", "28.39.1002", None),
    )
    assert nics.health["netdevsim/netdevsim1"].reporters[0].errors == 1


@pytest.mark.parametrize(
    ("said", "state", "substate"),
    [
        ("no (No cable)", "no-cable", None),
        ("no (Autoneg, No partner detected)", "autoneg", "no-partner-detected"),
        (
            "no (Autoneg, No partner detected during force mode)",
            "autoneg",
            "no-partner-detected-force-mode",
        ),
        (
            "no (Link training failure, Remote side is not ready yet)",
            "link-training-failure",
            "remote-fault",
        ),
        (
            "no (Logical mismatch, PCS did not get align_status)",
            "link-logical-mismatch",
            "pcs-did-not-get-align-status",
        ),
        (
            "no (Bad signal integrity, Large number of physical errors)",
            "bad-signal-integrity",
            "large-number-of-physical-errors",
        ),
        ("no (Module, CMIS module is not in ModuleReady state)", "module", "cmis-not-ready"),
        ("no (77, 5)", "unnamed-77", "unnamed-5"),
        ("no", None, None),
        ("yes", None, None),
    ],
)
def test_what_ethtool_prints(said: str, state: str | None, substate: str | None) -> None:
    """The words of its netlink/settings.c, or the number where it has none."""
    nics, faults = decoded(eth0=said)
    assert faults == []
    link = nics.links["eth0"]
    assert (link.is_up, link.state, link.substate) == (said == "yes", state, substate)


def test_each_state_has_its_words() -> None:
    """Words are those of the kernel's name, but for OTHER_WORDS."""
    for number, (name, text) in LINK_STATES.items():
        nics, _ = decoded(eth0=f"no ({name.replace('-', ' ').capitalize()})")
        assert nics.links["eth0"].text == text, number


def test_downs() -> None:
    text = "\tLink detected: yes\n\tLink Down Events: 3\n"
    nics, _ = decode(loaded({"ethtool/eth0.txt": text}))
    assert nics.links["eth0"].downs == 3


def test_words_that_are_not_known_are_a_fault_of_that_netdev() -> None:
    nics, faults = decoded(eth0="no (Gremlins)", eth1="perhaps", eth2="no (No cable)")
    assert faults == [
        ("eth0", "ethtool says 'Gremlins', which is not known here"),
        ("eth1", "ethtool/eth1.txt is not as ethtool prints it"),
    ]
    assert [nics.links[name].state for name in ("eth0", "eth1", "eth2")] == [None, None, "no-cable"]


@pytest.mark.parametrize(
    ("file", "value"),
    [
        ("health", {"health": []}),
        ("health", {"health": {"pci": []}}),
        ("health", {"health": {f"pci/{PCI}": [{"state": "healthy"}]}}),
        ("health", {"health": {f"pci/{PCI}": [{"reporter": "fw", "state": "odd"}]}}),
        ("health", {"health": {f"pci/{PCI}/x": []}}),
        ("info", {"info": {f"pci/{PCI}": []}}),
        ("info", {"info": {f"pci/{PCI}": {"versions": {"running": []}}}}),
    ],
)
def test_another_form_refuses_the_snapshot(file: str, value: Any) -> None:
    with pytest.raises(Malformed, match=rf"^devlink/{file}\.json: not as devlink -j prints it: "):
        loaded({f"devlink/{file}.json": json.dumps(value)})


def test_nothing_printed_is_no_answer() -> None:
    assert loaded({}) is None
    assert loaded({"devlink/other.json": "{}", "ethtool/readme": "x"}) is None
