"""The proxy, with a real client and a real server: the effect of each fault, and which commits took place."""

import asyncio

import psycopg
import pytest

from noonmark.clocks import SystemClock
from noonmark.core.instants import SECOND
from tests.servers.proxy import TO_CLIENT, TO_SERVER, proxied

CLOCK = SystemClock()
MOMENT = 0.5
"""Seconds after which a client that has heard nothing takes the line for dead."""
BROKEN = psycopg.OperationalError


@pytest.fixture
def proxy(postgres):
    with proxied(postgres) as made:
        yield made


@pytest.fixture
def table(database):
    database.sql("CREATE TABLE marks (id int PRIMARY KEY, note text)")
    return database


def kept(table):
    """What has been committed, by way of a connection of its own."""
    return table.sql("SELECT string_agg(id::text, ' ' ORDER BY id) FROM marks").split()


def talk(conversation):
    return asyncio.run(asyncio.wait_for(conversation, 60))


async def connected(table, proxy):
    return await psycopg.AsyncConnection.connect(
        table.through(proxy), autocommit=True, cursor_factory=psycopg.AsyncRawCursor
    )


async def insert(connection, number):
    await connection.execute("INSERT INTO marks VALUES ($1)", [number])


async def fetch(connection, statement):
    return await (await connection.execute(statement)).fetchall()


def test_everything_passes_and_is_counted(proxy, table):
    async def conversation():
        connection = await connected(table, proxy)
        await connection.execute("INSERT INTO marks VALUES (1)")
        await insert(connection, 2)
        await connection.cursor().executemany("INSERT INTO marks VALUES ($1)", [(3,), (4,)])
        async with connection.cursor().copy("COPY marks FROM STDIN") as copy:
            await copy.write_row((5, "x" * 300_000))
        written = await fetch(connection, "WITH new AS (INSERT INTO marks VALUES (6) RETURNING id) SELECT id FROM new")
        async with connection.transaction():
            await insert(connection, 7)
        with pytest.raises(psycopg.errors.UniqueViolation):
            await insert(connection, 7)
        await connection.execute("BEGIN")
        await insert(connection, 8)
        await connection.execute("ROLLBACK")
        [(note,)] = await fetch(connection, "SELECT note FROM marks WHERE id = 5")
        await connection.close()
        return written, len(note)

    written, length = talk(conversation())
    assert written == [(6,)]
    assert length == 300_000
    assert kept(table) == list("1234567")
    assert proxy.seen == {"connections": 1, "commits": 1, "statements": 5}


async def commit_prepared(connection):
    await connection.execute("COMMIT", prepare=True)


COMMITS = {
    "asked": lambda connection: connection.execute("COMMIT"),
    "prepared": commit_prepared,
    "with others": lambda connection: connection.execute("INSERT INTO marks VALUES (2); COMMIT"),
}


@pytest.mark.parametrize("way", COMMITS)
def test_a_commit_whose_reply_is_dropped_has_been_done(proxy, table, way):
    async def conversation():
        connection = await connected(table, proxy)
        await connection.execute("BEGIN")
        await insert(connection, 1)
        proxy.drop_replies()
        with pytest.raises(BROKEN):
            await COMMITS[way](connection)
        assert connection.closed

    talk(conversation())
    assert kept(table) == (["1", "2"] if way == "with others" else ["1"])
    assert (proxy.seen["commits"], proxy.seen["dropped"]) == (1, 1)


def test_a_commit_that_failed_is_not_a_commit(proxy, table):
    async def conversation():
        connection = await connected(table, proxy)
        proxy.drop_replies()
        await connection.execute("BEGIN")
        with pytest.raises(psycopg.errors.UndefinedTable):
            await connection.execute("INSERT INTO nothing VALUES (1)")
        await connection.execute("COMMIT")
        await connection.close()

    talk(conversation())
    assert proxy.seen == {"connections": 1}


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO marks VALUES (1)",
        "WITH new AS (INSERT INTO marks VALUES (1) RETURNING id) SELECT id FROM new",
    ],
)
@pytest.mark.parametrize("prepared", [False, True])
def test_the_reply_to_a_statement_of_its_own_is_dropped_only_when_asked_for(proxy, table, statement, prepared):
    async def conversation():
        connection = await connected(table, proxy)
        proxy.drop_replies()
        await insert(connection, 0)
        assert await fetch(connection, "SELECT count(*) FROM marks") == [(1,)]
        proxy.drop_replies(statements=True)
        assert await fetch(connection, "SELECT count(*) FROM marks") == [(1,)], "it writes nothing"
        with pytest.raises(BROKEN):
            await connection.execute(statement, prepare=prepared)

    talk(conversation())
    assert kept(table) == ["0", "1"]
    assert proxy.seen == {"connections": 1, "statements": 2, "dropped": 1}


def test_a_share_of_the_replies_is_dropped_and_all_commits_are_done(proxy, table):
    proxy.drop_replies(0.2)
    collected, count = [], 200

    async def conversation():
        connection = await connected(table, proxy)
        for number in range(count):
            try:
                async with connection.transaction():
                    await insert(connection, number)
                collected.append(number)
            except BROKEN:
                connection = await connected(table, proxy)
        await connection.close()

    talk(conversation())
    assert len(kept(table)) == count
    assert proxy.seen["commits"] == count
    assert proxy.seen["dropped"] == count - len(collected)
    assert 20 <= proxy.seen["dropped"] <= 60


def test_everything_arrives_later_by_the_delay_either_way(proxy, table):
    async def conversation():
        connection = await connected(table, proxy)
        proxy.delay(0.2)
        begun = CLOCK.monotonic()
        assert len(await fetch(connection, "SELECT repeat('x', 1000) FROM generate_series(1, 2000)")) == 2_000
        late = CLOCK.monotonic() - begun
        proxy.delay(30)
        task = asyncio.ensure_future(connection.execute("INSERT INTO marks VALUES (1)"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), MOMENT)
        assert kept(table) == []
        proxy.heal()
        await task
        await connection.close()
        return late

    late = talk(conversation())
    assert late >= 2 * 0.2 * SECOND, "there and back"
    assert kept(table) == ["1"]


def test_connections_that_are_cut_break_and_new_ones_are_welcome(proxy, table):
    async def conversation():
        connections = [await connected(table, proxy) for _ in range(3)]
        await connections[0].execute("BEGIN; INSERT INTO marks VALUES (1)")
        sleeping = asyncio.ensure_future(connections[1].execute("SELECT pg_sleep(60)"))
        assert proxy.connections == 3
        proxy.cut()
        for asked in (sleeping, connections[0].execute("COMMIT"), connections[2].execute("SELECT 1")):
            with pytest.raises(BROKEN):
                await asked
        again = await connected(table, proxy)
        await insert(again, 2)
        await again.close()

    talk(conversation())
    assert kept(table) == ["2"]
    assert proxy.seen["cut"] == 3


def test_new_connections_are_refused_and_old_ones_go_on_until_it_is_healed(proxy, table):
    async def conversation():
        connection = await connected(table, proxy)
        proxy.refuse()
        with pytest.raises(BROKEN):
            await connected(table, proxy)
        await insert(connection, 1)
        await connection.close()
        proxy.heal()
        again = await connected(table, proxy)
        await insert(again, 2)
        await again.close()

    talk(conversation())
    assert kept(table) == ["1", "2"]


@pytest.mark.parametrize(
    ("directions", "is_done_meanwhile"), [([TO_SERVER], False), ([TO_CLIENT], True), ([TO_SERVER, TO_CLIENT], False)]
)
def test_a_black_hole_swallows_one_direction_and_gives_it_back_when_healed(proxy, table, directions, is_done_meanwhile):
    async def conversation():
        connection = await connected(table, proxy)
        proxy.black_hole(*directions)
        task = asyncio.ensure_future(connection.execute("INSERT INTO marks VALUES (1)"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), MOMENT)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connected(table, proxy), MOMENT)
        assert not connection.closed
        meanwhile = kept(table)
        proxy.heal()
        await task
        await insert(connection, 2)
        await connection.close()
        return meanwhile

    assert talk(conversation()) == (["1"] if is_done_meanwhile else [])
    assert kept(table) == ["1", "2"]


def test_a_connection_in_a_black_hole_can_be_cut(proxy, table):
    async def conversation():
        connection = await connected(table, proxy)
        proxy.black_hole()
        task = asyncio.ensure_future(connection.execute("INSERT INTO marks VALUES (1)"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), MOMENT)
        proxy.cut()
        with pytest.raises(BROKEN):
            await task

    talk(conversation())
    assert kept(table) == []


def test_a_server_that_is_not_there_is_refused_by_the_proxy_too(proxy, table):
    proxy._server = 1

    async def conversation():
        with pytest.raises(BROKEN):
            await connected(table, proxy)

    talk(conversation())
    assert proxy.seen == {"refused": 1}
