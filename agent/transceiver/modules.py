"""The transceiver modules of the backend ports: `probe --modules`, `doctor --modules`.

They are read only when a command asks for them, never by the daemon.
"""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from agent.check import AS_ROOT, MAX_NAMED, Check, Step, absent, missing, there
from agent.errors import Malformed, Unavailable
from agent.model import Observation, Problem, ethernet_netdevs
from agent.recorded_answer import NO_MODULES
from agent.text import Json, listed, many
from agent.transceiver.eeprom import Module, decode, loaded

Query = Callable[[Sequence[str]], Json]  # netdevs; returns {"modules": [...]}

ETHERNET = "Ethernet"
SUBJECT = "--modules"
INFINIBAND = "InfiniBand: no network device gives its module; run mlxlink -d {} -m"
NO_NETDEV = "its network device is not in this network namespace"
NOT_ASKED = "its module was not asked for"
NOT_PERMITTED = os.strerror(errno.EPERM)  # the kernel's answer without CAP_NET_ADMIN
AS_NOBODY = "reading transceivers needs CAP_NET_ADMIN (root)"


def rows(observation: Observation, query: Query) -> tuple[list[Json], list[Problem]]:
    """Ask for the modules of the backend ports; return a row for each port, and the problems.

    A problem of all modules leaves the rows of ports that have no network device.
    """
    names = ethernet_netdevs(observation.backend)
    answers: dict[str, Module] = {}
    described, fault = [], None
    try:
        answers = {module.netdev: module for module in loaded(query(names) if names else {})}
    except (Malformed, Unavailable) as error:
        fault = str(error)
    if any(module.error == NOT_PERMITTED for module in answers.values()):
        fault = AS_NOBODY
    problems = [Problem("host", SUBJECT, None, fault)] if fault else []
    for role in observation.backend:
        netdev = role.netdev
        row: Json = {"interface": role.interface, "netdev": netdev and netdev.name}
        if role.port.link_layer != ETHERNET:
            text = INFINIBAND.format(role.device.pci or role.device.name)
            described.append(row | _row(None, text))
        elif netdev is None:
            described.append(row | _row(None, NO_NETDEV))
        elif netdev.name in answers and not problems:
            described.append(row | _decoded(answers[netdev.name]))
        elif not problems:
            described.append(row | _row(None, NOT_ASKED))
    return described, problems


def checks(observation: Observation, query: Query) -> Iterator[Check]:
    """Read the modules for `bwagent doctor`: those with an alarm are missing parts."""
    described, problems = rows(observation, query)
    for problem in problems:
        if problem.text == AS_NOBODY:
            yield missing(Step.PRIVILEGE, AS_NOBODY, f"{AS_ROOT} {SUBJECT}")
        elif problem.text == NO_MODULES:
            yield absent(NO_MODULES)
        else:
            yield missing(Step.DRIVER, problem.text, "dmesg")
    unread: defaultdict[str, list[str]] = defaultdict(list)
    ethernet = {role.interface for role in observation.backend if role.port.link_layer == ETHERNET}
    quiet = [row for row in described if not row["error"] and not row["alarms"]]
    if quiet:
        yield there(f"{many(len(quiet), 'transceiver')} without an alarm")
    for row in described:
        if row["error"]:
            is_ethernet = row["interface"] in ethernet
            text = row["error"] if is_ethernet else INFINIBAND.format("PCI-ADDRESS")
            unread[text].append(row["interface"])
        elif row["alarms"]:
            text = f"{row['interface']}: {', '.join(row['alarms'])}"
            yield missing(Step.TRANSCEIVER, text, f"bwagent probe {SUBJECT}")
    for text, names in unread.items():
        yield absent(f"{listed(names, MAX_NAMED)}: {text}")


def _decoded(module: Module) -> Json:
    if module.error:
        return _row(None, module.error)
    try:
        return _row(decode(module.pages), None)
    except Malformed as error:
        return _row(None, str(error))


def _row(module: Any, error: str | None) -> Json:
    """Return the facts of a module; all are null where there is an error."""
    names = {"rx_mw": "rx_power_mw", "tx_mw": "tx_power_mw"}
    fields = ("kind", "vendor", "part", "serial", "celsius", "rx_mw", "tx_mw", "alarms")
    facts = {names.get(name, name): getattr(module, name, None) for name in fields}
    return {name: [*fact] if isinstance(fact, tuple) else fact for name, fact in facts.items()} | {
        "error": error
    }
