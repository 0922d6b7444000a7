"""A process at the far end of a wire: `python -m tests.servers.writer postgresql://..`.

It writes each number that it reads, and says whether it was told that it is written.
"""

import asyncio
import sys

import asyncpg

INSERT = "INSERT INTO marks VALUES ($1)"
PATIENCE = 1.0
"""Seconds until it takes the line for dead."""


async def write(connections, url, number):
    try:
        if not connections:
            connections.append(await asyncpg.connect(url, timeout=PATIENCE))
        await asyncio.wait_for(connections[0].execute(INSERT, number), PATIENCE)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        for broken in connections:
            broken.terminate()
        connections.clear()
        return f"not told: {error!r}"
    return "told"


async def main(url):
    connections = []
    while number := (await asyncio.to_thread(sys.stdin.readline)).strip():
        sys.stdout.write(await write(connections, url, int(number)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
