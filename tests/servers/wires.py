"""A wire between processes and a PostgreSQL server that can be cut, in one or both directions.

Where this user may make a network namespace, it is a real one: the processes live in it, and their packets are lost.
Elsewhere a proxy does much the same to their connections.
"""

import os
import subprocess
from contextlib import ExitStack, contextmanager, suppress

from tests.servers.postgres import LOOPBACK, QUICK, running
from tests.servers.proxy import TO_CLIENT, Proxy

NOWHERE = "02:00:00:00:00:01"
"""An address of no network card: what is sent there is lost on the way, and nobody is told."""


class ProxiedWire:
    """By way of a proxy."""

    kind = "proxy"
    command = ()
    """What to put before a command, so that it runs at the far end."""

    def __init__(self, server):
        self.server = server
        self._proxy = Proxy(server.port)

    def url(self, database):
        """The address of a database, as seen from the far end."""
        return self.server.url(database, port=self._proxy.port)

    def pull(self):
        """Let nothing through, either way."""
        self._proxy.black_hole()

    def lose(self, direction):
        """Let nothing through that way."""
        self._proxy.black_hole(direction)

    def plug(self):
        """Let everything through again."""
        self._proxy.heal()

    def close(self):
        self._proxy.close()


class Namespace:
    """A network of two addresses: this machine, and a namespace of its own at the far end of a pair of interfaces."""

    def __init__(self):
        """OSError or CalledProcessError where it cannot be made; nothing is left of it then."""
        number = os.getpid() % 2**15
        # A range that is meant for testing devices, four addresses for each process.
        third, fourth = divmod(4 * number, 256)
        prefix = f"198.{18 + third // 256}.{third % 256}"
        self.network = f"{prefix}.{fourth}/30"
        self.near, self.far = f"{prefix}.{fourth + 1}", f"{prefix}.{fourth + 2}"
        self.name = f"noonmark-{number}"
        self.near_card, self.far_card = f"nm{number}", f"nm{number}f"
        try:
            _ip("netns", "add", self.name)
            _ip("link", "add", self.near_card, "type", "veth", "peer", "name", self.far_card, "netns", self.name)
            _ip("addr", "add", f"{self.near}/30", "dev", self.near_card)
            _ip("link", "set", self.near_card, "up")
            self.inside("addr", "add", f"{self.far}/30", "dev", self.far_card)
            self.inside("link", "set", self.far_card, "up")
            self.inside("link", "set", "lo", "up")
        except BaseException:
            self.close()
            raise

    def inside(self, *arguments):
        """Change something in the namespace."""
        _ip("-n", self.name, *arguments)

    def close(self):
        for command in (("link", "del", self.near_card), ("netns", "del", self.name)):
            with suppress(OSError, subprocess.CalledProcessError):
                _ip(*command)


class NamespacedWire:
    """By way of a network namespace."""

    kind = "namespace"

    def __init__(self, server, namespace):
        self.server, self._namespace = server, namespace
        self.command = ("ip", "netns", "exec", namespace.name)

    def url(self, database):
        return self.server.url(database, host=self._namespace.near)

    def pull(self):
        _ip("link", "set", self._namespace.near_card, "down")

    def lose(self, direction):
        """The sender is not told; a route that leads nowhere would tell it."""
        space = self._namespace
        if direction == TO_CLIENT:
            _ip("neigh", "replace", space.far, "lladdr", NOWHERE, "dev", space.near_card, "nud", "permanent")
        else:
            space.inside("neigh", "replace", space.near, "lladdr", NOWHERE, "dev", space.far_card, "nud", "permanent")

    def plug(self):
        space = self._namespace
        _ip("link", "set", space.near_card, "up")
        _ip("neigh", "flush", "dev", space.near_card, "nud", "permanent")
        space.inside("neigh", "flush", "dev", space.far_card, "nud", "permanent")

    def close(self):
        self._namespace.close()


@contextmanager
def wired(*, namespaced=True, **settings):
    """A server of its own and a wire to it, as long as the block."""
    with ExitStack() as stack:
        namespace = _namespace() if namespaced else None
        if namespace is not None:
            stack.callback(namespace.close)
            settings = {"listen_addresses": f"{LOOPBACK},{namespace.near}", "trusted": namespace.network, **settings}
        server = stack.enter_context(running(**{**QUICK, **settings}))
        wire = ProxiedWire(server) if namespace is None else NamespacedWire(server, namespace)
        stack.callback(wire.close)
        yield wire


def _namespace():
    try:
        return Namespace()
    except (OSError, subprocess.CalledProcessError):
        return None


def _ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
