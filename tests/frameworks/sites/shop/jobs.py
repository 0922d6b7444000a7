"""The jobs of the project; they use its tables."""

import os

from django.db import connection

from noonmark import CronTrigger, Scheduler
from tests.frameworks.sites.shop.models import Order
from tests.processes import work

scheduler = Scheduler(os.environ["SITE_STORE"], lease=600)


@scheduler.every(1, misfire={"type": "catch_up_all", "limit": 1_000}, overlap="queue")
def order(context):
    try:
        work.begin(context, None)
        Order.objects.create(occurrence=context.occurrence_id)
    finally:
        connection.close()  # each thread has its own


def count():
    return Order.objects.count()


counting = scheduler.schedule(count, name="count", trigger=CronTrigger("0 0 1 1 *"))
