"""A process at the far end of a wire: `python -m tests.servers.writer postgresql://..`.

It writes each number that it reads, and says whether it was told that it is written.
"""

import sys

import psycopg

from noonmark.stores.postgres.address import parse_address
from noonmark.stores.postgres.connections import connect

INSERT = "INSERT INTO marks VALUES ($1)"
OPTIONS = "schema=public&timeout=1"
"""A connection on which nothing is heard for a second and a half is taken for dead."""


def write(connections, address, number):
    try:
        if not connections:
            connections.append(connect(address))
        connections[0].fetch(INSERT, [number])
    except psycopg.Error as error:
        for broken in connections:
            broken.close()
        connections.clear()
        return f"not told: {error!r}"
    return "told"


def main(url):
    address, connections = parse_address(f"{url}?{OPTIONS}"), []
    while number := sys.stdin.readline().strip():
        sys.stdout.write(write(connections, address, int(number)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
