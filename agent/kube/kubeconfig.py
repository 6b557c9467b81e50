"""A kubeconfig, resolved by the package `kubernetes`; runs in a helper (agent/kube/access.py).

The package knows clusters, contexts, client certificates, credential plugins and providers. It is
35 to 56 MB and 0.2 CPU-seconds, which end with the helper. Inline certificates and keys become
files for a moment: in the helper's temporary folder, which its parent removes.
"""

from __future__ import annotations

import logging
import os
import queue
from logging.handlers import QueueHandler
from pathlib import Path
from typing import Any

from kubernetes.client import Configuration
from kubernetes.config import ConfigException
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger
from yaml import YAMLError

DEFAULT = "~/.kube/config"
MAX_MESSAGE = 4096  # characters
# The package does not validate a kubeconfig, so any of its values may raise one of these; the
# second ones are about Python and say nothing of the file.
FAULTS = (ConfigException, OSError, ValueError, YAMLError)
OF_TYPES = (TypeError, LookupError, AttributeError)
MALFORMED = "no kubeconfig, or one with a list, a map or a text where it has another"


def resolve(path: str | None, context: str | None) -> dict[str, Any]:
    """Return the fields of agent.kube.access.Access; or {"error": one line}.

    The default is that of kubectl: $KUBECONFIG, which may name several files, or ~/.kube/config.
    """
    path = path or os.environ.get("KUBECONFIG") or DEFAULT
    if path == DEFAULT and not Path(path).expanduser().exists():
        text = (
            "not in a Pod (KUBERNETES_SERVICE_HOST is not set), KUBECONFIG is not set, and "
            f"{path} does not exist: name a --kubeconfig"
        )
        return {"error": text}
    try:
        return _resolve(path, context)
    except FAULTS as error:
        text = " ".join(str(error).split()) or type(error).__name__
        return {"error": f"{path}: {text}"[:MAX_MESSAGE]}
    except OF_TYPES:
        return {"error": f"{path}: {MALFORMED}"}


def _resolve(path: str, context: str | None) -> dict[str, Any]:
    merged = KubeConfigMerger(path).config  # type: ignore[no-untyped-call]
    if merged is None:
        raise ConfigException("no configuration found")
    if context:
        known = [str(row["name"]) for row in merged.value.get("contexts") or ()]
        if context not in known:
            raise ConfigException(f"no context {context}; known: {', '.join(known) or 'none'}")
    loader = KubeConfigLoader(merged, context, config_base_path=None)  # type: ignore[no-untyped-call]
    # A credential plugin that fails is only logged by the package.
    configuration, logged = Configuration(), queue.SimpleQueue[logging.LogRecord]()
    logging.getLogger().addHandler(QueueHandler(logged))
    loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    if not configuration.host.startswith(("https://", "http://")):
        raise ConfigException(f"{configuration.host!r} is not the address of an API server")
    expiry = getattr(loader, "expiry", None)
    if not (logged.empty() or configuration.api_key.get("BearerToken") or configuration.cert_file):
        raise ConfigException(logged.get().getMessage())
    return {
        "server": configuration.host,
        "authorization": configuration.api_key.get("BearerToken", ""),
        "ca": _text(configuration.ssl_ca_cert),
        "certificate": _text(configuration.cert_file),
        "key": _text(configuration.key_file),
        "verify": bool(configuration.verify_ssl),
        "server_name": configuration.tls_server_name,
        "proxy": loader.__dict__.get("proxy"),
        "expires": expiry.timestamp() if expiry else None,
    }


def _text(path: str | None) -> str | None:
    return Path(path).read_text() if path else None
