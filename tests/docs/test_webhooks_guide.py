"""The guide to HTTP targets is carried out: its receivers listen, in either framework, and a real server calls them."""

import doctest
import socket
import threading
from contextlib import contextmanager

import httpx2
import uvicorn
from werkzeug.serving import make_server

from tests.docs.test_documents import FENCE, ROOT
from tests.embedded.waiting import SOON, eventually
from tests.service.server import serving

PAGE = ROOT / "docs" / "guides" / "webhooks.md"
SERVER, RECEIVER = "http://127.0.0.1:8001", "http://127.0.0.1:9000"


def free_port():
    with socket.socket() as connection:
        connection.bind(("127.0.0.1", 0))
        return connection.getsockname()[1]


@contextmanager
def hosting(app, listener):
    """An app that answers for as long as the block lasts."""
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        eventually(lambda: server.started)
        yield
    finally:
        server.should_exit = True
        thread.join(SOON)


@contextmanager
def hosting_flask(site):
    """A site of Flask that answers for as long as the block lasts."""
    server = make_server("127.0.0.1", 0, site, threaded=True)
    server.log = lambda *_: None
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(SOON)
        server.server_close()


def test_the_page_does_what_it_says_with_a_receiver_in_either_framework(tmp_path, monkeypatch):
    texts = [text for kind, text in FENCE.findall(PAGE.read_text("utf-8")) if kind == "py"]
    definitions = [text for text in texts if ">>>" not in text]
    port, scope = free_port(), {"__name__": "receiver"}
    url = f"http://127.0.0.1:{port}"
    options = ("--store", "memory://", "--public-url", url, "--allow-hosts", "127.0.0.1")
    with serving(tmp_path, *options, port=str(port)) as server:
        monkeypatch.setenv("SHOP_KEY", server.get("/signing-key").json["signing_key"])
        for text in definitions:
            exec(compile(text, PAGE.name, "exec"), scope)  # noqa: S102 - our own page
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            hosting(scope["app"], listener),
            hosting_flask(scope["site"]) as flask,
        ):
            for receiver in (f"http://127.0.0.1:{listener.getsockname()[1]}", flask):
                for text in texts:
                    if ">>>" in text:
                        carry_out(text, {SERVER: url, RECEIVER: receiver}, scope)
                scope["client"].close()
                # What nobody signed is told so, and not done.
                assert httpx2.post(f"{receiver}/hook", content=b"forged").status_code == 401
    assert (len(definitions), len(texts), len(scope["seen"])) == (3, 7, 3)


def carry_out(text, places, scope):
    for written, real in places.items():
        text = text.replace(written, real)
    example = doctest.DocTestParser().get_doctest(text, scope, PAGE.name, str(PAGE), 0)
    example.globs = scope
    report = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=report.append, clear_globs=False)
    assert not report, "".join(report)
