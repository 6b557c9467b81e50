"""A registry of images that asks for a password: Debian's docker-registry, without TLS."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.kube import programs

USER, PASSWORD = "colleague", "not-a-secret"
# bcrypt of PASSWORD, the only hash that the registry takes
_HTPASSWD = f"{USER}:$2b$04$w12Cblduh3f9mTTz4ZjdLetX9rndTlNkOFTRJAb/pmaFt/1lG4IAK\n"


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Run an empty registry; yield its address."""
    folder.mkdir()
    (port,) = programs.free_ports(1)
    address = f"127.0.0.1:{port}"
    (folder / "htpasswd").write_text(_HTPASSWD)
    (folder / "config.yml").write_text(json.dumps(_configuration(folder, address)))
    arguments = ["serve", str(folder / "config.yml")]
    with programs.running("registry", arguments, folder, "docker-registry"):
        programs.until_answers(f"http://{address}/v2/", folder, 401)  # it wants a password
        yield address


def credentials(address: str) -> dict[str, object]:
    """Return a client's configuration, as `docker login` writes it."""
    secret = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    return {"auths": {address: {"auth": secret}}}


def _configuration(folder: Path, address: str) -> dict[str, object]:
    return {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(folder / "store")}},
        "http": {"addr": address},
        "auth": {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}},
    }
