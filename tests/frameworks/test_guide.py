"""The recipes of the guide, each run as it says, by the real thing."""

import signal

import pytest

from noonmark.core.run import Outcome
from tests.docs.test_documents import FENCE
from tests.frameworks.site import ROOT, ask, read

GUIDE = ROOT / "docs" / "guides" / "several-processes.md"
SETTINGS = """
SECRET_KEY = "of no importance"
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "shop"]
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}}
USE_TZ = True
"""


@pytest.fixture
def folder(tmp_path):
    """The files of the guide."""
    files = [text for kind, text in FENCE.findall(GUIDE.read_text("utf-8")) if kind == "py"]
    for text in files:
        name, _, program = text.partition("\n")
        path = tmp_path / name.removeprefix("# ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(program, encoding="utf-8")
    assert len(files) == 8
    return tmp_path


def lines(folder, name):
    path = folder / name
    return path.read_text("utf-8").splitlines() if path.exists() else []


def run_on(site, name, job, count):
    """Wait until a job has run so often; on the file that the guide names."""
    site.path = site.folder / name
    site.until(site.path.exists)
    site.url = f"sqlite:///{site.path}"
    site.until(lambda: any(one.name == job and one.run_count >= count for one in site.scheduler.list_jobs()))
    # A process that stops hands back a start that it has committed but not begun; that is a run too, which did nothing.
    runs = [run for run in site.scheduler.runs(site.job_named(job).id) if run.outcome == "completed"]
    assert len(runs) == len({run.occurrence_id for run in runs})


def test_gunicorn(site, folder):
    master = site.run("-m", "gunicorn", "-w", 4, "--preload", "-b", "127.0.0.1:0", "wsgi:app", folder=folder)
    assert read(site.address(master)) == b"sent"
    run_on(site, "jobs.db", "jobs:tidy", 2)
    site.end(master, signal.SIGTERM)
    site.assert_nothing_is_held()
    assert site.scheduler.get_job(site.job_named(":report").id).last_result == "sent"
    runs = site.scheduler.runs(site.job_named(":tidy").id)
    completed, cut = (sum(run.outcome is one for run in runs) for one in (Outcome.COMPLETED, Outcome.LEASE_LOST))
    assert completed <= len(lines(folder, "tidied")) <= completed + cut


def test_fastapi(site, folder):
    server = site.run("-m", "uvicorn", "--workers", 2, "--port", 0, "main:app", folder=folder)
    url = site.address(server)
    site.until(lambda: "startup complete" in site.shown(server))
    assert ask(f"{url}/poll") == "polled"
    run_on(site, "jobs.db", "main:poll", 3)
    site.end(server, signal.SIGTERM, codes=(0, -signal.SIGTERM))
    site.assert_nothing_is_held()


def test_django(site, folder):
    (folder / "shop" / "settings.py").write_text(SETTINGS, encoding="utf-8")
    (folder / "shop" / "urls.py").write_text("urlpatterns = []\n", encoding="utf-8")
    environment = {"DJANGO_SETTINGS_MODULE": "shop.settings", "PYTHONPATH": str(folder)}
    site.end(site.run("-m", "django", "migrate", "--verbosity", "0", folder=folder, **environment))
    assert not (folder / "jobs.db").exists(), "no job is even declared where nothing is served"
    server = site.run("-m", "django", "runserver", "--noreload", "127.0.0.1:0", folder=folder, **environment)
    worker = site.run("-m", "django", "runjobs", folder=folder, **environment)
    run_on(site, "jobs.db", "shop.jobs:count_users", 2)
    assert site.scheduler.get_job(site.job_named(":count_users").id).last_result == 0
    site.end(server, signal.SIGINT)
    site.end(worker, signal.SIGINT, codes=(-signal.SIGINT, 1))
    assert "KeyboardInterrupt" in site.shown(worker)
    site.may_complain = True  # of the interrupt
    site.assert_nothing_is_held()


def test_multiprocessing(site, folder):
    script = site.run("together.py", folder=folder)
    site.end(script)
    assert site.shown(script).endswith("each once: True\n")
    run_on(site, "together.db", "__main__:tick", 3)
    assert len(site.scheduler.list_jobs()) == 1
