"""Who the real demo does not serve: other sites, other machines, whoever has no key."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.demo import Demo

JSON = {"Content-Type": "application/json"}
POSTS = ("/v1/sessions", "/console/api/threads")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        error: dict[str, Any] = json.loads(self.body)["error"]
        return str(error["code"])


def ask(demo: Demo, method: str, path: str, *, body: bytes | None = None, **headers: str) -> Answer:
    """Send exactly these headers; the Host is the demo's own unless given."""
    sent = {"Host": f"127.0.0.1:{demo.port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        sent["Content-Length"] = str(len(body))
    connection = http.client.HTTPConnection("127.0.0.1", demo.port, timeout=20)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


def cookie(demo: Demo) -> str:
    opened = ask(demo, "GET", f"/console/?k={demo.key}")
    assert opened.status == 302
    assert "HttpOnly" in opened.headers["Set-Cookie"]
    assert "SameSite=Strict" in opened.headers["Set-Cookie"]
    return opened.headers["Set-Cookie"].partition(";")[0]


def hello(path: str) -> bytes:
    fields = {"message": "hello"} if path.startswith("/v1") else {"author": "alice", "text": "hello", "client_id": "guard-0001"}
    return json.dumps(fields).encode()


def test_the_address_opens_the_page_and_the_api(demo: Demo) -> None:
    assert ask(demo, "GET", "/console/", Cookie=cookie(demo)).status == 200
    assert ask(demo, "POST", POSTS[0], body=hello(POSTS[0]), Content_Type="application/json").status == 202
    made = ask(demo, "POST", POSTS[1], body=hello(POSTS[1]), Content_Type="application/json", Cookie=cookie(demo))
    assert made.status == 202


@pytest.mark.parametrize("host", ["evil.test", "evil.test:8700", "127.0.0.1", "127.0.0.1:1", "localhost.evil.test"])
def test_a_rebound_name_is_refused(demo: Demo, host: str) -> None:
    pages = ("/console/", f"/console/?k={demo.key}", "/console/api/state")
    answers = [ask(demo, "GET", path, Host=host, Cookie=cookie(demo)) for path in pages]
    answers += [ask(demo, "POST", path, body=hello(path), Host=host, Content_Type="application/json") for path in POSTS]
    assert [answer.status for answer in answers] == [403] * 5
    assert all("Set-Cookie" not in answer.headers for answer in answers)
    assert {answer.code for answer in answers} == {"forbidden"}


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("origin", ["http://evil.test", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}"])
def test_another_sites_page_may_not_post(demo: Demo, path: str, origin: str) -> None:
    origin = origin.format(port=demo.port)
    headers = {"Content_Type": "application/json", "Cookie": cookie(demo)}
    answer = ask(demo, "POST", path, body=hello(path), Origin=origin, **headers)
    assert (answer.status, answer.code) == (403, "forbidden")
    own = ask(demo, "POST", path, body=hello(path), Origin=demo.base, **headers)
    assert own.status == 202


@pytest.mark.parametrize("path", POSTS)
def test_a_cross_site_request_is_refused_without_an_origin(demo: Demo, path: str) -> None:
    headers = {"Content_Type": "application/json", "Cookie": cookie(demo), "Sec_Fetch_Site": "cross-site"}
    answer = ask(demo, "POST", path, body=hello(path), **headers)
    assert (answer.status, answer.code) == (403, "forbidden")


def test_a_link_on_another_site_does_not_open_the_page(demo: Demo) -> None:
    answer = ask(demo, "GET", f"/console/?k={demo.key}", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")
    assert answer.status == 403
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("query", ["", "?k=", "?k=wrong", "?k={key}x"])
def test_no_page_without_the_key(demo: Demo, query: str) -> None:
    answer = ask(demo, "GET", "/console/" + query.format(key=demo.key))
    assert answer.status == 401
    assert "Set-Cookie" not in answer.headers
    assert b"address" in answer.body


@pytest.mark.parametrize("stale", ["", "moorings_console_{port}=wrong", "moorings_console_{port}={key}"])
def test_no_call_without_the_cookie(demo: Demo, stale: str) -> None:
    value = stale.format(port=demo.port, key=demo.key)
    for method, path in (("GET", "/console/api/state"), ("POST", "/console/api/worker/kill")):
        answer = ask(demo, method, path, body=b"{}" if method == "POST" else None, Content_Type="application/json", Cookie=value)
        assert (answer.status, answer.code) == (401, "locked")


@pytest.mark.parametrize("path", POSTS)
def test_a_body_that_a_form_could_send_is_refused(demo: Demo, path: str) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "text/plain; a=application/json"):
        answer = ask(demo, "POST", path, body=hello(path), Content_Type=kind, Cookie=cookie(demo))
        assert answer.status == 415
        assert answer.code.startswith("unsupported")


AUTHORIZE = "/demo/authorize?client_id=moorings-demo"


def test_the_account_provider_answers_this_machine_only(demo: Demo) -> None:
    assert ask(demo, "GET", AUTHORIZE).status == 400  # asked for nothing that is registered
    body, form = b"grant_type=refresh_token", "application/x-www-form-urlencoded"
    refused = [
        ask(demo, "GET", AUTHORIZE, Host="evil.test"),
        ask(demo, "GET", AUTHORIZE, X_Forwarded_For="192.0.2.1"),
        ask(demo, "GET", AUTHORIZE, Sec_Fetch_Site="cross-site"),
        ask(demo, "POST", "/demo/token", body=body, Content_Type=form, Host="evil.test"),
        ask(demo, "POST", "/demo/token", body=body, Content_Type=form, Origin="https://evil.test"),
    ]
    assert [(answer.status, answer.code) for answer in refused] == [(403, "forbidden")] * 5


def test_a_link_of_a_sign_in_may_come_from_a_chat(demo: Demo) -> None:
    assert ask(demo, "GET", "/connect/sgn_1.unknown", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 404


def test_it_listens_on_this_machine_only(demo: Demo) -> None:
    outward = own_address()
    assert outward is not None, "this machine has no address of its own to try"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((outward, demo.port), timeout=5)
    with socket.create_connection(("127.0.0.1", demo.port), timeout=5):
        pass


def own_address() -> str | None:
    """Ask the routing table which address this machine would speak from; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.254", 9))
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address
