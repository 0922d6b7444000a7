"""The guide to HTTP targets is carried out: its receiver listens, and a real server calls it."""

import doctest
import socket
import threading
from contextlib import contextmanager

import uvicorn

from tests.docs.test_documents import FENCE, ROOT
from tests.embedded.waiting import SOON, eventually
from tests.service.server import serving

PAGE = ROOT / "docs" / "guides" / "webhooks.md"
SERVER, RECEIVER = "http://127.0.0.1:8001", "http://127.0.0.1:9000"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


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


def test_the_page_does_what_it_says(tmp_path):
    texts = [text for kind, text in FENCE.findall(PAGE.read_text("utf-8")) if kind == "py"]
    definitions = [text for text in texts if ">>>" not in text]
    port, scope = free_port(), {}
    for text in definitions:
        exec(compile(text, PAGE.name, "exec"), scope)  # noqa: S102 - our own page
    url = f"http://127.0.0.1:{port}"
    options = ("--store", "memory://", "--public-url", url)
    with socket.create_server(("127.0.0.1", 0)) as listener, hosting(scope["app"], listener):
        places = {SERVER: url, RECEIVER: f"http://127.0.0.1:{listener.getsockname()[1]}"}
        with serving(tmp_path, *options, port=str(port), NOONMARK_SIGNING_KEY=scope["KEY"]):
            for text in texts:
                if ">>>" in text:
                    carry_out(text, places, scope)
            scope["client"].close()
    assert (len(definitions), len(texts)) == (2, 6)


def carry_out(text, places, scope):
    for written, real in places.items():
        text = text.replace(written, real)
    example = doctest.DocTestParser().get_doctest(text, scope, PAGE.name, str(PAGE), 0)
    example.globs = scope
    report = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=report.append, clear_globs=False)
    assert not report, "".join(report)
