"""The guide to the client is carried out on a real server, from top to bottom."""

import contextlib
import doctest
import io

from tests.docs.test_documents import FENCE, ROOT
from tests.server.live_server import serving

PAGE = ROOT / "docs" / "guides" / "client.md"
ADDRESS = "http://127.0.0.1:8001"


def test_the_page_does_what_it_says():
    found = FENCE.findall(PAGE.read_text("utf-8"))
    scope, count = {}, 0
    with serving(begins=True) as served:
        for place, (kind, text) in enumerate(found):
            if kind == "py":
                count += 1
                carry_out(text.replace(ADDRESS, served.url), scope, found[place + 1 :])
        scope["client"].close()
    assert count > 5


def carry_out(text, scope, rest):
    if ">>>" in text:
        example = doctest.DocTestParser().get_doctest(text, scope, PAGE.name, str(PAGE), 0)
        example.globs = scope
        report = []
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=report.append, clear_globs=False)
        assert not report, "".join(report)
        return
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, PAGE.name, "exec"), scope)  # noqa: S102 - our own page
    assert rest[0] == ("text", printed.getvalue())
