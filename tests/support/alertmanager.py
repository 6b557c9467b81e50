"""A real Alertmanager, with the configuration that manifests/monitoring/README.md shows."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.support.kube.manifests import Object
from tests.support.kube.programs import free_ports, running, until_answers
from tests.support.prometheus import LIMIT, MONITORING

PROGRAM = "prometheus-alertmanager"


def configuration() -> str:
    """Return the README's part of a configuration with the rest that one needs."""
    section = (MONITORING / "README.md").read_text().partition("\n## Alerts\n")[2]
    text = section.partition("```yaml\n")[2].partition("```")[0]
    shown: Object = yaml.safe_load(text)
    route = {**shown["route"], "receiver": "nobody", "group_wait": "1s"}
    return yaml.safe_dump({**shown, "route": route, "receivers": [{"name": "nobody"}]})


class Alertmanager(NamedTuple):
    """An Alertmanager; `address` is where it answers."""

    address: str

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self.address}/api/v2{path}", timeout=LIMIT) as reply:
            return json.load(reply)

    def alerts(self, query: str = "") -> Counter[str]:
        """Return the numbers of alerts by name, of all of them or those of a query."""
        return Counter(one["labels"]["alertname"] for one in self.get(f"/alerts?{query}"))

    def notified(self) -> list[str]:
        """Return the alerts that a notification would have, one name for each notification."""
        groups = self.get("/alerts/groups?inhibited=false")
        return sorted(group["labels"]["alertname"] for group in groups if group["alerts"])

    def send(self, *alerts: dict[str, str]) -> None:
        """Let these alerts fire, by their labels."""
        body = json.dumps([{"labels": labels} for labels in alerts]).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self.address}/api/v2/alerts", body, headers)
        urllib.request.urlopen(request, timeout=LIMIT).close()  # noqa: S310 - our own server


@contextmanager
def alerting(folder: Path) -> Iterator[Alertmanager]:
    folder.mkdir()
    (folder / "alertmanager.yaml").write_text(configuration())
    check = ["amtool", "check-config", str(folder / "alertmanager.yaml")]
    subprocess.run(check, check=True, capture_output=True)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    arguments = (
        *("--config.file=alertmanager.yaml", "--storage.path=data", "--cluster.listen-address="),
        *(f"--web.listen-address={address}", "--log.level=warn"),
    )
    with running(PROGRAM, arguments, folder, shutil.which(PROGRAM)):
        until_answers(f"http://{address}/api/v2/status", folder)
        yield Alertmanager(address)
