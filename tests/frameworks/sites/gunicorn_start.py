"""Settings of gunicorn: each worker starts the scheduler that it has, once it is a process of its own."""


def post_fork(server, worker):
    from tests.frameworks.sites import web  # noqa: PLC0415 - in the worker, not in the master

    web.scheduler.start()
