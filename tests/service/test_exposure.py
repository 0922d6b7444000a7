"""A server that other machines can reach: it needs a key, and TLS or a proxy that speaks it."""

import asyncio
import json
import re
import socket
import ssl
import urllib.request
from urllib.error import HTTPError

import pytest
from cryptography import x509

from noonmark.client import AsyncClient, Client
from noonmark.core.errors import InvalidRequest, Unreachable
from noonmark.server.guard import RequestGuard
from noonmark.server.metrics_listener import MetricsListener
from noonmark.server.requests import HttpSettings
from noonmark.server.transport.connection_pool import RESERVE
from noonmark.server.transport.tls import Certificate
from tests.cli.runner import call
from tests.cli.terminal import PATIENCE
from tests.embedded.waiting import SOON, eventually
from tests.servers.certificates import write_certificate, write_signed_certificate
from tests.service.server import launch, serving

ANYWHERE = "0.0.0.0"  # noqa: S104 - that is what is tested


def presented(port):
    """The certificate that a server presents."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), SOON) as line, context.wrap_socket(line) as secured:
        return x509.load_der_x509_certificate(secured.getpeercert(binary_form=True))


def ask(url, folder, authority="cert.pem", **headers):
    context = ssl.create_default_context(cafile=folder / authority)
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - our own server
    with urllib.request.urlopen(request, context=context, timeout=SOON) as answer:  # noqa: S310 - likewise
        text = answer.read().decode()
        return (answer.headers, json.loads(text)) if url.endswith("whoami") else text


def first_key(folder):
    store = f"sqlite:///{folder / 'noonmark.db'}"
    return call("key", "create", "--store", store, "--tenant", "*", "--scopes", "admin", "--json").json["key"]


def test_beyond_loopback_it_needs_a_key_and_tls(tmp_path):
    write_certificate(tmp_path)
    secured = ("--host", ANYWHERE, "--tls-cert", "cert.pem", "--tls-key", "key.pem", "--no-worker")
    without = launch(tmp_path, *secured, name="without")
    assert without.process.wait(PATIENCE) == 2
    assert "there is no key yet" in without.log
    assert "noonmark key create --store sqlite:///noonmark.db --tenant '*' --scopes admin" in without.log
    key = first_key(tmp_path)
    with serving(tmp_path, *secured, "--metrics-listen", "127.0.0.1:0") as server:
        url = f"https://127.0.0.1:{server.port}"
        assert server.url.startswith("https://0.0.0.0:")
        headers, found = ask(f"{url}/whoami", tmp_path, Authorization=f"Bearer {key}", Host="any.example.org")
        assert found["all_tenants"]
        assert headers["Strict-Transport-Security"] == "max-age=31536000"
        for path in ("/whoami", "/metrics", "/openapi.json"):
            with pytest.raises(HTTPError, match="401"):
                ask(f"{url}{path}", tmp_path)
        with pytest.raises(Unreachable), Client(url, key=key) as client:
            client.whoami()  # it does not trust this certificate
        again = write_certificate(tmp_path)
        eventually(lambda: presented(server.port) == again)
        (tmp_path / "cert.pem").write_text("broken")
        eventually(lambda: "the old one stays" in server.log)
        assert presented(server.port) == again
        assert "without a key" in server.log
        server.stop()
        secret = key.rpartition("_")[2]
        assert secret not in server.log
        assert secret not in server.printed
        assert secret.encode() not in (tmp_path / "noonmark.db").read_bytes()


def test_clients_and_commands_trust_a_private_authority(tmp_path, monkeypatch):
    write_signed_certificate(tmp_path)
    (tmp_path / "none.pem").write_text("nothing")
    key, authority = first_key(tmp_path), tmp_path / "ca.pem"
    with serving(tmp_path, "--tls-cert", "cert.pem", "--tls-key", "key.pem", "--no-worker") as server:
        with Client(server.url, key=key, ca_file=authority) as client:
            assert client.whoami().all_tenants
            (tmp_path / "large").write_bytes(b"x" * 200_000)
            upload = client.upload(tmp_path / "large")
            assert client.download(upload.upload_id, tmp_path / "back") == 200_000

        async def ask_too():
            async with AsyncClient(server.url, key=key, ca_file=str(authority)) as client:
                return await client.whoami()

        assert asyncio.run(ask_too()).all_tenants
        with pytest.raises(Unreachable, match="is not trusted"), Client(server.url, key=key) as client:
            client.whoami()
        for file, problem in (("none.pem", "PEM"), ("missing.pem", "cannot be read")):
            with pytest.raises(InvalidRequest, match=problem) as refused:
                Client(server.url, ca_file=tmp_path / file)
            assert refused.value.field == "ca_file"
        command = ("whoami", "--server", server.url, "--key", key, "--json")
        refused = call(*command)
        assert (refused.code, refused.problem["code"]) == (6, "unreachable")
        assert refused.problem["detail"].endswith("name that with --ca-file or NOONMARK_CA_FILE"), "not: start a server"
        assert call(*command, "--ca-file", authority).json["all_tenants"]
        assert call(*command, "--ca-file", tmp_path / "none.pem").problem["field"] == "--ca-file"
        plain = server.url.replace("https", "http")
        with pytest.raises(Unreachable, match=f"; if it has a certificate, its address is {server.url}$"):
            Client(plain).whoami()
        assert "--store: calls no server" in call("whoami", "--store", "memory://", "--ca-file", authority).err
        monkeypatch.setenv("NOONMARK_CA_FILE", str(authority))
        assert call(*command).json["all_tenants"]


def test_a_client_is_told_that_a_server_has_no_certificate(tmp_path):
    with serving(tmp_path, "--no-worker") as server:
        encrypted = server.url.replace("http", "https")
        with pytest.raises(Unreachable) as refused, Client(encrypted) as client:
            client.whoami()
        assert refused.value.message == f"{encrypted} answers without TLS; is its address {server.url}?"
        assert call("whoami", "--server", encrypted).errors == [refused.value.message], "not: start a server"

        async def ask():
            async with AsyncClient(encrypted) as client:
                await client.whoami()

        with pytest.raises(Unreachable, match="answers without TLS"):
            asyncio.run(ask())
        try:
            Client(encrypted).whoami()
        except Unreachable:
            with pytest.raises(Unreachable, match=r"^cannot connect to http://127\.0\.0\.1:1 "):
                Client("http://127.0.0.1:1").whoami()


def test_a_client_that_does_not_finish_its_handshake_locks_no_one_out(tmp_path):
    write_signed_certificate(tmp_path)
    key = first_key(tmp_path)
    tls = ("--tls-cert", "cert.pem", "--tls-key", "key.pem", "--no-worker")
    limits = ("--max-connections", "8", "--max-connections-per-address", "8", "--request-timeout", "2")
    with serving(tmp_path, *tls, *limits) as server, Client(server.url, key=key, ca_file=tmp_path / "ca.pem") as client:
        silent = []
        for number in range(40):
            silent.append(socket.create_connection(("127.0.0.1", server.port), SOON))
            if number % 2:
                silent[-1].sendall(b"\x16\x03\x01")  # the beginning of a handshake
        assert client.whoami().all_tenants
        counted = ask(f"{server.url}/metrics", tmp_path, authority="ca.pem", Authorization=f"Bearer {key}")
        [opened] = re.findall(r"^noonmark_http_connections (\d+)", counted, re.MULTILINE)
        assert int(opened) <= 8 + RESERVE
        for line in silent:  # each is closed, by the limit or by the time
            line.settimeout(SOON / 2)  # asyncio by itself would wait for a minute
            assert line.recv(1) == b""
            line.close()
        half = socket.create_connection(("127.0.0.1", server.port), SOON)
        assert client.whoami().all_tenants
        assert server.stop() == 0
        half.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--behind-proxy",), "behind_proxy: other machines can reach this server, and there is no key yet"),
        (("--tls-cert", "cert.pem"), "tls_cert: needs --tls-key beside it"),
        (("--jwt-keys", "HS256:short"), "jwt_keys: the secret after HS256: must have at least 32 bytes"),
    ],
)
def test_a_server_that_would_be_open_does_not_start(tmp_path, arguments, said):
    server = launch(tmp_path, "--no-worker", *arguments)
    assert server.process.wait(PATIENCE) == 2
    assert f"noonmark: {said}" in server.log


def test_a_certificate_is_checked(tmp_path):
    write_certificate(tmp_path)
    files = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    assert Certificate(*files).context.minimum_version >= ssl.TLSVersion.TLSv1_2
    with pytest.raises(ValueError, match="cannot be read"):
        Certificate(files[0], str(tmp_path / "missing.pem"))
    write_certificate(tmp_path, password=b"secret")
    with pytest.raises(ValueError, match="cannot be used"):
        Certificate(*files)


class Told:
    """Metrics that are told."""

    def render(self):
        return b"up 1\n"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_metrics_have_an_address_of_their_own(host):
    listener = MetricsListener(host, 0, Told())
    listener.start()
    try:
        where = f"[{host}]" if ":" in host else host
        base = f"http://{where}:{listener.port}"
        with urllib.request.urlopen(f"{base}/metrics", timeout=SOON) as answer:  # noqa: S310 - our own server
            assert (answer.headers["Content-Type"][:10], answer.read()) == ("text/plain", b"up 1\n")
        with pytest.raises(HTTPError, match="404"):
            urllib.request.urlopen(f"{base}/schedules", timeout=SOON)  # noqa: S310 - likewise
    finally:
        listener.close()


async def seen_through(settings, client, headers):
    """The scheme and the client that an application sees."""
    collected = {}

    async def app(scope, receive, send):
        collected.update(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    sent = []

    async def send(message):
        sent.append(message)

    pairs = [(name.lower().encode(), value.encode()) for name, value in [("Host", "localhost"), *headers]]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": pairs, "client": client, "scheme": "http"}
    await RequestGuard(app, settings=settings, fresh_id=lambda: "id")(scope, None, send)
    secured = any(name == b"strict-transport-security" for name, _ in sent[0]["headers"])
    return collected["client"][0], collected["scheme"], secured


PROXIED = [("X-Forwarded-For", "203.0.113.9, 198.51.100.7, 10.0.0.2"), ("X-Forwarded-Proto", "https")]


@pytest.mark.parametrize(
    ("trusted", "client", "headers", "seen"),
    [
        (("10.0.0.0/8",), "10.0.0.1", PROXIED, ("198.51.100.7", "https", True)),
        (("10.0.0.0/8",), "192.0.2.1", PROXIED, ("192.0.2.1", "http", False)),
        ((), "10.0.0.1", PROXIED, ("10.0.0.1", "http", False)),
        (("10.0.0.0/8",), "10.0.0.1", [], ("10.0.0.1", "http", False)),
        (("10.0.0.1",), "10.0.0.1", [("X-Forwarded-For", "nonsense")], ("10.0.0.1", "http", False)),
        (("10.0.0.1",), "10.0.0.1", [("X-Forwarded-Proto", "gopher")], ("10.0.0.1", "http", False)),
        (("::1",), "::1", [("X-Forwarded-For", "2001:db8::5")], ("2001:db8::5", "http", False)),
    ],
)
def test_proxy_headers_count_from_trusted_proxies_only(trusted, client, headers, seen):
    settings = HttpSettings(trusted_proxies=trusted)
    assert asyncio.run(seen_through(settings, (client, 5), headers)) == seen
