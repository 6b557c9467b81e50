"""/metrics over TLS on a real machine: the component of the manifests, with a kubelet's probes and
a Secret that changes.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import client, made
from tests.support.kube.manifests import MANIFESTS
from tests.support.kube.worker import Worker
from tests.support.real_parts import lacks, require

COMPONENT = MANIFESTS / "metrics-tls"
SECRET = "bwagent-metrics"  # noqa: S105 - its name


def put_secret(worker: Worker, folder: Path, name: str) -> None:
    """Create or replace the Secret with the certificate NAME."""
    files = (("tls.crt", f"{name}.pem"), ("tls.key", f"{name}.key"), ("ca.crt", "ca.pem"))
    data = {key: (folder / file).read_text() for key, file in files}
    about = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}}
    (folder / "secret.json").write_text(json.dumps({**about, "stringData": data}))
    worker.cluster.kubectl("-n", "bwagent", "apply", "-f", str(folder / "secret.json"))


def add_component(worker: Worker) -> None:
    """Add the component to the overlay that was rolled out."""
    path = worker.overlay / "kustomization.yaml"
    component = os.path.relpath(COMPONENT, worker.overlay)
    path.write_text(json.dumps({**json.loads(path.read_text()), "components": [component]}))
    words = ("apply", "--server-side", "--force-conflicts", "-k", str(worker.overlay))
    worker.cluster.kubectl(*words)


def get(worker: Worker, context: ssl.SSLContext, path: str = "/metrics") -> tuple[int, str]:
    """Return the status of a page, and the name in the server's certificate."""
    context.check_hostname = False  # the certificate has no address
    host = worker.pod()["status"]["hostIP"]
    connection = http.client.HTTPSConnection(host, 9477, timeout=10, context=context)
    with closing(connection):
        connection.request("GET", path)
        shown: Any = connection.sock.getpeercert()
        names = dict(pair for row in shown["subject"] for pair in row)
        return connection.getresponse().status, names["commonName"]


def is_patched(worker: Worker) -> bool:
    """Return True if the Pod with the Secret is ready by the kubelet's probes."""
    return SECRET in json.dumps(worker.pod().get("spec")) and worker.is_ready()


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    require(lacks("openssl"))
    made(tmp_path, "ca")
    for name in ("first", "second", "client"):
        made(tmp_path, name, by="ca")
    return tmp_path


def test_metrics_over_tls(worker: Worker, certificates: Path) -> None:
    """The kubelet's probes succeed without a certificate, /metrics needs one, and a new certificate
    in the Secret is served without a restart.
    """
    worker.roll_out("sysfs")
    worker.until("the agent is ready", worker.is_ready)
    put_secret(worker, certificates, "first")
    add_component(worker)
    worker.until("the patched agent is ready", lambda: is_patched(worker))
    certified, anonymous = (client(certificates, certified=one) for one in (True, False))
    assert get(worker, certified) == (200, "first")
    assert get(worker, anonymous) == (403, "first")
    assert get(worker, anonymous, "/readyz") == (200, "first")
    put_secret(worker, certificates, "second")
    name = worker.pod()["metadata"]["name"]
    worker.cluster.kubectl("-n", "bwagent", "annotate", "pod", name, "look=now")  # at the volume
    worker.until("the new one is served", lambda: get(worker, certified) == (200, "second"))
    assert worker.state()["restartCount"] == 0
