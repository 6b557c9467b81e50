"""The Kubernetes API by the official client, in a short-lived child: a request in, a reply out.

Invariants:
- Whatever the API server, a proxy or the configuration does becomes a reply with a kind of error,
  never a traceback. Nothing is retried here, and every wait has a timeout.
- Of the client, only the configuration and RESTClientObject are used. ApiClient's models and
  pydantic would double the cost of a request (agent/helper/main.py, `kube`), which is loading.
- A request asks for metadata only (`as=PartialObjectMetadata`, which the API server gives for reads
  and patches alike), so a Node's images and conditions are not transferred.
"""

from __future__ import annotations

import json
import os
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from kubernetes.client.configuration import Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.client.rest import RESTClientObject
from kubernetes.config.config_exception import ConfigException
from urllib3 import exceptions as http

from agent.kube import MANAGER, reply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Json = dict[str, Any]

APPLY = "application/apply-patch+yaml"
METADATA_ONLY = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
TIMEOUT = 10.0  # seconds to connect and for each read, where the payload names no other
PAGE_SIZE = 50  # Nodes


class Request(NamedTuple):
    """An HTTP request; `read` makes the reply of the response."""

    method: str
    path: str
    read: Callable[[int, Mapping[str, str], bytes], Json]
    query: tuple[tuple[str, str], ...] = ()
    body: Mapping[str, Any] | None = None


def handle(payload: Mapping[str, Any]) -> Json:
    """Do one operation; see `agent.helper.main.kube` for the shapes."""
    try:
        configuration = configure(payload)
    except (ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        # The client does not validate a kubeconfig, so any of its values may raise one of these.
        return {"error": "configuration", "message": _message(error)}
    request = OPERATIONS[payload["operation"]](payload)
    answer = _send(configuration, request, payload.get("timeout_s") or TIMEOUT)
    return {**answer, "server": configuration.host}


def _get(payload: Mapping[str, Any]) -> Request:
    return Request("GET", f"/api/v1/nodes/{payload['node']}", reply.read_node)


def _apply(payload: Mapping[str, Any]) -> Request:
    query = (("fieldManager", MANAGER), ("force", "true" if payload.get("force") else "false"))
    return Request(
        "PATCH", f"/api/v1/nodes/{payload['node']}", reply.read_node, query, payload["body"]
    )


def _list(payload: Mapping[str, Any]) -> Request:
    query = (
        ("limit", str(payload.get("limit") or PAGE_SIZE)),
        ("continue", payload.get("continue") or ""),
    )
    return Request("GET", "/api/v1/nodes", reply.read_list, query)


OPERATIONS: dict[str, Callable[[Mapping[str, Any]], Request]] = {
    "get": _get,
    "apply": _apply,
    "list": _list,
}


def configure(payload: Mapping[str, Any]) -> Configuration:
    """Return the API server's address and credentials.

    They come from the kubeconfig if it or a context is named, else from the Pod's service account.
    Raises ConfigException, and whatever a malformed kubeconfig makes the client raise.
    """
    configuration = Configuration()
    configuration.retries = False  # the caller has its own back-off
    if payload.get("kubeconfig") or payload.get("context"):
        _by_kubeconfig(configuration, payload.get("kubeconfig"), payload.get("context"))
    else:
        _by_service_account(configuration, payload.get("service_account") or SERVICE_ACCOUNT)
    _clean_token(configuration)
    if not configuration.host.startswith(("https://", "http://")):
        raise ConfigException(f"{configuration.host!r} is not the address of an API server")
    return configuration


def _by_kubeconfig(configuration: Configuration, path: str | None, context: str | None) -> None:
    from kubernetes.config.kube_config import load_kube_config
    from yaml import YAMLError

    try:
        load_kube_config(path, context, configuration, persist_config=False)  # type: ignore[no-untyped-call]
    except (ConfigException, YAMLError) as error:
        raise ConfigException(f"{path or 'the default kubeconfig'}: {error}") from error


def _by_service_account(configuration: Configuration, folder: str) -> None:
    from kubernetes.config.incluster_config import InClusterConfigLoader

    if not os.environ.get("KUBERNETES_SERVICE_HOST"):
        raise ConfigException(
            "not in a Pod (KUBERNETES_SERVICE_HOST is not set): name a --kubeconfig"
        )
    if not os.path.exists(f"{folder}/token"):
        raise ConfigException(
            f"the Pod has no service account token: {folder}/token does not exist"
        )
    loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]
        f"{folder}/token", f"{folder}/ca.crt", try_refresh_token=False
    )
    loader.load_and_set(configuration)  # type: ignore[no-untyped-call]


def _clean_token(configuration: Configuration) -> None:
    """Strip the token and store it under both of the client's names for it.

    The client stores and looks it up under different names (36.0.0). Raises ConfigException for a
    token with characters that no header may have.
    """
    if hook := configuration.refresh_api_key_hook:
        hook(configuration)
        configuration.refresh_api_key_hook = None
    token = configuration.api_key.get("BearerToken") or configuration.api_key.get("authorization")
    if token and not (token.isascii() and token.strip().isprintable()):
        # http.client raises for it as well, with the token in the message.
        raise ConfigException("the token has characters that are not allowed in a header")
    if token:
        configuration.api_key.update(dict.fromkeys(("BearerToken", "authorization"), token.strip()))


def _send(configuration: Configuration, request: Request, timeout_s: float) -> Json:
    query = urlencode(request.query, quote_via=quote)
    url = f"{configuration.host}{request.path}?{query}".rstrip("?")
    try:
        with closing(RESTClientObject(configuration)) as client:
            body = json.dumps(request.body) if request.body else None
            headers = _headers(configuration, request)
            response = client.request(  # type: ignore[no-untyped-call]
                request.method, url, headers, body, _request_timeout=timeout_s
            ).response
            data = response.read(reply.MAX_BODY + 1)
            return request.read(response.status, response.headers, data)
    except (ApiException, http.HTTPError, OSError, ValueError) as error:
        return {"error": _kind(error), "message": _message(error)}


def _headers(configuration: Configuration, request: Request) -> dict[str, str]:
    headers = {
        "Accept": METADATA_ONLY.format("List" if request.read is reply.read_list else ""),
        "User-Agent": MANAGER,
        **({"Content-Type": APPLY} if request.body else {}),
    }
    token = configuration.auth_settings().get("BearerToken")
    return headers | ({token["key"]: token["value"]} if token and token["value"] else {})


# The first match counts: urllib3's NewConnectionError is also a TimeoutError.
_KINDS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
    (ApiException, "tls"),  # the client's wrapper of urllib3's SSLError, with status 0
    (http.SSLError, "tls"),
    (http.ProxyError, "proxy"),
    ((http.LocationValueError, http.LocationParseError), "configuration"),
    (http.NewConnectionError, "unreachable"),
    (http.TimeoutError, "timeout"),
    (http.HTTPError, "cut"),
    (OSError, "unreachable"),
)


def _kind(error: Exception) -> str:
    return next((kind for types, kind in _KINDS if isinstance(error, types)), "configuration")


def _message(error: Exception) -> str:
    """Return an error's message on one line, without the client's prefix."""
    reason = error.reason if isinstance(error, ApiException) else error
    text = " ".join(str(reason).split()).removeprefix("SSLError ")
    return (text or type(error).__name__)[: reply.MAX_TEXT]
