"""Which hosts a request may go to: by their spelling, and by their addresses."""

import pytest

from noonmark.core.targets.egress import EgressPolicy, Guard, egress_policy
from noonmark.core.urls import parse_url

STRICT, LOCAL, OFF = (EgressPolicy(guard=guard) for guard in Guard)

PUBLIC = ["8.8.8.8", "1.1.1.1", "172.15.0.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00::1"]
NEIGHBOURS = [
    "127.0.0.1",
    "127.255.255.254",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "::1",
    "fc00::1",
    "fd12:3456::1",
]
FORBIDDEN = [
    "169.254.169.254",
    "169.254.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::1",
    "0.0.0.0",  # noqa: S104 - an address that is refused
    "0.1.2.3",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "::",
    "::127.0.0.1",
    "ff02::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "3fff::1",
    "fec0::1",
    "100::1",
]


def refused(reach, address):
    by_name = reach.address_problem("somewhere.example", address)
    assert (by_name is None) == (reach.host_problem(address) is None)
    return by_name is not None


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_open(address):
    assert [refused(reach, address) for reach in (STRICT, LOCAL, OFF)] == [False, False, False]


@pytest.mark.parametrize("address", NEIGHBOURS)
def test_this_machine_and_private_networks_are_open_where_that_is_said(address):
    assert [refused(reach, address) for reach in (STRICT, LOCAL, OFF)] == [True, False, False]


@pytest.mark.parametrize("address", FORBIDDEN)
def test_what_is_link_local_metadata_or_no_host_at_all_is_never_open(address):
    assert [refused(reach, address) for reach in (STRICT, LOCAL, OFF)] == [True, True, False]


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0X7F.0.0.1",
        "127.1",
        "127.0.1",
        "0177.0.0.1",
        "127.0.0.01",
        "127.0.0.1.",
        "1.2.3.4.5",
        "256.1.1.1",
        "example.123",
        "١٢٧.٠.٠.١",
        "１２７.0.0.1",
        "①②⑦.0.0.1",
        "ｅxample.com",
        "0x",
        # IPv4 in the form of IPv6, public or not.
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "::FFFF:7F00:0001",
        "0:0:0:0:0:ffff:127.0.0.1",
        "0000:0000:0000:0000:0000:ffff:7f00:0001",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:1.1.1.1",
        "::ffff:101:101",
        "64:ff9b::101:101",
        "64:ff9b::1.1.1.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::101:101",
        "::1.1.1.1",
        "2002:101:101::",
        "2002:101:101::1",
        "2001:0:101:101::",
        # Names of this machine.
        "localhost.",
        "LOCALHOST.",
        "a.localhost.",
    ],
)
def test_addresses_in_odd_forms_are_refused_by_their_spelling(host):
    assert [reach.host_problem(host) is None for reach in (STRICT, LOCAL, OFF)] == [False, False, True]


@pytest.mark.parametrize(
    ("host", "strict", "local"),
    [
        ("localhost", False, True),
        ("LOCALHOST", False, True),
        ("a.localhost", False, True),
        ("metadata.google.internal", False, False),
        ("Metadata.Google.Internal.", False, False),
        ("metadata", False, False),
        ("instance-data", False, False),
        ("example.com", True, True),
        ("example.com.", True, True),
        ("bücher.example", True, True),
        ("straße.example", True, True),
        ("x7f.example", True, True),
        ("localhost.example", True, True),
        ("1and1.com", True, True),
    ],
)
def test_names_that_say_where_they_lead_are_judged_at_once(host, strict, local):
    assert [reach.host_problem(host) is None for reach in (STRICT, LOCAL, OFF)] == [strict, local, True]


def test_what_is_opened_is_open_by_name_by_address_and_by_network():
    reach = egress_policy(
        Guard.STRICT, ["Inside.Example", "10.1.0.0/16", "192.168.1.7", "fd12::/16", "169.254.169.254"]
    )
    assert reach.host_problem("inside.example.") is None
    assert reach.address_problem("inside.example", "127.0.0.1") is None
    assert reach.address_problem("other.example", "127.0.0.1") is not None
    assert [reach.host_problem(one) is None for one in ("10.1.2.3", "10.2.2.3", "192.168.1.7", "fd12::9")] == [
        True,
        False,
        True,
        True,
    ]
    assert reach.host_problem("169.254.169.254") is None
    assert reach.host_problem("::ffff:10.1.2.3").endswith("is an address in an unusual form; write it as 10.1.2.3")
    assert reach.address_problem("other.example", "::ffff:10.1.2.3") is None
    assert egress_policy(Guard.STRICT, ["64:ff9b::/96"]).host_problem("64:ff9b::a01:203") is None


@pytest.mark.parametrize(
    ("address", "strict", "local"),
    [
        ("::ffff:1.1.1.1", True, True),
        ("::ffff:127.0.0.1", False, True),
        ("::ffff:10.0.0.1", False, True),
        ("::ffff:169.254.169.254", False, False),
        ("64:ff9b::101:101", True, True),
        ("64:ff9b::7f00:1", False, True),
        ("64:ff9b::a9fe:a9fe", False, False),
    ],
)
def test_what_a_name_stands_for_is_judged_as_the_address_that_is_reached(address, strict, local):
    told = [reach.address_problem("a.example", address) is None for reach in (STRICT, LOCAL, OFF)]
    assert told == [strict, local, True]


def test_a_host_or_an_address_may_be_open_at_one_port_alone():
    reach = egress_policy(
        Guard.STRICT, ["127.0.0.1:9321", "inside.example:8080", "[::1]:443", "[fd12::9]", "localhost:80"]
    )
    open_ones = ["http://127.0.0.1:9321/", "http://localhost/", "https://[::1]/", "http://[fd12::9]:5/"]
    shut_ones = ["http://127.0.0.1/", "http://127.0.0.2:9321/", "https://localhost/", "http://[::1]/"]
    assert [reach.url_problem(parse_url(url)) for url in open_ones] == [None] * 4
    assert [reach.url_problem(parse_url(url)) is not None for url in shut_ones] == [True] * 4
    assert reach.address_problem("inside.example", "10.0.0.1", 8080) is None
    assert reach.address_problem("inside.example", "10.0.0.1", 8081) is not None
    assert reach.address_problem("other.example", "127.0.0.1", 9321) is None


@pytest.mark.parametrize("written", ["a.example:0", "a.example:65536", "10.0.0.0/8:80", "127.1:80", "[::1", "a b"])
def test_an_invalid_place_cannot_be_opened(written):
    with pytest.raises(ValueError):  # noqa: PT011 - the reader of the setting says what is allowed
        egress_policy(Guard.STRICT, [written])


def test_a_refusal_says_what_it_is_and_who_can_change_it():
    assert STRICT.url_problem(parse_url("http://[::1]:80/")) == (
        "::1 is a loopback address, and this node sends no requests there; to allow it, name it in the setting"
        " allow_hosts"
    )
    assert STRICT.address_problem("a.example", "fe80::1%eth0").startswith("a.example (fe80::1) is a link-local address")
    assert STRICT.url_problem(parse_url("https://example.com/")) is None


def test_a_star_opens_all_hosts_below_a_name_and_no_other():
    reach = egress_policy(Guard.STRICT, ["*.Inside.example", "*.localhost:8080"])
    for host in ("a.inside.example", "a.b.inside.example", "A.Inside.Example"):
        assert reach.address_problem(host, "10.0.0.1", 443) is None
    for host in ("inside.example", "ainside.example", "inside.example.com", "a.inside.example.org", "example"):
        assert reach.address_problem(host, "10.0.0.1", 443) is not None
    assert [reach.host_problem("db.localhost", port) is None for port in (8080, 80, None)] == [True, False, False]
    assert reach.host_problem("localhost", 8080) is not None
    assert reach.host_problem("127.0.0.1", 8080) is not None


@pytest.mark.parametrize(
    ("host", "address", "star", "exact"),
    [
        ("metadata.google.internal", "169.254.169.254", False, True),
        ("Metadata.Google.Internal.", "169.254.169.254", False, True),
        ("metadata.google.internal", "8.8.8.8", False, True),
        ("a.internal", "169.254.169.254", False, True),
        ("a.internal", "::ffff:169.254.169.254", False, True),
        ("a.internal", "64:ff9b::a9fe:a9fe", False, True),
        ("a.internal", "fd00:ec2::254", False, True),
        ("a.internal", "169.254.7.7", False, True),
        ("a.internal", "fe80::1%eth0", False, True),
        ("a.internal", "224.0.0.1", False, True),
        ("a.internal", "ff02::1", False, True),
        ("ａ.internal", "10.0.0.1", False, True),
        ("a.internal", "10.0.0.1", True, True),
        ("a.internal", "127.0.0.1", True, True),
        ("a.internal", "198.18.0.1", True, True),
        ("a.internal", "8.8.8.8", True, True),
    ],
)
@pytest.mark.parametrize("guard", [Guard.STRICT, Guard.LOCAL])
def test_a_star_opens_no_metadata_server_and_an_exact_name_does(guard, host, address, star, exact):
    def is_open(*opened):
        reach = egress_policy(guard, opened)
        return reach.host_problem(host, 80) is None and reach.address_problem(host, address, 80) is None

    assert (is_open("*.internal"), is_open("*.internal:80"), is_open(host)) == (star, star, exact)
    assert is_open("*.internal", "169.254.0.0/16", "fe80::/10", "fd00:ec2::254", "224.0.0.1", "ff02::1") == (
        star or host == "a.internal"
    )
