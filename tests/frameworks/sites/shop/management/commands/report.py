"""A command that runs a job."""

from django.core.management.base import BaseCommand

from tests.frameworks.sites.shop import jobs


class Command(BaseCommand):
    def handle(self, *args, **options):
        self.stdout.write(f"orders: {jobs.scheduler.run_now(jobs.counting)}")
