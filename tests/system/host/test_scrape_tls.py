"""A real Prometheus scrapes /metrics over TLS as manifests/monitoring/README.md shows it: by
address, with a name of the certificate, and with a certificate of its own.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.telemetry.certificates import Certificates, Files
from agent.telemetry.metrics import Exposition, Metrics
from agent.telemetry.readiness import Status
from agent.telemetry.server import Server
from tests.support import prometheus
from tests.support.certificates import made
from tests.support.prometheus import MONITORING
from tests.support.real_parts import lacks, require
from tests.support.switch import wait_for

# The operator mounts each key of a Secret as a file, and names the fields as Prometheus does.
SECRETS = {
    "bwagent-metrics/ca.crt": "ca.pem",
    "bwagent-prometheus/tls.crt": "client.pem",
    "bwagent-prometheus/tls.key": "client.key",
}
LIMIT = 120.0  # seconds until the first scrape


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """Make ca.pem and, signed by it, server.pem and client.pem with their keys."""
    require(lacks("prometheus", "promtool", "openssl"))
    made(tmp_path, "ca")
    made(tmp_path, "server", by="ca", alias="DNS:bwagent")
    made(tmp_path, "client", by="ca")
    return tmp_path


def shown() -> dict[str, Any]:
    """Return the tlsConfig of the README's values."""
    section = (MONITORING / "README.md").read_text().partition("\n### With TLS\n")[2]
    values = yaml.safe_load(section.split("```yaml\n")[2].partition("```")[0])
    found: dict[str, Any] = values["metrics"]["podMonitor"]["tlsConfig"]
    return found


def tls_config(folder: Path, of: dict[str, Any]) -> dict[str, str]:
    """Return a tlsConfig of the operator as Prometheus has it."""
    rows = {"ca": of["ca"]["secret"], "cert": of["cert"]["secret"], "key": of["keySecret"]}
    files = {
        f"{name}_file": str(folder / SECRETS[f"{row['name']}/{row['key']}"])
        for name, row in rows.items()
    }
    return {**files, "server_name": of["serverName"]}


def scraped(folder: Path, address: str, tls: dict[str, str]) -> str:
    """Return the value of `up` after the first scrape."""
    target = {"a": address}
    with prometheus.scraping(folder, target, scheme="https", tls_config=tls) as server:
        found = wait_for(lambda: server.query('up{job="bwagent"}'), LIMIT)
        return str(found[0]["value"][1])


def test_the_example(certificates: Path) -> None:
    """It is scraped as shown; under another name, or without the certificate, it is not."""
    files = Files(*(str(certificates / name) for name in ("server.pem", "server.key", "ca.pem")))
    server = Server(
        ("127.0.0.1", 0), Exposition(Metrics()), Status(), certificates=Certificates(files)
    )
    tls = tls_config(certificates, shown())
    bare = {key: tls[key] for key in ("ca_file", "server_name")}
    cases = {
        "as-shown": (tls, "1"),
        "named": ({**tls, "server_name": "a"}, "0"),
        "bare": (bare, "0"),
    }
    with closing(server):
        address = f"127.0.0.1:{server.address[1]}"
        for name, (given, up) in cases.items():
            assert scraped(certificates / name, address, given) == up, name
