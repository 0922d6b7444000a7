"""Pictures of the page: `python -m tests.web.pictures` writes those of the documentation.

With a folder, it writes every view there, in both themes, on a desktop and on a phone. The data are those of the
browser tests. Times in the pictures are real, and so differ from one day to the next.
"""

import base64
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.embedded.waiting import eventually
from tests.service.server import serving
from tests.web import seed
from tests.web.browsing import DESKTOP, PHONE, browsing, visiting
from tests.web.chromium import MISSING, find
from tests.web.views import VIEWS

IMAGES = Path(__file__).parents[2] / "docs" / "images"
THEMES = ("light", "dark")
SCREENS = {"desktop": DESKTOP, "phone": PHONE}
SHOWN = (
    ("now", "light", "desktop"),
    ("now", "dark", "desktop"),
    ("now", "light", "phone"),
    ("calendar", "light", "desktop"),
    ("schedules", "dark", "desktop"),
    ("schedule", "light", "desktop"),
    ("schedule", "dark", "phone"),
    ("running", "dark", "desktop"),
    ("new", "light", "desktop"),
    ("workflow_run", "dark", "desktop"),
    ("usage", "light", "desktop"),
)
"""The pictures of the documentation: each costs its size in every copy of the repository."""
QUALITY = 88
"""Of WebP: text stays sharp, and a picture has less than 150 kB."""


def take(browser, server, folder, chosen):
    """Write these pictures of a seeded server."""
    folder.mkdir(parents=True, exist_ok=True)
    for view, theme, screen in chosen:
        options = {
            "viewport": SCREENS[screen],
            "color_scheme": theme,
            "timezone_id": "Europe/Stockholm",
            "locale": "en-GB",
            "is_mobile": screen == "phone",
        }
        with visiting(browser, server.url, **options) as visit:
            page = visit.open(VIEWS[view].at(server.ids))
            page.evaluate("document.fonts.ready.then(() => true)")
            session = visit.context.new_cdp_session(page)
            clip = {"x": 0, "y": 0, **SCREENS[screen], "scale": 2 if screen == "phone" else 1}
            asked = {"format": "webp", "quality": QUALITY, "clip": clip}
            picture = session.send("Page.captureScreenshot", asked)
            path = folder / f"{view}-{theme}{'-phone' if screen == 'phone' else ''}.webp"
            path.write_bytes(base64.b64decode(picture["data"]))
            for complaint in visit.complaints:
                print(complaint, file=sys.stderr)
            visit.forgive("")
            print(f"{path} {path.stat().st_size // 1_000} kB", flush=True)


def main():
    """Seed a store, serve it, and take the pictures."""
    executable = find()
    if executable is None:
        sys.exit(MISSING)
    every = len(sys.argv) > 1
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pictures-")))
        seed.write_past(home / "noonmark.db", days=330, hours=60)
        (home / "work.py").write_text(seed.FUNCTIONS)
        server = stack.enter_context(serving(home, *seed.FLAGS))
        server.ids = seed.write_present(server.ask)
        eventually(lambda: server.get("/health").status == 200)
        browser = stack.enter_context(browsing(executable))
        all_of_them = [(view, theme, screen) for view in VIEWS for theme in THEMES for screen in SCREENS]
        take(browser, server, Path(sys.argv[1]) if every else IMAGES, all_of_them if every else SHOWN)


if __name__ == "__main__":
    main()
