"""The HTTP server, with clients that are slow, hostile or many."""

from __future__ import annotations

import http.client
import json
import os
import resource
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

from agent.encode import Naming
from agent.errors import Unavailable
from agent.kube.managed_fields import Keys
from agent.options import address as address_of
from agent.reasons import Verdict
from agent.telemetry.log import Log
from agent.telemetry.metrics import Metrics
from agent.telemetry.readiness import Status
from agent.telemetry.reporter import Current, Reporter
from agent.telemetry.server import MAX_CONNECTIONS, Certificates, Expose, Files, Server
from tests.support import switch
from tests.support.certificates import EC, made, openssl
from tests.support.certificates import client as tls_client
from tests.support.real_parts import lacks, require

Start = Callable[..., Server]


HERE = "127.0.0.1", 0
GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


class Gauge:
    """A collector of one metric: `up`, and a HELP text of any length."""

    def __init__(self) -> None:
        self.value = 1.0
        self.text = "Up."

    def collect(self) -> list[GaugeMetricFamily]:
        """Return the one family; a value of 0 is a bug in a metric."""
        return [GaugeMetricFamily("up", self.text, 1 / self.value)]

    def exposed(self) -> str:
        """Return the exposition in the text format 0.0.4."""
        return f"# HELP up {self.text}\n# TYPE up gauge\nup {1 / self.value}\n"


@pytest.fixture
def gauge() -> Gauge:
    """Return the metric that the servers expose."""
    return Gauge()


@pytest.fixture
def expose(gauge: Gauge) -> Expose:
    def text(accept: str, names: Sequence[str]) -> tuple[str, bytes]:
        assert not names
        encode, content_type = choose_encoder(accept)
        return content_type, encode(gauge)

    return text


@pytest.fixture
def status() -> Status:
    """Return the status of a loop that has just begun."""
    return Status()


@pytest.fixture
def start(expose: Expose, status: Status) -> Iterator[Start]:
    with ExitStack() as stack:
        yield lambda address=HERE, **options: stack.enter_context(
            closing(Server(address, expose, status, **options))
        )


def request(
    server: Server, path: str = "/metrics", method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    """Send a request by the standard library's client; the response and its body."""
    with closing(http.client.HTTPConnection(*server.address, timeout=60)) as connection:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response, response.read()


def ask(server: Server, path: str = "/metrics", method: str = "GET") -> tuple[int, str]:
    """Send a request; status and body."""
    response, body = request(server, path, method)
    return response.status, body.decode()


def dial(server: Server, data: bytes = b"") -> socket.socket:
    """Open a connection and send this much."""
    sock = socket.create_connection(server.address, timeout=60)
    sock.sendall(data)
    return sock


def rest(sock: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    return b"".join(iter(lambda: sock.recv(65536), b""))


# The pages.


def test_the_metrics_are_rendered_at_each_scrape(start: Start, gauge: Gauge) -> None:
    """The values are those of the moment; a query changes nothing."""
    server = start()
    assert ask(server) == (200, gauge.exposed())
    gauge.value = 2.0
    assert ask(server, "/metrics?x=1") == (200, gauge.exposed())


@pytest.mark.parametrize(
    ("accepted", "content_type", "end"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8", b"up 1.0\n"),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3",
            "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores",
            b"up 1.0\n# EOF\n",
        ),
    ],
)
def test_the_client_chooses_the_format(
    start: Start, accepted: str, content_type: str, end: bytes
) -> None:
    """Text format 0.0.4 or OpenMetrics by the Accept header."""
    response, body = request(start(), Accept=accepted)
    assert response.headers["Content-Type"] == content_type
    assert body.endswith(end)


def test_responses_are_not_compressed(start: Start, gauge: Gauge) -> None:
    """Prometheus accepts gzip, and plain text too."""
    response, body = request(start(), **{"Accept-Encoding": "gzip"})
    assert (response.headers["Content-Encoding"], body.decode()) == (None, gauge.exposed())


def test_a_metric_with_a_bug_is_a_500(
    start: Start, gauge: Gauge, capfd: pytest.CaptureFixture[str]
) -> None:
    """One line, no traceback on standard error, and the other pages are served."""
    server = start()
    gauge.value = 0
    for _ in range(2):
        assert ask(server) == (500, "cannot render the metrics: ZeroDivisionError\n")
    assert ask(server, "/healthz") == (200, "ok\n")
    assert capfd.readouterr().err == ""


def test_requests_are_not_logged(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither a scrape nor a malformed request nor a lost client."""
    server = start(request_timeout=0.2)
    ask(server)
    with dial(server, b"\n\n") as one, dial(server, b"x") as two:
        rest(one)
        rest(two)
    assert capfd.readouterr() == ("", "")


def test_health_is_a_heartbeat_within_the_timeout() -> None:
    """A hung loop is unhealthy until its next heartbeat."""
    now = [0.0]
    status = Status(lambda: now[0])
    assert status.health() == (True, "ok\n")
    now[0] = 61.0
    assert status.health() == (False, "no heartbeat of the loop for 61 s\n")
    status.heartbeat()
    assert status.health() == (True, "ok\n")


def test_ready_is_an_applied_observation(start: Start, status: Status) -> None:
    """The page has the reason otherwise, of any number of lines; health does not depend on it."""
    server = start()
    assert ask(server, "/readyz") == (503, "no observation applied yet\n")
    assert ask(server, "/healthz") == (200, "ok\n")
    status.unready = ""
    assert ask(server, "/readyz") == (200, "ok\n")
    status.unready = "keys refused by the API server: 1\nx.example/flavor"
    assert ask(server, "/readyz")[0] == 503
    assert ask(server, "/readyz")[1].splitlines()[1:] == ["x.example/flavor"]
    assert ask(server, "/healthz") == (200, "ok\n")


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (Verdict.NO_PLAN, 404),
        (Verdict.PENDING, 404),
        (Verdict.PASS, 200),
        (Verdict.UNVERIFIED, 200),
        (Verdict.FAIL, 503),
    ],
)
def test_verdict(start: Start, status: Status, verdict: Verdict, code: int) -> None:
    """Each verdict has its status; the body is one JSON document, which HEAD leaves out."""
    log, keys = Log(write=lambda _: True), Keys(Naming())
    reporter = Reporter(log, Metrics(), status, keys, "gpu-017", time.time, time.monotonic)
    server = start()
    assert ask(server, "/verdict") == (404, '{"verdict": "pending"}\n')
    reporter.judged(Current(verdict, {"findings": [{"code": "swapped"}]}))
    response, body = request(server, "/verdict")
    assert (response.status, response.headers["Content-Type"]) == (code, "application/json")
    document = {"verdict": str(verdict), "node": "gpu-017", "findings": [{"code": "swapped"}]}
    assert json.loads(body) == document
    head, nothing = request(server, "/verdict", "HEAD")
    assert (head.status, head.headers["Content-Length"], nothing) == (code, str(len(body)), b"")
    assert ask(server, "/verdict", "POST")[0] == 405


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
        ("POST", "/metrics", 405),
        ("HEAD", "/metrics", 200),
    ],
)
def test_other_requests(start: Start, method: str, path: str, code: int) -> None:
    """Unknown pages and methods are refused; the response to HEAD has no body."""
    found, body = ask(start(), path, method)
    assert found == code
    assert (body == "") == (method == "HEAD")


@pytest.mark.parametrize("data", [b"GET\r\n\r\n", b"\x16\x03\x01\x02\n\n", b"GET / HTTP/9\n\n"])
def test_a_malformed_request(start: Start, data: bytes) -> None:
    """TLS, or no HTTP at all."""
    with dial(start(), data) as sock:
        assert rest(sock).startswith(b"HTTP/1.0 400 Bad request ")


@pytest.mark.parametrize("data", [b"x" * 9000, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 1500])
def test_a_request_that_is_too_large(start: Start, data: bytes) -> None:
    """A request line or a header without an end."""
    with dial(start(), data) as sock:
        assert rest(sock).startswith(b"HTTP/1.0 431 ")


# Slow, hostile, many.


def test_a_request_in_pieces(start: Start) -> None:
    """Byte by byte is as good as whole."""
    with dial(start()) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(len(GET)):
            sock.send(GET[number : number + 1])
        assert rest(sock).endswith(b"\nup 1.0\n")


def test_a_trickling_client_is_cut_off(start: Start) -> None:
    """The timeout is for the whole connection, not from byte to byte."""
    began = time.monotonic()
    with dial(start(request_timeout=0.3)) as sock, suppress(ConnectionError):
        while time.monotonic() - began < 60:
            sock.send(b"x")
            time.sleep(0.02)
    assert 0.2 < time.monotonic() - began < 30


def test_a_client_that_never_reads_is_cut_off(start: Start, gauge: Gauge) -> None:
    """A large response blocks one thread until the timeout; the others are served meanwhile."""
    gauge.text = "x" * 50_000_000
    server = start(request_timeout=0.5)
    with dial(server, GET) as sock:
        assert ask(server, "/healthz")[0] == 200
        time.sleep(0.8)
        assert len(rest(sock)) < 50_000_000


def test_a_large_response_arrives_whole(start: Start, gauge: Gauge) -> None:
    """Larger than the buffers of the sockets."""
    gauge.text = "x" * 5_000_000
    assert ask(start()) == (200, gauge.exposed())


def test_an_unread_body_does_not_reset_the_connection(start: Start) -> None:
    """The response to a POST arrives whole."""
    with dial(
        start(), b"POST /metrics HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000
    ) as sock:
        assert rest(sock).startswith(b"HTTP/1.0 405")


def test_idle_connections_do_not_keep_others_out(start: Start) -> None:
    """Ten times the limit, all idle: every honest request is answered at once."""
    server = start(request_timeout=60)
    with ExitStack() as stack:
        for _ in range(10 * MAX_CONNECTIONS):
            stack.enter_context(dial(server, b"GET /metr"))
            began = time.monotonic()
            assert ask(server, "/healthz") == (200, "ok\n")
            assert time.monotonic() - began < 30


def test_a_flood_is_bounded(start: Start) -> None:
    """Hundreds of clients of all kinds: a bounded number of threads, and none afterwards."""
    server = start(request_timeout=0.2)
    ask(server)
    time.sleep(0.1)
    before, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    most = 0
    with ExitStack() as stack:
        for number, data in enumerate((b"", b"GET", GET, b"\0" * 10_000) * 100):
            sock = stack.enter_context(dial(server, data))
            most = max(most, threading.active_count())
            if number % 2:
                sock.close()
    assert most <= threads + MAX_CONNECTIONS + 2  # a closed connection's thread is about to end
    assert ask(server)[0] == 200
    switch.wait_for(lambda: threading.active_count() == threads)
    switch.wait_for(lambda: len(os.listdir("/proc/self/fd")) == before)


def test_a_flood_of_scrapes_does_not_stop_the_loop(start: Start, gauge: Gauge) -> None:
    """With sixteen scrapers, a thread that sleeps and works like the loop is hardly delayed."""
    gauge.text = "x" * 100_000
    server, stop = start(), threading.Event()

    def scrape() -> None:
        while not stop.is_set():
            with suppress(OSError, http.client.HTTPException):
                ask(server)

    scrapers = [threading.Thread(target=scrape) for _ in range(MAX_CONNECTIONS)]
    for thread in scrapers:
        thread.start()
    delays = []
    for _ in range(50):
        began = time.monotonic()
        time.sleep(0.01)
        delays.append(time.monotonic() - began - 0.01)
    stop.set()
    for thread in scrapers:
        thread.join()
    assert sorted(delays)[25] < 0.5


def test_out_of_descriptors(start: Start) -> None:
    """The server pauses instead of spinning, and serves again with free descriptors."""
    server = start()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with dial(server) as waiting, socket.socket() as late:
        time.sleep(0.1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            late.connect(server.address)
            used = time.process_time()
            time.sleep(0.3)
            assert time.process_time() - used < 0.1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        waiting.sendall(GET)
        assert rest(waiting).endswith(b"up 1.0\n")
        late.settimeout(60)
        late.sendall(GET)
        assert rest(late).endswith(b"up 1.0\n")


def test_closing_ends_the_thread_and_frees_the_port(expose: Expose, status: Status) -> None:
    """With a client in the middle of its request; the same address can be bound again at once."""
    server = Server(HERE, expose, status)
    with dial(server, b"GET") as sock:
        server.close()
        with suppress(ConnectionResetError):  # not accepted yet
            assert rest(sock) == b""
        with closing(Server(server.address, expose, status)) as again:
            assert ask(again)[0] == 200


# Addresses.


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9477", ("127.0.0.1", 9477)),
        ("[::1]:9477", ("::1", 9477)),
        ("fd00::7:9477", ("fd00::7", 9477)),
        (":9477", ("", 9477)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),  # noqa: S104 - parsed, not bound
        ("", None),  # no server
    ],
)
def test_addresses(text: str, address: tuple[str, int] | None) -> None:
    """An address is accepted in the usual notations, and as Kubernetes' $(NODE_IP):PORT expands."""
    assert address_of(text) == address


@pytest.mark.parametrize(
    "text",
    [
        *("9477", "127.0.0.1", "127.0.0.1:", "host:9477", "1.2.3.4:65536", "1.2.3:-1"),
        *("[::1:1", "1.2.3.4:" + "9" * 5000),
    ],
)
def test_malformed_addresses(text: str) -> None:
    """A host name is malformed too; the message names the value."""
    with pytest.raises(click.BadParameter, match="is no IP:PORT"):
        address_of(text)


@pytest.mark.parametrize("host", ["::1", ""])
def test_ipv6(start: Start, host: str) -> None:
    """Alone, and together with IPv4."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    server = start((host, 0))
    for client in ["::1"] if host else ["::1", "127.0.0.1"]:
        server.address = client, server.address[1]
        assert ask(server)[0] == 200


def test_an_address_in_use(start: Start, expose: Expose, status: Status) -> None:
    """One line with the address."""
    host, number = start().address
    with pytest.raises(
        Unavailable, match=f"cannot serve metrics on {host} port {number}: Address already in use"
    ):
        Server((host, number), expose, status)


def test_an_address_that_is_not_there_yet(expose: Expose, status: Status, gauge: Gauge) -> None:
    """The server waits for it and reports it meanwhile; closing does not wait."""
    require(switch.missing())
    new = partial(Server, ("192.0.2.7", 9477), expose, status)
    fault = "cannot serve metrics on 192.0.2.7 port 9477: Cannot assign requested address"
    with switch.Namespace() as node, closing(node.call(new)) as server:
        assert server.fault == fault
        node.ip("address", "add", "192.0.2.7/32", "dev", "lo")
        switch.wait_for(lambda: not server.fault)
        assert node.call(ask, server) == (200, gauge.exposed())
    with switch.Namespace() as node, closing(node.call(new)) as server:
        assert server.fault == fault


# TLS.


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make ca.pem and, signed by it, server.pem, client.pem and expired.pem with their keys; a
    stranger's, and a locked key.
    """
    require(lacks("openssl"))
    folder = tmp_path_factory.mktemp("certificates")
    for name, by in {"ca": "", "server": "ca", "client": "ca"}.items():
        made(folder, name, by=by, alias="IP:127.0.0.1" if by else "")
    stranger = ("-keyout", "stranger.key", "-out", "stranger.pem")
    openssl(folder, "req", "-x509", *EC, *stranger, "-subj", "/CN=ca")  # its name, another key
    request = ("-newkey", "rsa:2048", "-subj", "/CN=expired")
    openssl(folder, "req", *request, "-nodes", "-keyout", "expired.key", "-out", "expired.csr")
    signed = ("-req", "-in", "expired.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
    openssl(folder, "x509", *signed, "-days", "-1", "-out", "expired.pem")
    locked = ("-newkey", "rsa:2048", "-passout", "pass:secret", "-x509", "-subj", "/CN=server")
    openssl(folder, "req", *locked, "-keyout", "locked.key", "-out", "locked.pem")
    return folder


def tls_get(server: Server, context: ssl.SSLContext, path: str = "/metrics") -> tuple[int, str]:
    """Get a page over TLS; status and body."""
    connection = http.client.HTTPSConnection(*server.address, timeout=60, context=context)
    with closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()


def files(certificates: Path, *, client_ca: bool = False) -> Files:
    ca = str(certificates / "ca.pem") if client_ca else None
    return Files(str(certificates / "server.pem"), str(certificates / "server.key"), ca)


def test_tls(start: Start, gauge: Gauge, certificates: Path) -> None:
    """Without a client CA nobody is asked for a certificate."""
    server = start(certificates=Certificates(files(certificates)))
    for certified in (True, False):
        client = tls_client(certificates, certified=certified)
        assert tls_get(server, client) == (200, gauge.exposed())


def test_client_certificates(
    start: Start, status: Status, gauge: Gauge, certificates: Path
) -> None:
    """/metrics and /verdict need one, the pages of a kubelet's probes do not."""
    status.unready = ""
    status.set_verdict("200 OK", b"{}\n")
    server = start(certificates=Certificates(files(certificates, client_ca=True)))
    certified = tls_client(certificates, certified=True)
    assert tls_get(server, certified) == (200, gauge.exposed())
    anonymous = tls_client(certificates, certified=False)
    assert tls_get(server, certified, "/verdict") == (200, "{}\n")
    for path in ("/metrics", "/verdict"):
        assert tls_get(server, anonymous, path) == (403, "a client certificate is needed\n")
    for path in ("/healthz", "/readyz"):
        assert tls_get(server, anonymous, path) == (200, "ok\n")


@pytest.mark.parametrize(("name", "word"), [("stranger", "unknown ca"), ("expired", "expired")])
def test_a_client_certificate_that_is_refused(
    start: Start, certificates: Path, name: str, word: str
) -> None:
    """One of another CA, or of the past, ends the handshake, so no page is served."""
    server = start(certificates=Certificates(files(certificates, client_ca=True)))
    client = tls_client(certificates, certified=False)
    client.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
    with pytest.raises(OSError, match=rf"(?i){word.replace(' ', '[ _]')}|reset|EOF|closed"):
        tls_get(server, client, "/healthz")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_not_resumed(
    start: Start, certificates: Path, version: ssl.TLSVersion
) -> None:
    """A resumed one would outlive the client's certificate, which is verified only at its start."""
    server = start(certificates=Certificates(files(certificates, client_ca=True)))
    client = tls_client(certificates, certified=True)
    client.minimum_version = client.maximum_version = version
    session = None
    for _ in range(3):
        with (
            dial(server) as sock,
            client.wrap_socket(sock, server_hostname="127.0.0.1", session=session) as tls,
        ):
            tls.sendall(GET)
            assert rest(tls).endswith(b"\nup 1.0\n")
            assert not tls.session_reused
            session = tls.session


def test_an_expired_certificate_is_served(start: Start, status: Status, certificates: Path) -> None:
    """A client that verifies it refuses it; the probes of a kubelet, which does not, go on."""
    status.unready = ""
    late = Files(str(certificates / "expired.pem"), str(certificates / "expired.key"))
    server = start(certificates=Certificates(late))
    client = tls_client(certificates, certified=False)
    client.check_hostname = False  # the certificate has no address
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        tls_get(server, client)
    client.verify_mode = ssl.CERT_NONE
    assert tls_get(server, client, "/readyz") == (200, "ok\n")


def peer(server: Server, certificates: Path) -> str:
    """Return the common name that the server shows."""
    context = tls_client(certificates, certified=False)
    with (
        dial(server) as sock,
        context.wrap_socket(sock, server_hostname=server.address[0]) as tls,
    ):
        shown: Any = tls.getpeercert()
    return str(dict(pair for row in shown["subject"] for pair in row)["commonName"])


def secret(folder: Path, certificates: Path, name: str, version: str) -> None:
    """Write a version of a Secret volume as the kubelet does: a folder, then a link to it."""
    (folder / version).mkdir()
    placed(certificates, folder / version, name)
    (folder / "..data_tmp").symlink_to(version)
    (folder / "..data_tmp").rename(folder / "..data")


def placed(certificates: Path, folder: Path, name: str = "server") -> Files:
    """Put a certificate and its key into a folder; return their paths there."""
    for suffix in ("pem", "key"):
        shutil.copy(certificates / f"{name}.{suffix}", folder / f"tls.{suffix}")
    return Files(str(folder / "tls.pem"), str(folder / "tls.key"))


def test_certificates_are_reloaded(start: Start, certificates: Path, tmp_path: Path) -> None:
    """When a Secret changes; connections that are open go on."""
    secret(tmp_path, certificates, "server", "..1")
    paths = Files(str(tmp_path / "..data/tls.pem"), str(tmp_path / "..data/tls.key"))
    server = start(certificates=Certificates(paths), request_timeout=60)
    assert peer(server, certificates) == "server"
    with (
        dial(server) as sock,
        tls_client(certificates, certified=False).wrap_socket(
            sock, server_hostname=server.address[0]
        ) as before,
    ):
        secret(tmp_path, certificates, "client", "..2")
        assert peer(server, certificates) == "client"
        before.sendall(GET)
        assert rest(before).endswith(b"\nup 1.0\n")


def test_a_reload_that_fails(start: Start, certificates: Path, tmp_path: Path) -> None:
    """The certificates in use stay, and the reason is kept until the files fit."""
    server = start(certificates=Certificates(placed(certificates, tmp_path)))
    shutil.copy(certificates / "client.pem", tmp_path / "tls.pem")
    assert peer(server, certificates) == "server"
    misfit = f"{tmp_path}/tls.key is not the key of {tmp_path}/tls.pem"
    assert server.certificate_fault == misfit
    shutil.copy(certificates / "client.key", tmp_path / "tls.key")
    assert peer(server, certificates) == "client"
    assert server.certificate_fault == ""
    (tmp_path / "tls.pem").unlink()
    assert peer(server, certificates) == "client"
    assert "No such file" in server.certificate_fault


def test_files_that_are_written_in_place(start: Start, certificates: Path, tmp_path: Path) -> None:
    """A new version with the inode and the time of the one before, as `rsync --inplace -t` may
    write it, is read.
    """
    server = start(certificates=Certificates(placed(certificates, tmp_path)))
    assert peer(server, certificates) == "server"
    for suffix in ("pem", "key"):
        path = tmp_path / f"tls.{suffix}"
        before = path.stat()
        path.write_bytes((certificates / f"client.{suffix}").read_bytes())
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert peer(server, certificates) == "client"


def test_a_reload_without_descriptors(certificates: Path, tmp_path: Path) -> None:
    """It is repeated: the files do not change when there are descriptors again."""
    secret(tmp_path, certificates, "server", "..1")
    paths = Files(str(tmp_path / "..data/tls.pem"), str(tmp_path / "..data/tls.key"))
    found = Certificates(paths)
    before = found.context()
    secret(tmp_path, certificates, "client", "..2")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        assert found.context() is before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "Too many open files" in found.fault
    assert found.context() is not before
    assert found.fault == ""


@pytest.mark.parametrize(
    ("cert", "key", "ca", "fault"),
    [
        ("server.pem", "client.key", None, "client.key is not the key of .*server.pem$"),
        ("server.key", "server.key", None, "server.key has no certificate in PEM$"),
        ("server.pem", "server.pem", None, "server.pem has no private key in PEM$"),
        ("nosuch", "server.key", None, "nosuch: No such file or directory$"),
        ("server.pem", ".", None, ": Is a directory$"),
        ("fifo", "server.key", None, "fifo is not a regular file$"),
        ("server.pem", "fifo", None, "fifo is not a regular file$"),
        ("/dev/zero", "server.key", None, "/dev/zero is not a regular file$"),
        ("server.pem", "malformed.key", None, "malformed.key: the private key is malformed$"),
        ("server.pem", "server.key", "server.key", "server.key has no certificate in PEM$"),
        ("server.pem", "server.key", "garbage", "garbage: the certificate is malformed$"),
        ("garbage", "server.key", None, "garbage: the certificate is malformed$"),
        ("server.pem", "locked.key", None, "locked.key is encrypted$"),
    ],
)
def test_certificates_that_do_not_fit(
    certificates: Path, cert: str, key: str, ca: str | None, fault: str
) -> None:
    """One line that names the file; a locked key does not ask the terminal."""
    (certificates / "garbage").write_text(
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    )
    (certificates / "malformed.key").write_text(
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    )
    if not (certificates / "fifo").exists():
        os.mkfifo(certificates / "fifo")
    with pytest.raises(Unavailable, match=f"^cannot serve metrics: .*{fault}"):
        Certificates(
            Files(
                str(certificates / cert),
                str(certificates / key),
                str(certificates / ca) if ca else None,
            )
        )


def test_a_slow_handshake_does_not_keep_others_out(
    start: Start, gauge: Gauge, certificates: Path
) -> None:
    """Idle connections before their handshake, and one in plain HTTP."""
    server = start(certificates=Certificates(files(certificates)), request_timeout=60)
    with ExitStack() as stack:
        for _ in range(3 * MAX_CONNECTIONS):
            stack.enter_context(dial(server))
        began = time.monotonic()
        with dial(server, GET) as plain:
            assert b"up" not in rest(plain)
        assert tls_get(server, tls_client(certificates, certified=False))[1] == gauge.exposed()
        assert time.monotonic() - began < 30
