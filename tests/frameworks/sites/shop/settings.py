"""The settings of a small Django project."""

import os
from pathlib import Path

FOLDER = Path(os.environ["SITE_STORE"].removeprefix("sqlite:///")).parent
SECRET_KEY = "of no importance"  # noqa: S105 - nothing is signed with it
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["tests.frameworks.sites.shop"]
ROOT_URLCONF = "tests.frameworks.sites.shop.urls"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "shop.sqlite3"}}
USE_TZ = True
