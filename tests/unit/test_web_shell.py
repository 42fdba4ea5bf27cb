import signal
import socket
import subprocess
import sys
from contextlib import closing

import pytest
from pydantic import BaseModel
from starlette.testclient import TestClient

from kleash.errors import ConfigError, KleashError
from kleash.web import shell

TOKEN = "a-token-of-some-length"
ADDRESS = "http://127.0.0.1:8765"


class Written(BaseModel):
    number: int


def client(token=None, hosts=("127.0.0.1", "localhost", "::1")):
    app = shell.new_app("Test", token=token, allowed_hosts=hosts)

    @app.get("/")
    def read():
        return "read"

    @app.post("/write")
    def write(written: Written):
        return written.number

    @app.get("/mistake")
    def mistake():
        raise ConfigError("beta = -1 cannot be. Give 0 or more.")

    @app.get("/gone")
    def gone():
        raise KleashError("The database does not answer.")

    return TestClient(app, base_url=ADDRESS, follow_redirects=False)


def write(connection, **headers):
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return connection.post("/write", content='{"number": 7}', headers={"content-type": "application/json", **given})


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "127.0.0.1", "localhost:8765", "LOCALHOST", "[::1]:8765"])
def test_a_local_page_is_asked_by_its_own_address(host):
    assert client().get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "evil.example:8765", "x@localhost", "10.0.0.1", "localhost/", "", "*"],
)
def test_any_other_host_is_refused_even_with_the_token(host):
    answer = client(TOKEN).get("/", headers={"host": host, "authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 400
    assert repr(host) in answer.text
    assert "not an address of this server" in answer.text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("192.168.1.7:8765", 200),
        (socket.gethostname(), 200),
        ("[fe80::1]", 200),
        ("evil.example", 400),
        ("any address", 400),
    ],
)
def test_on_every_address_a_number_or_the_machines_name_is_accepted(host, status):
    assert client(hosts=shell.hosts_of("0.0.0.0")).get("/", headers={"host": host}).status_code == status


def test_a_page_on_one_address_is_asked_by_that_one():
    connection = client(hosts=shell.hosts_of("192.168.1.7"))
    assert connection.get("/", headers={"host": "192.168.1.7:8765"}).status_code == 200
    assert connection.get("/", headers={"host": "192.168.1.8:8765"}).status_code == 400


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {TOKEN}"}])
def test_without_the_token_nothing_is_shown(headers):
    answer = client(TOKEN).get("/", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "?token=TOKEN" in answer.text
    assert TOKEN not in answer.text


def test_a_program_sends_the_token_in_a_header():
    assert client(TOKEN).get("/", headers={"authorization": f"Bearer {TOKEN}"}).json() == "read"


def test_a_browser_brings_the_token_once_and_then_has_a_cookie():
    connection = client(TOKEN)
    answer = connection.get(f"/?a=1&token={TOKEN}&b=%26")
    assert (answer.status_code, answer.headers["location"]) == (303, "/?a=1&b=%26")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    assert connection.get("/").json() == "read"
    again = connection.get(f"/?token={TOKEN}")
    assert (again.status_code, again.headers["location"]) == (303, "/")


def test_a_browser_that_follows_a_link_from_another_site_is_sent_on_by_the_page_itself():
    answer = client(TOKEN).get(f"/?token={TOKEN}", headers={"sec-fetch-site": "cross-site"})
    assert (answer.status_code, answer.headers["refresh"]) == (200, "0; url=/")
    assert "set-cookie" in answer.headers


def test_a_wrong_token_in_the_address_gives_no_cookie():
    answer = client(TOKEN).get("/?token=wrong")
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_the_redirect_never_leaves_the_server():
    answer = client(TOKEN).get(f"{ADDRESS}//evil.example/x?token={TOKEN}")
    assert answer.headers["location"] == "/evil.example/x"
    answer = client(TOKEN).get(f"/a%20%0d%0ab?token={TOKEN}")
    assert answer.headers["location"] == "/a%20%0D%0Ab"


def test_a_token_in_the_address_does_not_let_a_write_in():
    answer = client(TOKEN).post(f"/write?token={TOKEN}", json={"number": 7})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": ADDRESS},
        {"sec_fetch_site": "same-origin"},
        {"origin": ADDRESS, "sec_fetch_site": "same-origin", "content_type": "application/json; charset=utf-8"},
    ],
)
def test_the_page_itself_and_a_program_may_write(headers):
    assert write(client(), **headers).json() == 7


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://localhost:8765"},
        {"origin": "null"},
        {"origin": "http://["},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "none"},
        {"origin": ADDRESS, "sec_fetch_site": "cross-site"},
    ],
)
def test_another_site_may_not_write(headers):
    answer = write(client(), **headers)
    assert answer.status_code == 403
    assert "may not write here" in answer.text


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"])
def test_what_a_form_could_send_is_no_write(kind):
    answer = write(client(), content_type=kind)
    assert answer.status_code == 415
    assert "Send application/json" in answer.text


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [("/", {}, 200), ("/nowhere", {}, 404), ("/", {"host": "evil.example"}, 400), ("/mistake", {}, 400)],
)
def test_every_answer_forbids_what_the_page_does_not_need(path, headers, status):
    answer = client().get(path, headers=headers)
    assert answer.status_code == status
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"


def test_a_refusal_for_the_token_has_the_same_headers():
    assert client(TOKEN).get("/").headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/mistake", 400, "beta = -1 cannot be. Give 0 or more."),
        ("/gone", 503, "The database does not answer."),
    ],
)
def test_an_error_is_a_sentence(path, status, text):
    answer = client().get(path)
    assert (answer.status_code, answer.text) == (status, text)


def test_a_field_that_cannot_be_read_is_named():
    answer = client().post("/write", json={"number": "seven"})
    assert answer.status_code == 422
    assert answer.text.startswith("The request cannot be read. number: ")


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json"])
def test_there_is_no_generated_page_that_loads_from_elsewhere(path):
    assert client().get(path).status_code == 404


def test_a_websocket_is_not_let_through():
    with pytest.raises(ValueError, match="guards HTTP requests alone"), client().websocket_connect("/"):
        pass


def test_the_token_is_the_one_given_else_that_of_the_environment(monkeypatch):
    monkeypatch.delenv("KLEASH_TOKEN", raising=False)
    assert shell.chosen_token(None) is None
    monkeypatch.setenv("KLEASH_TOKEN", TOKEN)
    assert shell.chosen_token(None) == TOKEN
    assert shell.chosen_token("another-token-of-mine") == "another-token-of-mine"


def test_an_automatic_token_is_long_and_new_each_time():
    first, second = shell.chosen_token("auto"), shell.chosen_token("auto")
    assert first != second
    assert len(first) >= 32


@pytest.mark.parametrize("token", ["", "short", "with a space in it it", "sixteen;letters;"])
def test_a_weak_token_is_refused_by_its_origin_and_not_shown(token, monkeypatch):
    with pytest.raises(ConfigError, match=rf"token from --token .* at least 16 .* this one has {len(token)}") as error:
        shell.chosen_token(token)
    assert not token or token not in str(error.value)
    monkeypatch.setenv("KLEASH_TOKEN", token)
    with pytest.raises(ConfigError, match="token from KLEASH_TOKEN"):
        shell.chosen_token(None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.7", "labels.example.org"])
def test_an_address_open_to_others_needs_a_token(host):
    with pytest.raises(ConfigError, match=r"reached from other machines.*--token auto.*KLEASH_TOKEN.*127\.0\.0\.1"):
        shell.check_address(host, None)
    shell.check_address(host, TOKEN)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_the_loopback_needs_none(host):
    shell.check_address(host, None)


def test_serving_an_open_address_without_a_token_is_refused_before_anything_listens():
    with pytest.raises(ConfigError, match="reached from other machines"):
        shell.serve(shell.new_app("Test", token=None), "0.0.0.0", 0, None)


def test_a_taken_port_names_the_next_free_one():
    with closing(shell.listen("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port = {port} on 127\.0\.0\.1 is taken.*--port \d+\.") as error:
            shell.listen("127.0.0.1", port)
        free = int(str(error.value).rpartition(" ")[2].rstrip("."))
        assert free > port
        shell.listen("127.0.0.1", free).close()


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_number_that_is_no_port_is_refused(port):
    with pytest.raises(ConfigError, match=rf"port = {port} is no port"):
        shell.listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["203.0.113.7", "no-such-host.invalid"])
def test_an_address_that_is_not_this_machines_is_refused(host):
    with pytest.raises(ConfigError, match=rf"host = '{host}' is no address of this machine"):
        shell.listen(host, 0)


SERVE = f"""
from kleash.web import shell
app = shell.new_app("Test", token={TOKEN!r})
shell.serve(app, "127.0.0.1", 0, {TOKEN!r}, show_token=True)
print("ended")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_prints_its_address_and_ends_cleanly(number):
    process = subprocess.Popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        title, _, link = process.stdout.readline().strip().partition(" ")
        assert title == "Test:"
        assert link.startswith("http://127.0.0.1:")
        assert link.endswith(f"/?token={TOKEN}")
        port = int(link.removeprefix("http://127.0.0.1:").partition("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")  # and keeps the connection open
            assert connection.recv(12) == b"HTTP/1.1 401"
            process.send_signal(number)
            rest, errors = process.communicate(timeout=15)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, rest.splitlines()[-1], errors) == (0, "ended", "")


def test_a_random_token_from_the_environment_is_refused(monkeypatch):
    monkeypatch.setenv("KLEASH_TOKEN", "auto")
    with pytest.raises(ConfigError, match="KLEASH_TOKEN = 'auto' would make a token that nobody is shown"):
        shell.chosen_token(None)
