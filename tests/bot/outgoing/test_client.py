"""The guarded client against servers and names that mean no good."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
import ssl
import traceback
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from bot.outgoing import Fetched, NotAllowed, Outgoing, OutgoingError, TooLarge, Unreachable, client, origins
from tests.bot.outgoing.raw import Answering, Raw, answer, listening

CANARY = "canary-4711"


class Names(AbstractResolver):
    """Answers with these addresses, one list after the other; the last one stays."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        self.asked.append(host)
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not found:
            raise OSError("no such name")
        return [
            ResolveResult(
                hostname=host,
                host=one,
                port=port,
                family=socket.AF_INET6 if ":" in one else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for one in found
        ]

    async def close(self) -> None:
        pass


@pytest.fixture
async def here() -> AsyncIterator[Raw]:
    """Somebody who listens on this machine and shall never be asked."""
    async with listening(answer()) as raw:
        yield raw


@pytest.fixture
def any_port(monkeypatch: pytest.MonkeyPatch, here: Raw) -> None:
    """Allow that port, so that nothing but the address is left to refuse."""
    monkeypatch.setattr(origins, "PORTS", frozenset({here.port}))


@pytest.fixture
async def guarded() -> AsyncIterator[Outgoing]:
    outgoing = Outgoing()
    yield outgoing
    await outgoing.close()


HOSTS = [
    "127.0.0.1",
    "127.1.2.3",
    "0.0.0.0",  # noqa: S104 - an address of the table
    "localhost",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "0x7f.1",
    "127.1",
    "2130706433",
    "0177.0.0.1",
    "127.0.0.1.",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.usefixtures("any_port")
async def test_this_machine_is_never_connected_to(guarded: Outgoing, here: Raw, host: str) -> None:
    with pytest.raises(OutgoingError) as refused:
        await guarded.fetch("GET", f"https://{host}:{here.port}/{CANARY}")
    assert here.connections == 0
    if isinstance(refused.value, Unreachable):  # a form that the machine's own resolver doesn't know
        assert not refused.value.sent
    assert CANARY not in str(refused.value)


@pytest.mark.usefixtures("any_port")
async def test_without_the_guard_it_would_be(guarded: Outgoing, here: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "is_public", lambda _: True)
    with pytest.raises(Unreachable):  # it speaks no TLS
        await guarded.fetch("GET", f"https://127.0.0.1:{here.port}/")
    assert here.connections == 1


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["::1", "127.0.0.1"], ["10.0.0.1", "169.254.169.254"], ["::ffff:127.0.0.1"]]
)
@pytest.mark.usefixtures("any_port")
async def test_a_name_for_inner_addresses_is_refused(here: Raw, addresses: list[str]) -> None:
    outgoing = Outgoing(resolver=Names(addresses))
    try:
        with pytest.raises(NotAllowed, match="not at a public address") as refused:
            await outgoing.fetch("GET", f"https://rebinding.example:{here.port}/")
    finally:
        await outgoing.close()
    assert refused.value.origin == f"https://rebinding.example:{here.port}"
    assert here.connections == 0


@pytest.mark.usefixtures("any_port")
async def test_a_name_that_changes_its_mind_is_looked_at_each_time(here: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "is_public", lambda address: address == "127.0.0.1")  # the public one of this test
    outgoing = Outgoing(resolver=Names(["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2", "127.0.0.1"]))
    try:
        with pytest.raises(Unreachable):
            await outgoing.fetch("GET", f"https://rebinding.example:{here.port}/")
        assert here.connections == 1
        with pytest.raises(NotAllowed):
            await outgoing.fetch("GET", f"https://rebinding.example:{here.port}/")
        assert here.connections == 1
        with pytest.raises(Unreachable):  # of several addresses only the public one is used
            await outgoing.fetch("GET", f"https://rebinding.example:{here.port}/")
        assert here.connections > 1
    finally:
        await outgoing.close()


async def test_an_unknown_name_is_said_to_be() -> None:
    outgoing = Outgoing(resolver=Names([]))
    try:
        with pytest.raises(Unreachable, match="name is not known") as failed:
            await outgoing.fetch("POST", f"https://nowhere.example/{CANARY}", body=b"x")
    finally:
        await outgoing.close()
    assert not failed.value.sent


async def test_what_the_environment_says_of_proxies_is_not_followed(here: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, here.origin)
    outgoing = Outgoing(resolver=Names(["127.0.0.1"]))
    try:
        with pytest.raises(NotAllowed):
            await outgoing.fetch("GET", "https://provider.example/")
    finally:
        await outgoing.close()
    assert here.connections == 0
    async with listening(answer(b"[]")) as trusted:
        outgoing = Outgoing(trusted=[trusted.origin])
        assert (await outgoing.fetch("GET", trusted.origin)).json() == []
        await outgoing.close()
    assert here.connections == 0


# Answers of trusted origins, which may be hostile as well


async def fetched(answering: Answering, *, method: str = "GET", **asked: Any) -> tuple[Any, Raw]:
    async with listening(answering) as raw:
        outgoing = Outgoing(trusted=[raw.origin])
        try:
            return await outgoing.fetch(method, f"{raw.origin}/{CANARY}?q={CANARY}", **asked), raw
        finally:
            await outgoing.close()


async def test_an_answer_is_read_whole() -> None:
    found, raw = await fetched(
        answer(b'{"a": 1}', headers="X-A: 1\r\nX-A: 2\r\n"), method="POST", headers={"Accept": "application/json"}, body=b"abc"
    )
    assert (found.status, found.json(), found.headers["x-a"]) == (200, {"a": 1}, "1")
    assert raw.requests[0].startswith(f"POST /{CANARY}?q={CANARY} HTTP/1.1".encode())
    assert b"User-Agent: moorings\r\n" in raw.requests[0]


async def test_redirects_are_answers_and_not_followed(here: Raw) -> None:
    found, raw = await fetched(answer(status="302 Found", headers=f"Location: {here.origin}/inner\r\n"))
    assert (found.status, found.headers["Location"]) == (302, f"{here.origin}/inner")
    assert (raw.connections, here.connections) == (1, 0)


async def test_cookies_are_not_kept() -> None:
    async with listening(answer(headers="Set-Cookie: a=b; Path=/\r\n")) as raw:
        outgoing = Outgoing(trusted=[raw.origin])
        await outgoing.fetch("GET", raw.origin)
        await outgoing.fetch("GET", raw.origin)
        await outgoing.close()
        assert raw.connections == 2
        assert b"ookie" not in raw.requests[1]


def bomb() -> bytes:
    return gzip.compress(b"0" * (64 << 20))


@pytest.mark.parametrize(
    "answering",
    [
        answer(b"x" * 2_000),
        answer(bomb(), headers="Content-Encoding: gzip\r\n"),
    ],
    ids=["long", "gzip"],
)
async def test_more_than_was_agreed_is_not_read(answering: Answering) -> None:
    with pytest.raises(TooLarge, match="more than 1000 bytes"):
        await fetched(answering, limit=1_000)


async def test_a_body_without_an_end_is_cut_off() -> None:
    written = 0

    async def endless(head: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            await writer.drain()
            written += 4096

    with pytest.raises(TooLarge):
        await fetched(endless, limit=1 << 16)
    assert written < 64 << 20


async def test_who_drips_is_left_after_the_time() -> None:
    dripping = asyncio.Event()

    async def drip(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx")
        await writer.drain()
        await dripping.wait()

    with pytest.raises(Unreachable, match=r"more than 0\.3 s") as failed:
        await fetched(drip, seconds=0.3)
    assert failed.value.sent
    dripping.set()


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_what_is_no_http_may_have_been_acted_on(head: bytes) -> None:
    async def answering(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        await writer.drain()

    with pytest.raises(Unreachable) as failed:
        await fetched(answering, method="POST", body=b"x")
    assert failed.value.sent


async def test_nobody_there_means_nothing_was_sent() -> None:
    async with listening(answer()) as raw:
        origin = raw.origin
    outgoing = Outgoing(trusted=[origin])
    with pytest.raises(Unreachable, match="takes no connection") as failed:
        await outgoing.fetch("POST", origin, body=b"x")
    await outgoing.close()
    assert not failed.value.sent


@pytest.mark.parametrize(
    "asked",
    [
        {"method": "CONNECT"},
        {"method": "GET x"},
        {"headers": {"X-A": "b\r\nX-C: d"}},
        {"headers": {"X-A\r\n": "b"}},
        {"headers": {"X-A": "b\x00"}},
        {"headers": {"Host": "inner"}},
        {"headers": {"transfer-encoding": "chunked"}},
    ],
)
async def test_a_request_that_would_be_two_is_not_sent(here: Raw, asked: dict[str, Any]) -> None:
    outgoing = Outgoing(trusted=[here.origin])
    with pytest.raises(NotAllowed):
        await outgoing.fetch(asked.pop("method", "GET"), here.origin, **asked)
    await outgoing.close()
    assert here.connections == 0


@pytest.mark.parametrize(
    "answering",
    [answer(b"garbage " * 200), answer(b"", headers="\r\n\x00"), answer(status="x y")],
    ids=["long", "bad", "no status"],
)
async def test_no_error_tells_what_was_asked(answering: Answering, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = {"Authorization": f"Bearer {CANARY}"}
    failure: OutgoingError | None = None
    try:
        await fetched(answering, method="POST", headers=secret, body=CANARY.encode(), limit=100)
    except OutgoingError as error:
        failure = error
    assert failure is not None
    shown = [str(failure), repr(failure), *map(str, failure.args), *traceback.format_exception(failure), caplog.text]
    assert not [one for one in shown if CANARY in one or "garbage" in one]
    assert failure.__context__ is None or not isinstance(failure.__context__, Exception)
    assert failure.__cause__ is None


async def test_a_closed_client_opens_again(here: Raw) -> None:
    outgoing = Outgoing(trusted=[here.origin])
    assert (await outgoing.fetch("GET", here.origin)).status == 200
    await outgoing.close()
    await outgoing.close()
    assert (await outgoing.fetch("GET", here.origin)).status == 200
    await outgoing.close()


async def test_a_large_body_is_sent_without_a_word(here: Raw) -> None:
    outgoing = Outgoing(trusted=[here.origin])
    assert (await outgoing.fetch("PUT", here.origin, body=b"x" * (3 << 20))).status == 200
    await outgoing.close()


@pytest.mark.parametrize("body", [b"", b"<html>", b"NaN", b"[1, Infinity]", b"[" * 100_000, b"\xff", b"{} {}"])
async def test_what_is_no_json_is_said_to_be_none(body: bytes) -> None:
    from bot.outgoing import NotJson

    found, _ = await fetched(answer(body))
    with pytest.raises(NotJson) as failed:
        found.json()
    assert failed.value.__context__ is None


# TLS


def self_signed(folder: Path) -> ssl.SSLContext:
    """Make a certificate for `provider.example` that nobody vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "provider.example")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("provider.example")]), critical=False)
    (folder / "cert.pem").write_bytes(made.sign(key, SHA256()).public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


async def test_a_certificate_that_nobody_vouches_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=self_signed(tmp_path))
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setattr(client, "is_public", lambda _: True)
    monkeypatch.setattr(origins, "PORTS", frozenset({port}))
    outgoing = Outgoing(resolver=Names(["127.0.0.1"]))
    with pytest.raises(Unreachable, match="certificate") as failed:
        await outgoing.fetch("POST", f"https://provider.example:{port}/", body=CANARY.encode())
    await outgoing.close()
    server.close()
    assert not failed.value.sent
    assert CANARY.encode() not in b"".join(heard)


def test_a_number_past_64_bits_comes_whole() -> None:
    assert Fetched(200, {}, b'{"id": 123456789012345678901234567890}').json() == {"id": 123456789012345678901234567890}
