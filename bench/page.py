"""The web page: how much of it there is, and how soon a browser shows it."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bench.report import Table, bar, duration
from noonmark.server.web.files import page_files
from tests.service.server import serving
from tests.web import seed
from tests.web.browsing import browsing, visiting
from tests.web.chromium import MISSING, find

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.settings import Settings

SIZE = 80_000
PAINT_SECONDS = 0.3
DATA_SECONDS = 1.0
VIEWS = ("now", "schedules", "calendar")
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"
_LOADED = "performance.getEntriesByType('resource').reduce((sum, one) => sum + one.encodedBodySize, 0)"
_REQUESTS = "performance.getEntriesByType('resource').length + 1"


def tables(settings: Settings) -> Iterator[Table]:
    """Its size, and the time of its first paint in a browser that has never seen it."""
    size = sum(len(file.compressed) for file in page_files().values())
    table = Table(
        "Page: first paint and first data of views in a browser without a cache, on loopback",
        ("what", "p50", "worst", "first load", "requests", "bar"),
        notes=(
            f"{settings.page_loads} loads of each, of a store with weeks of history.",
            f"Bars: {SIZE // 1_000} kB, {duration(PAINT_SECONDS)} to paint, {duration(DATA_SECONDS)} to data.",
        ),
    )
    table.add("all files, compressed", "", "", f"{size / 1_000:.1f} kB", "", bar(met=size <= SIZE))
    executable = find()
    if executable is None:
        table.notes += (f"The rest was not measured: {MISSING}.",)
        yield table
        return
    with TemporaryDirectory() as home, browsing(executable) as browser:
        folder = Path(home)
        seed.write_past(folder / "noonmark.db")
        (folder / "work.py").write_text(seed.FUNCTIONS)
        with serving(folder, *seed.FLAGS) as server:
            seed.write_present(server.ask)
            for view in VIEWS:
                _measure(table, settings, browser, server.url, view)
    yield table


def _measure(table: Table, settings: Settings, browser: Any, url: str, view: str) -> None:
    painted, shown, loaded, requests = [], [], 0, 0
    for _ in range(settings.page_loads):
        with visiting(browser, url) as visit:
            started = perf_counter()
            page = visit.open(f"#/{view}")
            shown.append(perf_counter() - started)
            painted.append(page.evaluate(_PAINT))
            loaded, requests = page.evaluate(_LOADED), page.evaluate(_REQUESTS)
    cost = (f"{loaded / 1_000:.1f} kB", str(requests))
    for what, times, limit, more in (
        ("first paint", painted, PAINT_SECONDS, ("", "")),
        ("data", shown, DATA_SECONDS, cost),
    ):
        judged = bar(met=median(times) <= limit)
        table.add(f"{view}: {what}", duration(median(times)), duration(max(times)), *more, judged)
