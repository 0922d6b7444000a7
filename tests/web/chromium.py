"""Finds a Chromium for the browser tests, and installs one where it can: `python -m tests.web.chromium`.

Only the standard library: `make test` installs a browser while pip installs the tools.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

VARIABLE = "NOONMARK_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)
MISSING = (
    f"no Chromium was found: install the package chromium, set {VARIABLE} to the path of a Chromium or Chrome, "
    "or run .venv/bin/playwright install chromium"
)
FETCH_SECONDS = 180
"""How long the download of a browser may take. What is unpacked is not interrupted: that would leave half a package."""
APT = ("apt-get", "--quiet", "--quiet", "--option=DPkg::Lock::Timeout=60", "--option=Acquire::http::Timeout=20")


def flags():
    """The flags of Chromium. Its sandbox does not work as root."""
    return [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else [*FLAGS]


def find():
    """The path of a browser that starts, or None."""
    if VARIABLE in os.environ:
        return os.environ[VARIABLE]
    return next((path for name in NAMES if (path := shutil.which(name)) and starts(path)), None) or find_playwrights()


def find_playwrights():
    """The browser that playwright has downloaded, or None."""
    folder = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    found = sorted(
        path
        for pattern in ("chromium_headless_shell-*/*/*headless*shell", "chromium-*/*/chrome")
        for path in folder.glob(pattern)
    )
    return next((str(path) for path in reversed(found) if starts(path)), None)


def starts(path):
    """Whether it is a browser, and not a script that only says how to install one."""
    try:
        process = subprocess.run([path, "--version", *flags()], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return process.returncode == 0 and b"Chrom" in process.stdout


def install_by_apt():
    """Install the package of Debian, as root."""
    if os.geteuid() != 0 or not shutil.which("apt-get") or not shutil.which("dpkg"):
        return
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    install = (*APT, "install", "--yes", "--no-install-recommends")
    try:
        for command in ((*APT, "update"), (*install, "--download-only", "chromium")):
            subprocess.run(command, env=environment, capture_output=True, timeout=FETCH_SECONDS, check=True)
        subprocess.run((*install, "chromium"), env=environment, capture_output=True, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"==> browser: apt-get did not install chromium: {reason(error)}", file=sys.stderr)


def install_by_playwright():
    """Let playwright download its own, once: a machine without a network is not asked again."""
    tried = Path(sys.prefix) / ".browser-tried"
    if tried.exists() or sys.prefix == sys.base_prefix:
        return
    tried.touch()
    command = [sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"]
    environment = os.environ | {"PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT": "10000"}
    try:
        subprocess.run(command, env=environment, capture_output=True, timeout=FETCH_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"==> browser: playwright did not download one: {reason(error)}", file=sys.stderr)


def reason(error):
    lines = (getattr(error, "stderr", None) or b"").decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.startswith(("E:", "Error"))), str(error))


def main():
    """Install a browser, unless there is one. Never fails: the browser tests say that they were skipped."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--by", choices=("apt", "playwright"), required=True)
    by = parser.parse_args().by
    if find():
        return
    print(f"==> browser: no Chromium yet; trying {by}", flush=True)
    (install_by_apt if by == "apt" else install_by_playwright)()
    if by == "playwright" and not find():
        print(f"==> browser: the browser tests will be skipped: {MISSING}", file=sys.stderr)


if __name__ == "__main__":
    main()
