"""One page."""

from django.http import JsonResponse
from django.urls import path

from tests.frameworks.sites.shop import jobs


def orders(request):
    return JsonResponse({"orders": jobs.count(), "jobs": len(jobs.scheduler.list_jobs())})


urlpatterns = [path("", orders)]
