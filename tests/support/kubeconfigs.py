"""Kubeconfigs of one cluster and one user."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NOWHERE = "https://127.0.0.1:1"  # a server that no connection reaches


def kubeconfig(
    path: Path, server: Any = NOWHERE, user: Mapping[str, Any] | None = None, **cluster: str
) -> Path:
    """Write a kubeconfig, as JSON, which is YAML; a user has a token if nothing else is given."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "c", "user": {"token": "t1"} if user is None else user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }
    path.write_text(json.dumps(config))
    return path
