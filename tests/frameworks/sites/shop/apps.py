"""The app: its jobs are declared, and started, when Django is ready."""

import os

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "tests.frameworks.sites.shop"
    label = "shop"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self):
        if "SITE_IS_NEW" in os.environ:  # there are no tables yet
            return
        from tests.frameworks.sites.shop import jobs  # noqa: PLC0415 - models can be imported now, not before

        jobs.scheduler.start()
