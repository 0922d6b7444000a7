"""A program at a shell, by the fork server: `python -I -S forked_command.py SOCKET PROGRAM ARGUMENT..`.

The program is a module or the path of a script, as for `python -m` and `python`. This process imports little.

Signals go on to the program. If this process is killed, the fork server kills the program.
"""

import _signal as signals
import _socket as sockets
import os
import sys
from json import dumps

CODE_BYTES = 100


def main():
    connection = sockets.socket(sockets.AF_UNIX, sockets.SOCK_SEQPACKET)
    connection.connect(sys.argv[1])
    request = {
        "program": sys.argv[2],
        "arguments": sys.argv[3:],
        "folder": os.getcwd(),  # noqa: PTH109 - a path takes as long to import as all the rest
        "environment": dict(os.environ),
        "is_session": False,
    }
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
    connection.sendmsg([dumps(request).encode()], [(sockets.SOL_SOCKET, sockets.SCM_RIGHTS, streams)])
    pid = int(connection.recv(CODE_BYTES))
    for number in (signals.SIGINT, signals.SIGTERM):
        if signals.getsignal(number) != signals.SIG_IGN:
            signals.signal(number, lambda number, _: os.kill(pid, number))
    code = int(connection.recv(CODE_BYTES))
    if code < 0:
        signals.signal(-code, signals.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
