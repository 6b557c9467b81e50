"""The Kubernetes API by the official client, inside the short-lived child: a request in, a plain answer out.

The law of this module: whatever the API server, a proxy or the configuration does becomes an answer with a kind of
error in it, never a traceback; nothing is tried twice here, and nothing waits for ever. Of the client it takes what
finds the configuration and what sends: the rest, with ApiClient's models and pydantic, would double what a request
costs (helper.py, `kube`), nearly all of which is loading.

It asks for metadata only (`as=PartialObjectMetadata`, which the API server gives for reads and patches alike), so a
Node's images and conditions stay where they are.
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

from agent.kube import reply as kube

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Told = dict[str, Any]

APPLY = "application/apply-patch+yaml"
METADATA_ONLY = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
TIMEOUT = 10.0  # seconds to connect and for each read, where the payload names no other
PAGE = 50  # Nodes


class Request(NamedTuple):
    """What goes to the API server; `read` makes the answer of what comes back."""

    method: str
    path: str
    read: Callable[[int, Mapping[str, str], bytes], Told]
    query: tuple[tuple[str, str], ...] = ()
    body: Mapping[str, Any] | None = None


def handle(payload: Mapping[str, Any]) -> Told:
    """Do one operation; `agent.helper.main.kube` has the shapes."""
    try:
        configuration = configure(payload)
    except (ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        # A kubeconfig may hold anything, and the client believes all of it.
        return {"error": "configuration", "message": _words(error)}
    request = OPERATIONS[payload["operation"]](payload)
    return {
        **_ask(configuration, request, payload.get("timeout_s") or TIMEOUT),
        "server": configuration.host,
    }


def _get(payload: Mapping[str, Any]) -> Request:
    return Request("GET", f"/api/v1/nodes/{payload['node']}", kube.one)


def _apply(payload: Mapping[str, Any]) -> Request:
    query = (("fieldManager", kube.MANAGER), ("force", "true" if payload.get("force") else "false"))
    return Request("PATCH", f"/api/v1/nodes/{payload['node']}", kube.one, query, payload["body"])


def _list(payload: Mapping[str, Any]) -> Request:
    query = (
        ("limit", str(payload.get("limit") or PAGE)),
        ("continue", payload.get("continue") or ""),
    )
    return Request("GET", "/api/v1/nodes", kube.page, query)


OPERATIONS: dict[str, Callable[[Mapping[str, Any]], Request]] = {
    "get": _get,
    "apply": _apply,
    "list": _list,
}


def configure(payload: Mapping[str, Any]) -> Configuration:
    """Where the API server is and who we are: by kubeconfig where one is named, else by the Pod's service account."""
    configuration = Configuration()
    configuration.retries = False  # how often and when is the caller's decision
    if payload.get("kubeconfig") or payload.get("context"):
        _by_kubeconfig(configuration, payload.get("kubeconfig"), payload.get("context"))
    else:
        _by_service_account(configuration, payload.get("service_account") or SERVICE_ACCOUNT)
    _tidy_token(configuration)
    if not configuration.host.startswith(("https://", "http://")):
        raise ConfigException(f"{configuration.host!r} is no address of an API server")
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
            "this is no Pod (KUBERNETES_SERVICE_HOST is not set): name a --kubeconfig"
        )
    if not os.path.exists(f"{folder}/token"):
        raise ConfigException(f"the Pod has no service-account token: {folder}/token is not there")
    loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]
        f"{folder}/token", f"{folder}/ca.crt", try_refresh_token=False
    )
    loader.load_and_set(configuration)  # type: ignore[no-untyped-call]


def _tidy_token(configuration: Configuration) -> None:
    """One token under both names: 36.0.0 files it where it does not look, and no header may hold a line's end."""
    if hook := configuration.refresh_api_key_hook:
        hook(configuration)
        configuration.refresh_api_key_hook = None
    token = configuration.api_key.get("BearerToken") or configuration.api_key.get("authorization")
    if token and not (token.isascii() and token.strip().isprintable()):
        # http.client would say so, too, and quote the token.
        raise ConfigException("the token is spoilt: it holds characters that no header may have")
    if token:
        configuration.api_key.update(dict.fromkeys(("BearerToken", "authorization"), token.strip()))


def _ask(configuration: Configuration, request: Request, timeout_s: float) -> Told:
    query = urlencode(request.query, quote_via=quote)
    url = f"{configuration.host}{request.path}?{query}".rstrip("?")
    try:
        with closing(RESTClientObject(configuration)) as client:
            body = json.dumps(request.body) if request.body else None
            headers = _headers(configuration, request)
            reply = client.request(  # type: ignore[no-untyped-call]
                request.method, url, headers, body, _request_timeout=timeout_s
            ).response
            return request.read(reply.status, reply.headers, reply.read(kube.LONGEST + 1))
    except (ApiException, http.HTTPError, OSError, ValueError) as error:
        return {"error": _kind(error), "message": _words(error)}


def _headers(configuration: Configuration, request: Request) -> dict[str, str]:
    headers = {
        "Accept": METADATA_ONLY.format("List" if request.read is kube.page else ""),
        "User-Agent": kube.MANAGER,
        **({"Content-Type": APPLY} if request.body else {}),
    }
    token = configuration.auth_settings().get("BearerToken")
    return headers | ({token["key"]: token["value"]} if token and token["value"] else {})


# The first that fits; the order matters, since a refused connection is a ConnectTimeoutError to urllib3.
_KINDS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
    (ApiException, "tls"),  # with status 0 it is how the client reports urllib3's SSLError
    (http.SSLError, "tls"),
    (http.ProxyError, "proxy"),
    ((http.LocationValueError, http.LocationParseError), "configuration"),
    (http.NewConnectionError, "unreachable"),
    (http.TimeoutError, "timeout"),
    (http.HTTPError, "cut"),
    (OSError, "unreachable"),
)


def _kind(error: Exception) -> str:
    return next((kind for of, kind in _KINDS if isinstance(error, of)), "configuration")


def _words(error: Exception) -> str:
    """An error's message without the client's own words around it."""
    said = error.reason if isinstance(error, ApiException) else error
    text = " ".join(str(said).split()).removeprefix("SSLError ")
    return (text or type(error).__name__)[: kube.LONGEST_TEXT]
