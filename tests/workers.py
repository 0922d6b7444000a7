"""Runs the tests in several processes: `pytest -n 4`.

Tests are collected once, and each worker is a fork of the process that collected them: importing and collecting all
tests takes about ten seconds.

A worker gets one batch of tests at a time, and sends its reports to the main process. If a worker dies, its test has
failed, and a new worker runs the rest of the batch. Warnings are errors here, so workers do not send them.

Tests that start processes mostly wait for them. One more worker for every four uses the time that they leave: it has a
lower priority, begins at the other end, and runs only tests that do not mind.
"""

import atexit
import os
import signal
import sys
import traceback
from collections import deque
from contextlib import suppress
from multiprocessing import Pipe, util
from multiprocessing.connection import wait

import pytest

LOW_PRIORITY = 5


class Workers:
    """Hands out batches of tests in the main process, and passes on the reports.

    `batch_of` names the batch of a test. `may_wait` is true of a test that a worker of low priority may run.
    """

    def __init__(self, config, count, batch_of, may_wait=lambda item: False):
        self._config, self._count, self._batch_of, self._may_wait = config, count, batch_of, may_wait
        self._workers = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        """Run all tests. None: pytest lists them, or says which cannot be collected."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        batches = {}
        for index, item in enumerate(session.items):
            batches.setdefault(self._batch_of(item.nodeid), []).append(index)
        self._batches = deque(batches.values())
        # The folders of all workers are in this one. It is removed at the end, unless a test has failed.
        session.config._tmp_path_factory.getbasetemp()
        try:
            while self._batches or self._workers:
                self._fill(session)
                for connection in wait(self._workers):
                    self._receive(session, self._workers[connection])
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
        finally:
            for worker in self._workers.values():
                worker.connection.close()
                os.kill(worker.pid, signal.SIGINT)
            for worker in self._workers.values():
                os.waitpid(worker.pid, 0)
        return True

    def _fill(self, session):
        """Start workers, as many as are allowed and have something to do."""
        for is_low, count in ((False, self._count), (True, self._count // 4)):
            running = sum(worker.is_low == is_low for worker in self._workers.values())
            for _ in range(count - running):
                if batch := self._next_batch(session, is_low=is_low):
                    worker = Worker(session, self._workers, is_low=is_low)
                    self._workers[worker.connection] = worker
                    worker.run(batch)

    def _next_batch(self, session, *, is_low):
        """The next batch of a worker, or None."""
        if not self._batches:
            return None
        if not is_low:
            return self._batches.popleft()
        return self._batches.pop() if all(self._may_wait(session.items[one]) for one in self._batches[-1]) else None

    def _receive(self, session, worker):
        try:
            name, value = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            self._remove(session, worker)
            return
        if name == "report":
            report = self._config.hook.pytest_report_from_serializable(config=self._config, data=value)
            self._config.hook.pytest_runtest_logreport(report=report)
        elif name == "finished":
            item = session.items[worker.batch.popleft()]
            self._config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            if not worker.batch and (batch := self._next_batch(session, is_low=worker.is_low)):
                worker.run(batch)
            elif not worker.batch:
                worker.connection.send(None)

    def _remove(self, session, worker):
        """Remove a worker that has ended. If it was running a test, that has failed."""
        del self._workers[worker.connection]
        _, status = os.waitpid(worker.pid, 0)
        worker.connection.close()
        if not worker.batch and not status:
            return
        ended = f"a worker ended with exit code {os.waitstatus_to_exitcode(status)}"
        nodeid, location = ended, ("", None, ended)
        if worker.batch:
            item = session.items[worker.batch.popleft()]
            nodeid, location = item.nodeid, item.location
        if worker.batch:
            self._batches.appendleft(list(worker.batch))
        report = pytest.TestReport(nodeid, location, keywords={}, outcome="failed", longrepr=ended, when="call")
        self._config.hook.pytest_runtest_logreport(report=report)


class Worker:
    """A process that runs tests, the connection to it, and what it has to do."""

    def __init__(self, session, others, *, is_low):
        self.connection, there = Pipe()
        self.batch, self.is_low = deque(), is_low
        self.pid = os.fork()
        if self.pid == 0:
            os.nice(LOW_PRIORITY if is_low else 0)
            # Copies of these would hide from the other workers that the main process is gone.
            for other in (self.connection, *others):
                other.close()
            run_worker(session, there)
        there.close()

    def run(self, indexes):
        self.batch.extend(indexes)
        self.connection.send(indexes)


class ReportSender:
    """Sends the reports of a worker to the main process."""

    def __init__(self, config, connection):
        self._config, self._connection = config, connection

    def pytest_runtest_logreport(self, report):
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", data))


class NextBatch:
    """Stands for the first test of the next batch: until then, only fixtures of the session are kept."""

    def __init__(self, session):
        self._session = session

    def listchain(self):
        return [self._session]


def run_worker(session, connection):
    """Run a worker in the process that was just forked. The exit handlers of the main process are not for it."""
    atexit._clear()
    atexit.register(util._exit_function)
    exit_code = 1
    try:
        work(session, connection)
        exit_code = 0
    except BaseException:  # noqa: BLE001 - no report has it
        if not connection.poll():  # else the main process has closed it, and interrupts this one
            traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


def work(session, connection):
    """Run batches until there are no more."""
    config = session.config
    plugins = config.pluginmanager
    plugins.unregister(name="terminalreporter")
    plugins.register(ReportSender(config, connection))
    # Without this, all workers would capture output in the same files.
    capture = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    folders = config._tmp_path_factory
    folders._basetemp = folders.getbasetemp() / f"{os.getpid()}"
    folders._basetemp.mkdir()
    try:
        # The main process is gone, or was interrupted: there is nothing left to do.
        with suppress(EOFError, ConnectionError, KeyboardInterrupt):
            while (indexes := connection.recv()) is not None:
                items = [session.items[index] for index in indexes]
                for item, following in zip(items, [*items[1:], NextBatch(session)], strict=True):
                    config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                    connection.send(("finished", None))
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        session._setupstate.teardown_exact(None)
        capture.stop_global_capturing()
        coverage = plugins.getplugin("_cov")
        if coverage and coverage.cov_controller:
            coverage.cov_controller.cov.save()
