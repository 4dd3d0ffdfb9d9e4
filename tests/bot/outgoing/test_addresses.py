"""Which addresses and which URLs may be asked, as tables."""

from __future__ import annotations

import pytest

from bot.outgoing import NotAllowed, Outgoing
from bot.outgoing.addresses import is_public

PUBLIC = [
    "93.184.216.34",
    "8.8.8.8",
    "2606:2800:220:1:248:1893:25c8:1946",
    "2a00:1450:4001::1",
    "64:ff9b::808:808",
    "::ffff:8.8.8.8",
]
NOT_PUBLIC = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",  # noqa: S104 - an address of the table
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.0.9",
    "192.0.0.170",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.251",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::808:808",
    "100::1",
    "2001::7f00:1",
    "2001:0:808:808:8000:63bf:3fff:fdd2",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "localhost",
    "",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_hosts_may_be_asked(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_nothing_else_may(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    ("url", "origin", "reason"),
    [
        ("http://provider.example/a", "http://provider.example", "only https"),
        ("ftp://provider.example/a", "ftp://provider.example", "only https"),
        ("wss://provider.example/a", "wss://provider.example", "only https"),
        ("file:///etc/passwd", "", "no host"),
        ("https:///a", "", "no host"),
        ("//provider.example/a", "", "no host"),
        ("/a", "", "no host"),
        ("", "", "no host"),
        ("https://provider.example:80/a", "https://provider.example:80", "ports 443, 8443"),
        ("https://provider.example:22/a", "https://provider.example:22", "ports 443, 8443"),
        ("https://provider.example:0/a", "https://provider.example:0", "ports 443, 8443"),
        ("https://provider.example:99999/a", "", "no URL"),
        ("https://provider.example:x/a", "", "no URL"),
        ("https://user@provider.example/a", "https://provider.example", "names a user"),
        ("https://user:secret@provider.example/a", "https://provider.example", "names a user"),
        ("https://@provider.example/a", "https://provider.example", "names a user"),
        ("https://trusted.example:9000@evil.example/", "https://evil.example", "names a user"),
        ("https://provider.example\\@evil.example/", "", "no URL may hold"),
        ("https://provider.example/a b", "", "no URL may hold"),
        ("https://provider.example/\r\nHost: evil", "", "no URL may hold"),
        ("https://provider.example/\x00", "", "no URL may hold"),
        ("https://[::1", "", "no URL"),
        ("https://" + "a" * 9_000, "", "too long"),
    ],
)
def test_a_url_is_judged_by_its_words(url: str, origin: str, reason: str) -> None:
    with pytest.raises(NotAllowed, match=reason) as refused:
        Outgoing(trusted=["http://trusted.example:9000"]).check(url)
    assert refused.value.origin == origin


def test_good_urls_are_let_through() -> None:
    client = Outgoing(trusted=["http://127.0.0.1:8700/"])
    assert client.check("https://provider.example/a?b=c#d") == "https://provider.example"
    assert client.check("https://provider.example:8443/") == "https://provider.example:8443"
    assert client.check("https://PROVIDER.example:443/") == "https://provider.example"
    assert client.check("https://[2606:2800::1]/") == "https://[2606:2800::1]"
    assert client.check("http://127.0.0.1:8700/demo/authorize") == "http://127.0.0.1:8700"


def test_trust_is_for_one_origin() -> None:
    client = Outgoing(trusted=["http://127.0.0.1:8700", "http://tracker.internal"])
    assert client.check("http://tracker.internal:80/a") == "http://tracker.internal"
    for other in (
        "http://127.0.0.1:8701/",
        "http://localhost:8700/",
        "http://127.0.0.1/",
        "http://127.0.0.1.evil.example:8700/",
        "http://tracker.internal:8080/",
    ):
        with pytest.raises(NotAllowed):
            client.check(other)


def test_strangers_lead_nowhere_trusted() -> None:
    client = Outgoing(trusted=["http://127.0.0.1:8700"])
    assert client.check("http://127.0.0.1:8700/token", named_by="http://127.0.0.1:8700/.well-known/openid-configuration")
    with pytest.raises(NotAllowed):
        client.check("http://127.0.0.1:8700/token", named_by="https://provider.example/.well-known/openid-configuration")


@pytest.mark.parametrize("origin", ["", "127.0.0.1", "localhost:", "/demo", "http://"])
def test_trust_in_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ValueError, match=r"takes origins|URL|scheme"):
        Outgoing(trusted=[origin])
