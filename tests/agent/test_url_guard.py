"""SSRF protection: web tools reach only public addresses."""

import datetime
import ssl
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from agent.errors import UnknownHost, UrlNotAllowed, WebError
from agent.network.url_guard import UrlGuard, check_remote_fetch, guarded_client
from agent.tools.web.client import WebClient
from agent.tools.web.keys import WebKeys
from tests.fakes.web import bomb, web_server

PUBLIC = "93.184.216.34"


class FakeResolver:
    """A resolver with scripted answers: each lookup of a name returns its next answer, and the last one repeats."""

    def __init__(self, **answers: str | Sequence[str]) -> None:
        self._answers = {
            name.replace("_", "."): [given] if isinstance(given, str) else list(given)
            for name, given in answers.items()
        }
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        left = self._answers.get(host)
        if left is None:
            raise OSError("no such name")
        return (left.pop(0) if len(left) > 1 else left[0]).split()


REFUSED = [
    # loopback, in all its forms
    "http://127.0.0.1/",
    "http://127.0.0.1./",
    "http://127.8.9.1:8001/api",
    "http://127.1/",
    "http://0/",
    "http://0.0.0.0/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0X7F.1/",
    "http://017700000001/",
    "http://0177.0.0.1/",
    "http://127.0.0.01/",
    "http://127。0。0。1/",
    "http://①②⑦.⓪.⓪.①/",
    "http://[::1]/",
    "http://[::]/",
    "http://[0:0:0:0:0:0:0:1]/",
    # private, link-local, shared, documentation, benchmarking, multicast, reserved
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://100.64.0.1/",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "http://192.0.0.192/",
    "http://192.0.2.1/",
    "http://198.18.0.1/",
    "http://198.51.100.1/",
    "http://203.0.113.1/",
    "http://224.0.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    # IPv6: mapped, compatible, NAT64, 6to4, Teredo, local, link-local with a zone, multicast, documentation
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::ffff:8.8.8.8]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b:1::a00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[2001:0:53aa:64c::1]/",
    "http://[fc00::1]/",
    "http://[fd00:ec2::254]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[2001:db8::1]/",
    "http://[100::1]/",
    # names of this machine and its network
    "http://localhost/",
    "http://LOCALHOST./",
    "http://foo.localhost/",
    "http://localhost.localdomain/",
    "http://printer.local/",
    "http://kubernetes/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://nas.lan/",
    "http://router.home.arpa/",
    # names that resolve to such addresses
    "http://inward.example/",
    "http://both.example/",
    "http://six.example/",
    # URLs that cannot be fetched
    "ftp://example.org/",
    "file:///etc/passwd",
    "gopher://example.org/",
    "data:text/html,hi",
    "javascript:alert(1)",
    "//example.org/",
    "example.org",
    "",
    "http://",
    "http:///x",
    "http://user@example.org/",
    "http://user:secret@example.org/",
    "http://example.org\\@127.0.0.1/",
    "http://127.0.0.1:80@example.org/",
    "http://example.org:0/",
    "http://example.org:65536/",
    "http://example.org:port/",
    "http://exa%6dple.org/",
    "http://a..b/",
    "http://example.org\r\nX-Injected: 1/",
    "http://[::1",
    "http://example.org/" + "a" * 5000,
]


def names() -> FakeResolver:
    return FakeResolver(
        example_org=PUBLIC,
        inward_example="10.1.2.3",
        both_example=f"{PUBLIC} 127.0.0.1",
        six_example="2606:2800:220:1::1 ::ffff:192.168.0.1",
        seven_example="2606:2800:220:1::1",
    )


@pytest.mark.parametrize("url", REFUSED)
async def test_private_urls_are_blocked(url: str) -> None:
    with pytest.raises(UrlNotAllowed) as caught:
        await UrlGuard(resolve=names()).check(url)
    assert (
        "10.1.2.3" not in caught.value.user_message
    )  # the message does not show the addresses of a private name
    assert "secret" not in caught.value.user_message


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("http://example.org/", [PUBLIC]),
        ("HTTPS://EXAMPLE.org./a?b#c", [PUBLIC]),
        ("  https://example.org:8443/x  ", [PUBLIC]),
        ("https://8.8.8.8/", ["8.8.8.8"]),
        ("https://[2606:4700::1111]/", ["2606:4700::1111"]),
        ("https://seven.example/", ["2606:2800:220:1::1"]),
    ],
)
async def test_public_urls_are_allowed(url: str, addresses: list[str]) -> None:
    target = await UrlGuard(resolve=names()).check(url)
    assert list(target.addresses) == addresses


async def test_unresolvable_names_raise_unknown_host() -> None:
    guard = UrlGuard(resolve=names())
    with pytest.raises(UnknownHost):
        await guard.check("http://nowhere.example/")
    await check_remote_fetch(guard, "http://nowhere.example/")  # a remote service may know it
    with pytest.raises(UrlNotAllowed):
        await check_remote_fetch(guard, "http://inward.example/")


@pytest.mark.parametrize(
    ("allowed", "url", "passes"),
    [
        (["127.0.0.1"], "http://127.0.0.1/", True),
        (["127.0.0.1"], "http://127.0.0.2/", False),
        (["10.0.0.0/8"], "http://10.9.8.7/", True),
        (["10.0.0.0/8"], "http://inward.example/", True),
        (["Inward.Example."], "http://inward.example/", True),
        (["inward.example"], "http://10.1.2.3/", False),
        (["kubernetes"], "http://kubernetes/", True),
        (["[::1]"], "http://[::1]/", True),
        (["10.0.0.0/8"], "http://both.example/", False),
    ],
)
async def test_operators_can_allow_private_hosts(
    allowed: list[str], url: str, passes: bool
) -> None:
    resolve = FakeResolver(
        inward_example="10.1.2.3", both_example="10.0.0.1 127.0.0.1", kubernetes="10.0.0.1"
    )
    guard = UrlGuard(allow_private_hosts=allowed, resolve=resolve)
    if passes:
        assert (await guard.check(url)).addresses
    else:
        with pytest.raises(UrlNotAllowed):
            await guard.check(url)


# --- the connection itself ---------------------------------------------------------------------------------------


def fetching(guard: UrlGuard, **keys: object) -> WebClient:
    return WebClient(WebKeys.model_validate({"timeout": 20, **keys}), "the page", guard)


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    async with web_server("127.0.0.2") as checked, web_server("127.0.0.1", checked.port) as other:
        checked.answer("/", "the checked one", kind="text/plain")
        other.answer("/", "the other one", kind="text/plain")
        resolve = FakeResolver(good_example=["127.0.0.2", "127.0.0.1"])  # the second answer differs
        client = fetching(UrlGuard(allow_private_hosts=["127.0.0.2"], resolve=resolve))
        answer = await client.fetch(f"http://good.example:{checked.port}/")
        assert answer.text == "the checked one"
        assert resolve.asked == ["good.example"]
        assert checked.asked[0][2]["Host"] == f"good.example:{checked.port}"
        with pytest.raises(UrlNotAllowed):
            await client.fetch(f"http://good.example:{checked.port}/")
        assert other.asked == []


async def test_the_next_address_is_tried_after_a_connect_error() -> None:
    async with web_server("127.0.0.1") as server:
        server.answer("/", "reached", kind="text/plain")
        resolve = FakeResolver(two_example="127.0.0.3 127.0.0.1")  # no server listens at the first
        client = fetching(UrlGuard(allow_private_hosts=["two.example"], resolve=resolve))
        assert (await client.fetch(f"http://two.example:{server.port}/")).text == "reached"


async def test_a_name_is_looked_up_by_the_system() -> None:
    async with web_server("127.0.0.1") as server:
        server.answer("/", "reached", kind="text/plain")
        client = fetching(UrlGuard(allow_private_hosts=["localhost"]))
        assert (await client.fetch(f"http://localhost:{server.port}/")).text == "reached"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_checked_like_the_first_address(status: int) -> None:
    async with web_server("127.0.0.1") as inside, web_server("127.0.0.2") as outside:
        inside.answer("/secret", "a secret")
        outside.redirect("/go", f"{inside.url}/secret", status)
        client = fetching(UrlGuard(allow_private_hosts=["127.0.0.2"]))
        with pytest.raises(UrlNotAllowed):
            await client.fetch(f"{outside.url}/go")
        assert inside.asked == []


@pytest.mark.parametrize(
    "to",
    ["file:///etc/passwd", "http://user@127.0.0.2/", "http://[::1", "//0x7f.1/", "gopher://x/"],
)
async def test_redirects_to_invalid_urls_are_blocked(to: str) -> None:
    async with web_server("127.0.0.2") as outside:
        outside.redirect("/go", to)
        client = fetching(UrlGuard(allow_private_hosts=["127.0.0.2"]))
        with pytest.raises(WebError):
            await client.fetch(f"{outside.url}/go")


async def test_redirects_are_followed_up_to_a_limit() -> None:
    async with web_server() as server:
        server.redirect("/a", "/b")
        server.redirect("/b", f"{server.url}/c?x=1")
        server.answer("/c", "there", kind="text/plain")
        server.redirect("/round", "/round")
        client = fetching(UrlGuard(allow_private_hosts=["127.0.0.1"]))
        answer = await client.fetch(f"{server.url}/a")
        assert (answer.text, answer.url.path) == ("there", "/c")
        with pytest.raises(WebError, match="more than 5 times"):
            await client.fetch(f"{server.url}/round")
        assert server.paths.count("/round") == 6


async def test_endless_responses_are_truncated() -> None:
    async with web_server() as server:
        server.endless("/flood", b"x" * 65_536)
        server.redirect("/flooding", "/small")
        client = fetching(UrlGuard(allow_private_hosts=["127.0.0.1"]), max_bytes=100_000)
        answer = await client.fetch(f"{server.url}/flood")
        assert (len(answer.body), answer.truncated) == (100_000, True)


async def test_decompression_respects_the_limit() -> None:
    async with web_server() as server:
        gzipped = {"Content-Encoding": "gzip"}
        server.answer("/bomb", bomb(50), kind="text/plain", headers=gzipped)
        server.answer(
            "/twice", bomb(1), kind="text/plain", headers={"Content-Encoding": "gzip, gzip"}
        )
        server.answer("/broken", b"no gzip at all", kind="text/plain", headers=gzipped)
        client = fetching(UrlGuard(allow_private_hosts=["127.0.0.1"]), max_bytes=100_000)
        answer = await client.fetch(f"{server.url}/bomb")
        assert (answer.body, answer.truncated) == (b"a" * 100_000, True)
        for path in ("/twice", "/broken"):
            with pytest.raises(WebError):
                await client.fetch(f"{server.url}{path}")


async def test_hanging_servers_time_out() -> None:
    async with web_server() as server:
        server.hang("/slow")
        client = fetching(UrlGuard(allow_private_hosts=["127.0.0.1"]), timeout=0.2)
        with pytest.raises(WebError, match=r"within 0\.2 seconds"):
            await client.fetch(f"{server.url}/slow")


# --- TLS: the connection goes to an address, and the certificate must match the name ---------------------------


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return contexts for a server with a certificate for this name, and for clients that trust it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = built.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "both.pem").write_bytes(private + pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "both.pem")
    return server, ssl.create_default_context(cadata=pem.decode())


async def test_certificates_are_checked_against_the_host_not_the_address(tmp_path: Path) -> None:
    tls, trusting = certificate(tmp_path, "good.example")
    asked_for: list[str | None] = []
    tls.sni_callback = lambda _, name, __: asked_for.append(name)
    resolve = FakeResolver(good_example="127.0.0.1", evil_example="127.0.0.1")
    guard = UrlGuard(allow_private_hosts=["good.example", "evil.example"], resolve=resolve)
    async with (
        web_server(tls=tls) as server,
        guarded_client(guard, trusting, timeout_s=20) as client,
    ):
        server.answer("/", "hi", kind="text/plain")
        response = await client.get(f"https://good.example:{server.port}/")
        assert (response.text, asked_for) == ("hi", ["good.example"])
        with pytest.raises(httpx.ConnectError, match=r"evil\.example"):
            await client.get(f"https://evil.example:{server.port}/")
