"""A real Prometheus that scrapes the agents of a test, and the files of manifests/monitoring."""

from __future__ import annotations

import json
import os
import shutil
import signal
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.support.kube.programs import free_ports, running, until_answers

MONITORING = Path(__file__).parents[2] / "manifests/monitoring"
RULES = MONITORING / "rules.yaml"
TRIAGE = MONITORING / "triage.yaml"
LIMIT = 120.0  # seconds that anything may take
# Hours and days of the rules, and what they are for a test.
SHORT = {"offset 1d": "offset 8s", "per_second[1h]": "per_second[3s]", "7200": "3"}


def alerts(file: Path = RULES) -> list[dict[str, Any]]:
    groups = yaml.safe_load(file.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def rules(*, patient: bool = True) -> str:
    """Return the rules, evaluated every second; without patience, hours and days are those of
    SHORT, and an alert fires at the next evaluation.
    """
    document = yaml.safe_load(RULES.read_text())
    for group in document["groups"]:
        group.pop("interval", None)
        for rule in () if patient else group["rules"]:
            rule.pop("for", None)
            rule["expr"] = _shortened(rule["expr"])
    return yaml.safe_dump(document)


def _shortened(expression: str) -> str:
    for long, short in SHORT.items():
        expression = expression.replace(long, short)
    return expression


class Prometheus:
    """A Prometheus of one second's intervals; `address` is where it answers."""

    def __init__(self, folder: Path, pid: int, address: str) -> None:
        self._folder, self._pid, self._address = folder, pid, address

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of an instant query; a query that it refuses fails the test."""
        asked = urllib.parse.urlencode({"query": expression})
        answer = self._get(f"/api/v1/query?{asked}")
        assert answer["status"] == "success", (expression, answer)
        result = answer["data"]["result"]
        return result if isinstance(result, list) else []

    def alerts(self, state: str = "firing") -> set[str]:
        found = self._get("/api/v1/alerts")["data"]["alerts"]
        return {one["labels"]["alertname"] for one in found if one["state"] == state}

    def hurry(self, targets: Mapping[str, str]) -> None:
        """Take the rules without patience, and scrape these targets, by node; "" is one without
        that label.
        """
        configure(self._folder, rules(patient=False), targets)
        os.kill(self._pid, signal.SIGHUP)

    def _get(self, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://{self._address}{path}", timeout=LIMIT) as reply:
                found: dict[str, Any] = json.load(reply)
        except urllib.error.HTTPError as error:
            found = json.load(error)
        return found


def configure(
    folder: Path, text: str, targets: Mapping[str, str], alertmanager: str = "", **job: object
) -> None:
    """Write its configuration: the label `node` and the job are those of scrape.yaml, with these
    fields.
    """
    (folder / "rules.yaml").write_text(text)
    scraped = [
        {"targets": [address], "labels": {"node": node} if node else {}}
        for node, address in targets.items()
    ]
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [{"job_name": "bwagent", "static_configs": scraped, **job}],
        "rule_files": ["rules.yaml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
        if alertmanager
        else {},
    }
    (folder / "prometheus.yaml").write_text(json.dumps(configuration))


@contextmanager
def scraping(
    folder: Path, targets: Mapping[str, str], alertmanager: str = "", **job: object
) -> Iterator[Prometheus]:
    """Run a Prometheus with the rules; `targets` has the addresses by node, `job` more fields of
    its job. With an Alertmanager the rules are without patience.
    """
    folder.mkdir()
    configure(folder, rules(patient=not alertmanager), targets, alertmanager, **job)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    arguments = (
        *("--config.file=prometheus.yaml", "--storage.tsdb.path=data", "--log.level=warn"),
        f"--web.listen-address={address}",
    )
    at = shutil.which("prometheus")
    with running("prometheus", arguments, folder, at) as process:
        until_answers(f"http://{address}/-/ready", folder)
        yield Prometheus(folder, process.pid, address)
