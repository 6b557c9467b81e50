"""The API server's address, and how to authenticate there and to trust it.

In a Pod the service account authenticates. Its token and CA are read for each request, since the
kubelet rotates both. Elsewhere, and where a kubeconfig or a context is named, a helper process
resolves the kubeconfig (agent/kube/kubeconfig.py); again once the credentials expire or are
rejected. So the package `kubernetes` is never loaded in this process.
"""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from typing import NamedTuple, Protocol

from agent.helper.process import call

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
DEADLINE = 25.0  # seconds for a kubeconfig with its credential plugin
EXPIRY_MARGIN = 60.0  # seconds before their expiry that credentials are resolved again


class Access(NamedTuple):
    """The API server's address, and how to authenticate there and to trust it."""

    server: str  # URL; a path is possible
    authorization: str = ""  # the header
    ca: str | None = None  # PEM; None: those of the system
    certificate: str | None = None  # PEM, of the client
    key: str | None = None  # PEM
    verify: bool = True
    server_name: str | None = None  # in the server's certificate
    proxy: str | None = None  # None: that of the environment
    expires: float | None = None  # seconds since the epoch


class Misconfigured(Exception):  # noqa: N818 - whose fault it is, as in agent/errors.py
    """No API server, or no credentials, are configured."""


class Credentials(Protocol):
    """Where the access of a request comes from."""

    def __call__(self, *, again: bool) -> Access:
        """Return it; `again` if that of the request before was rejected.

        Raises Misconfigured, and Unavailable if a helper fails.
        """


def credentials(
    kubeconfig: str | None, context: str | None, service_account: str = SERVICE_ACCOUNT
) -> Credentials:
    """Return the credentials that the flags and the environment name.

    Raises ModuleNotFoundError where a kubeconfig needs the package `kubernetes`, and it is absent.
    """
    known: Access | None = None
    if not _is_pods(kubeconfig, context) and find_spec("kubernetes") is None:
        raise ModuleNotFoundError("No module named 'kubernetes'", name="kubernetes")

    def access(*, again: bool) -> Access:
        nonlocal known
        if _is_pods(kubeconfig, context):
            return by_service_account(service_account)
        is_expired = known and known.expires and time.time() > known.expires - EXPIRY_MARGIN
        if again or is_expired or not known:
            known = None
            known = by_kubeconfig(kubeconfig, context)
        return known

    return access


def _is_pods(kubeconfig: str | None, context: str | None) -> bool:
    """Return True if the Pod's service account authenticates."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST") and not (kubeconfig or context))


def by_service_account(folder: str) -> Access:
    """Read the credentials of the Pod; raises Misconfigured."""
    try:
        with open(f"{folder}/token") as file:
            token = file.read()
    except FileNotFoundError as error:
        text = f"the Pod has no service account token: {folder}/token does not exist"
        raise Misconfigured(text) from error
    except (OSError, ValueError) as error:
        raise Misconfigured(f"{folder}/token: {error}") from error
    try:
        with open(f"{folder}/ca.crt") as file:
            ca = file.read()
    except (OSError, ValueError) as error:
        raise Misconfigured(f"{folder}/ca.crt: {error}") from error
    if not token.strip():
        raise Misconfigured(f"{folder}/token is empty")
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = os.environ.get("KUBERNETES_SERVICE_PORT") or "443"
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Access(server, header_value(f"Bearer {token}"), ca)


def by_kubeconfig(path: str | None, context: str | None) -> Access:
    """Let a helper resolve a kubeconfig; raises Misconfigured and Unavailable."""
    answer = call("kubeconfig", {"path": path, "context": context}, DEADLINE)
    if "error" in answer:
        raise Misconfigured(answer["error"])
    access = Access(**answer)
    return access._replace(authorization=header_value(access.authorization))


def header_value(value: str) -> str:
    """Return the value of a header without the line end of a token's file.

    Raises Misconfigured for characters that no header may have: http.client would raise for them
    as well, with the token in the message.
    """
    if not (value.isascii() and value.strip().isprintable()):
        raise Misconfigured("the token has characters that are not allowed in a header")
    return value.strip()
