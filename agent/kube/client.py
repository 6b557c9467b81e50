"""The Kubernetes API by the official client: a request in, a reply out.

`handle` runs in a short-lived child. agent/kube/connection.py sends the same requests from the
process of a command.

Invariants:
- Whatever the API server, a proxy or the configuration does becomes a reply with a kind of error,
  never a traceback. Nothing is retried here, and every wait has a timeout.

The generic ApiClient sends the requests. CoreV1Api would build the pydantic model of a whole Node:
1.06 CPU-seconds and 65 MB to load, instead of 0.23 and 44 (kubernetes 37.0, Python 3.11). By hand
remain the bounded read of the response and its JSON, of which agent/kube/decode.py keeps a part.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubernetes.client import ApiClient, ApiException, Configuration
from kubernetes.config import ConfigException, load_kube_config
from kubernetes.config.incluster_config import InClusterConfigLoader
from urllib3 import exceptions as http
from yaml import YAMLError

from agent.kube import MANAGER, decode
from agent.kube.requests import parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    Json = dict[str, Any]
    Payload = Mapping[str, Any]
    Serialized = tuple[Any, Any, Any, Any, Any]

DEFAULT_KUBECONFIG = "~/.kube/config"
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
TIMEOUT = 10.0  # seconds to connect and for each read, where the payload names no other
READERS = {
    **dict.fromkeys(("get", "apply", "patch", "check-policy"), decode.read_node),
    "list": decode.read_list,
    "survey": decode.read_survey,
    **dict.fromkeys(("create-event", "patch-event"), decode.read_event),
}


def handle(payload: Payload) -> Json:
    """Send a request (agent/kube/transport.py) with the connection settings in the payload.

    Returns a reply of agent/kube/decode.py with the API server's URL as "server", or
    {"error": kind, "message"}.
    """
    try:
        configuration = configure(payload)
    except CONFIGURATION_FAULTS as error:
        return configuration_failure(error)
    return decode.limited({**_send(configuration, payload), "server": configuration.host})


def pooled(payload: Payload, connections: int) -> ApiClient:
    """Return a client that keeps so many connections; raises one of CONFIGURATION_FAULTS."""
    configuration = configure(payload)
    configuration.connection_pool_maxsize = connections
    return ApiClient(configuration)


def configure(payload: Payload) -> Configuration:
    """Return the API server's address and credentials.

    They come from the kubeconfig if it or a context is named, else from the Pod's service account.
    The default kubeconfig, outside a Pod too, is that of kubectl: $KUBECONFIG or ~/.kube/config.
    Raises ConfigException, and whatever a malformed kubeconfig makes the client raise.
    """
    configuration = Configuration()
    configuration.retries = False  # the caller has its own back-off
    _load(configuration, payload)
    _clean_token(configuration)
    if not configuration.host.startswith(("https://", "http://")):
        raise ConfigException(f"{configuration.host!r} is not the address of an API server")
    return configuration


def _load(configuration: Configuration, payload: Payload) -> None:
    kubeconfig, context = payload.get("kubeconfig"), payload.get("context")
    if kubeconfig or context or not os.environ.get("KUBERNETES_SERVICE_HOST"):
        kubeconfig = kubeconfig or _default_kubeconfig()
        _by_kubeconfig(configuration, kubeconfig, context, payload.get("temporary_folder"))
    else:
        _by_service_account(configuration, payload.get("service_account") or SERVICE_ACCOUNT)


def _default_kubeconfig() -> str:
    """Return the path, or several as in $KUBECONFIG; raises ConfigException without a file."""
    paths = os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    if paths == DEFAULT_KUBECONFIG and not Path(paths).expanduser().exists():
        raise ConfigException(
            "not in a Pod (KUBERNETES_SERVICE_HOST is not set), KUBECONFIG is not set, and "
            f"{paths} does not exist: name a --kubeconfig"
        )
    return paths


def _by_kubeconfig(
    configuration: Configuration, path: str, context: str | None, folder: str | None
) -> None:
    """Load a kubeconfig; its inline certificates and keys become files in `folder`."""
    try:
        load_kube_config(path, context, configuration, False, folder)  # type: ignore[no-untyped-call]  # noqa: FBT003
    except (ConfigException, YAMLError) as error:
        raise ConfigException(f"{path}: {error}") from error


def _by_service_account(configuration: Configuration, folder: str) -> None:
    if not os.path.exists(f"{folder}/token"):
        raise ConfigException(
            f"the Pod has no service account token: {folder}/token does not exist"
        )
    loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]
        f"{folder}/token", f"{folder}/ca.crt", try_refresh_token=False
    )
    loader.load_and_set(configuration)  # type: ignore[no-untyped-call]


def _clean_token(configuration: Configuration) -> None:
    """Make the token fit for a header; that of a credential plugin is got first."""
    if hook := configuration.refresh_api_key_hook:
        hook(configuration)
        configuration.refresh_api_key_hook = None
    for name, token in configuration.api_key.items():
        configuration.api_key[name] = _header_value(token)


def _header_value(token: str) -> str:
    """Return a token without the line end of its file.

    Raises ConfigException for characters that no header may have: http.client would raise for them
    as well, with the token in the message.
    """
    if not (token.isascii() and token.strip().isprintable()):
        raise ConfigException("the token has characters that are not allowed in a header")
    return token.strip()


def _send(configuration: Configuration, request: Payload) -> Json:
    try:
        with ApiClient(configuration) as api:
            return READERS[request["operation"]](*fetch(api, request))
    except FAULTS as error:
        return failure(error)


def fetch(api: ApiClient, request: Payload) -> tuple[int, Mapping[str, str], bytes]:
    """Send a request; return status, headers and body of the response. Raises one of FAULTS."""
    timeout_s = request.get("timeout_s") or TIMEOUT
    response = api.call_api(*serialize(api, request), _request_timeout=timeout_s).response
    return response.status, response.headers, response.read(decode.MAX_BODY + 1)


def serialize(api: ApiClient, request: Payload) -> Serialized:
    """Return a request as (method, URL, headers, body, form fields), for `ApiClient.call_api`."""
    api.user_agent = MANAGER
    return api.param_serialize(**parameters(request), auth_settings=["BearerToken"])


# The client does not validate a kubeconfig, so any of its values may raise one of these.
CONFIGURATION_FAULTS = (
    ConfigException,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
)
FAULTS = (ApiException, http.HTTPError, OSError, ValueError)  # of a request
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


def failure(error: Exception) -> Json:
    """Return the reply for one of FAULTS."""
    return {"error": _kind(error), "message": _message(error)}


def configuration_failure(error: Exception) -> Json:
    """Return the reply for one of CONFIGURATION_FAULTS."""
    return {"error": "configuration", "message": _message(error)}


def _kind(error: Exception) -> str:
    return next((kind for types, kind in _KINDS if isinstance(error, types)), "configuration")


def _message(error: Exception) -> str:
    """Return an error's message on one line, without the client's prefix."""
    reason = error.reason if isinstance(error, ApiException) else error
    text = " ".join(str(reason).split()).removeprefix("SSLError ")
    return (text or type(error).__name__)[: decode.MAX_TEXT]
