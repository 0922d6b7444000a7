"""The wheel: it has what the package reads when it runs."""

import subprocess
import sys
import zipfile
from pathlib import Path

from noonmark.server.web.files import FOLDER, page_files


def test_the_wheel_has_the_files_of_the_web_page(tmp_path):
    root = Path(__file__).parents[2]
    built = subprocess.run(  # noqa: PLW1510 - its output says why
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in page_files():
            assert archive.read(f"noonmark/server/web/page/{name}") == (FOLDER / name).read_bytes()
