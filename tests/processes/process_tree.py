"""A program that starts processes in every way it can; each of them writes all the time that it is alive.

`python process_tree.py JOURNAL`. None of them heeds SIGTERM. A line has the run, the role, the process and the time.
"""

import os
import signal
import sys
from time import monotonic_ns, sleep  # noqa: TID251 - a program by itself, which nobody gives a clock

ROLES = ("program", "child", "session", "daemon")
BEAT = 0.01


def beat(role):
    descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    while True:
        line = f"{os.environ['NOONMARK_RUN_ID']} {role} {os.getpid()} {monotonic_ns()}\n"
        os.write(descriptor, line.encode())
        sleep(BEAT)


def main():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not os.fork():
        beat("child")
    if not os.fork():
        os.setsid()
        if not os.fork():
            beat("daemon")  # its parent in a session of its own, too, and it is not the first of that
        beat("session")
    beat("program")


if __name__ == "__main__":
    main()
