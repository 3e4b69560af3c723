"""The proxy that is used for each platform URL."""

import pytest

from bots.common.proxy import proxy_url_for


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("https_proxy", "http://proxy.test:3128")
    monkeypatch.setenv("no_proxy", "127.0.0.1,.inside.test")


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("https://slack.com/api/", "http://proxy.test:3128"),
        ("wss://wss.slack.com/link/", "http://proxy.test:3128"),
        ("http://slack.com/", None),
        ("ws://slack.com/", None),
        ("https://127.0.0.1:8443/api/", None),
        ("https://slack.inside.test/api/", None),
        ("nonsense", None),
    ],
)
def test_the_environment_names_the_proxy(url: str, proxy: str | None) -> None:
    assert proxy_url_for(url) == proxy


def test_all_proxy_applies_unless_a_protocol_has_its_own_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("all_proxy", "http://all.test:3128")
    assert proxy_url_for("http://slack.com/") == "http://all.test:3128"
    assert proxy_url_for("https://slack.com/") == "http://proxy.test:3128"
