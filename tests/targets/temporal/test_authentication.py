"""A server that asks for a certificate and an API key, and what is refused before anything is sent."""

import pytest

from noonmark.targets.temporal.settings import parse_engine
from tests.cli.runner import call
from tests.servers.certificates import write_certificate, write_signed_certificate
from tests.servers.tls_proxy import tls_proxy
from tests.targets.temporal.rig import Rig, function

KEY = "101cats"
CODES = {"B": "1011101", "e": "00101", "r": "101100", " ": "010100"}
CODES |= {sign: f"{number:05b}" for number, sign in enumerate("012aceiost")}
"""Some of the Huffman codes of HTTP/2 (RFC 7541, appendix B)."""


def in_http2(text):
    """A value of a header as it is sent."""
    bits = "".join(CODES[sign] for sign in text)
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    write_signed_certificate(folder)
    return folder


def test_nodes_and_workers_identify_themselves_by_certificate_and_key(server, certificates, tmp_path, monkeypatch):
    files = f"tls_cert={certificates}/cert.pem&tls_key={certificates}/key.pem&tls_ca={certificates}/ca.pem"
    with tls_proxy(server.port, certificates) as (port, received):
        url = f"temporal://127.0.0.1:{port}/default?task_queue=secured&heartbeat=3&{files}"
        rig = Rig(server, tmp_path, address=parse_engine(url, KEY))
        with rig.running():
            occurrence_id = rig.run(function("add", 2, b=3))
            rig.ended(occurrence_id)
            assert rig.runs(occurrence_id)[0].result == 5
            assert in_http2(f"Bearer {KEY}") in bytes(received)
        command = ("engine", "check", "--store", rig.url, "--engine")
        monkeypatch.setenv("NOONMARK_ENGINE_API_KEY", KEY)
        answer = call(*command, url)
        assert (answer.code, answer.out.splitlines()[-1]) == (0, "No orphans.")
        # Without a certificate, and with the authorities of the system, there is no connection.
        for refused_url in (url.replace(files, f"tls_ca={certificates}/ca.pem"), url.replace(files, "tls=yes")):
            refused = call(*command, refused_url)
            assert refused.code == 1
            assert f"the engine at 127.0.0.1:{port} did not answer: UNAVAILABLE: " in refused.out
            assert KEY not in refused.out + refused.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("tls_cert={0}/cert.pem", "needs tls_key beside tls_cert"),
        ("tls_key={0}/key.pem", "needs tls_cert beside tls_key"),
        ("tls=no&tls_ca={0}/ca.pem", "has tls_ca, which needs tls=yes"),
        ("tls_cert={0}/none.pem&tls_key={0}/key.pem", "{0}/none.pem and {0}/key.pem cannot be read: No such file"),
        ("tls_cert={0}/cert.pem&tls_key={0}/other/key.pem", "{0}/cert.pem and {0}/other/key.pem cannot be used: KEY"),
        ("tls_ca={0}/none.pem", "{0}/none.pem cannot be read: No such file or directory"),
        ("tls_ca={0}/key.pem", "{0}/key.pem cannot be used: "),
        ("tls=no", "has tls=no, but an API key is only sent with TLS"),
    ],
)
def test_files_that_do_not_fit_are_refused_at_the_start(options, words, certificates, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOONMARK_ENGINE_API_KEY", KEY)
    (certificates / "other").mkdir(exist_ok=True)
    write_certificate(certificates / "other")
    url = f"temporal://127.0.0.1:1?{options.format(certificates)}"
    for command in (
        ("serve", "--port", "0", "--engine-routes", "http"),
        ("temporal-worker", "--routes", "http"),
        ("engine", "check"),
    ):
        refused = call(*command, "--engine", url)
        assert refused.code == 2
        assert words.format(certificates) in refused.err
        assert KEY not in refused.err


def test_an_api_key_is_shown_nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert KEY not in repr(parse_engine("temporal://host", KEY))
    assert parse_engine("temporal://host", KEY).tls
    monkeypatch.setenv("NOONMARK_ENGINE_API_KEY", KEY)
    shown = call("config", "--json")
    assert (shown.code, KEY in shown.out, shown.json["settings"]["engine_api_key"]["value"]) == (0, False, "***")
    monkeypatch.setenv("NOONMARK_ENGINE_API_KEY", "two words")
    refused = call("config")
    assert "engine_api_key: must be an API key" in refused.err
    assert "two words" not in refused.err
