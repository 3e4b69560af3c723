"""Hooks: signatures as senders create them, and unexpected payloads."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.errors import HookMalformed, HookRejected
from bus.hooks.config import HookConfig
from bus.hooks.signature import verify_github, verify_standard
from bus.hooks.template import MAX_VALUE_CHARS, fill, read_payload

# The example from the specification (https://github.com/standard-webhooks/standard-webhooks).
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"test": 2432232314}'
SIGNED = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
NOW = 1614265330.0

# The example from GitHub's documentation.
GITHUB_SECRET = "It's a Secret to Everybody"
GITHUB = {
    "x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
    "x-github-event": "push",
}


def test_the_examples_of_both_specifications_are_accepted() -> None:
    assert verify_standard(SECRET, SIGNED, BODY, now=NOW) == SIGNED["webhook-id"]
    found = verify_github(GITHUB_SECRET, GITHUB, b"Hello, World!")
    assert found == (GITHUB["x-github-delivery"], "push")


def test_one_of_several_signatures_is_enough_while_a_secret_is_replaced() -> None:
    old = base64.b64encode(b"\x00" * 32).decode()
    several = f"v1,{old} v2,x {SIGNED['webhook-signature']}"
    headers = {**SIGNED, "webhook-signature": several}
    assert verify_standard(SECRET, headers, BODY, now=NOW)


@pytest.mark.parametrize(
    ("change", "body", "now"),
    [
        ({}, BODY + b" ", NOW),
        ({}, BODY, NOW + 301),
        ({}, BODY, NOW - 301),
        ({"webhook-id": "msg_other"}, BODY, NOW),
        ({"webhook-id": ""}, BODY, NOW),
        ({"webhook-id": "x" * 201}, BODY, NOW),
        ({"webhook-id": "a b"}, BODY, NOW),
        ({"webhook-timestamp": "1614265331"}, BODY, NOW),
        ({"webhook-timestamp": "now"}, BODY, NOW),
        ({"webhook-timestamp": "٣"}, BODY, NOW),
        ({"webhook-timestamp": "9" * 400}, BODY, NOW),
        ({"webhook-signature": ""}, BODY, NOW),
        ({"webhook-signature": "v1"}, BODY, NOW),
        ({"webhook-signature": "v1,\xff"}, BODY, NOW),
        (
            {"webhook-signature": SIGNED["webhook-signature"].replace("v1,", "v1a,")},
            BODY,
            NOW,
        ),
    ],
)
def test_what_is_not_signed_now_and_for_this_is_rejected(
    change: dict[str, str], body: bytes, now: float
) -> None:
    with pytest.raises(HookRejected):
        verify_standard(SECRET, {**SIGNED, **change}, body, now=now)


@pytest.mark.parametrize(
    "change",
    [
        {"x-hub-signature-256": ""},
        {"x-hub-signature-256": GITHUB["x-hub-signature-256"][:-1] + "0"},
        {"x-hub-signature-256": GITHUB["x-hub-signature-256"].removeprefix("sha256=")},
        {"x-hub-signature-256": "sha256=\xff"},
        {"x-github-delivery": ""},
        {"x-github-event": ""},
    ],
)
def test_unsigned_events_of_github_are_rejected(change: dict[str, str]) -> None:
    with pytest.raises(HookRejected):
        verify_github(GITHUB_SECRET, {**GITHUB, **change}, b"Hello, World!")


@given(st.text(min_size=16), st.binary())
def test_any_secret_signs_any_body(secret: str, body: bytes) -> None:
    key = secret.encode("utf-8", "surrogatepass")
    if secret.startswith("whsec_") or key != secret.encode("utf-8", "replace"):
        return
    digest = hmac.new(key, b"1.1." + body, hashlib.sha256).digest()
    headers = {
        "webhook-id": "1",
        "webhook-timestamp": "1",
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
    assert verify_standard(secret, headers, body, now=1.0) == "1"


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b""),
        ("application/json", b"{"),
        ("application/json", b'{"a": "\xff"}'),
        ("application/json", b"[" * 100_000),
        ("application/json", b"9" * 5_000),
        ("application/x-www-form-urlencoded", b"a=\xff"),
        ("application/x-www-form-urlencoded", b"a=%ff"),
        ("application/x-www-form-urlencoded", b"payload={"),
        ("application/x-www-form-urlencoded", b"a=1&" * 2_000),
        ("", b"hello"),
    ],
)
def test_a_payload_that_cannot_be_read_is_malformed(content_type: str, body: bytes) -> None:
    with pytest.raises(HookMalformed):
        read_payload(content_type, body)


def test_githubs_form_contains_the_same_as_its_json() -> None:
    form = read_payload(
        "application/x-www-form-urlencoded; charset=utf-8", b"payload=%7B%22a%22%3A1%7D"
    )
    assert form == read_payload("application/json", b'{"a":1}') == {"a": 1}


@pytest.mark.parametrize(
    ("prompt", "payload", "text"),
    [
        ("{a.b.c}", {"a": {"b": {"c": "x"}}}, "<hook_data>x</hook_data>"),
        ("{a.b}", {"a": "x"}, ""),
        ("{a.1}{a.9}", {"a": ["x", "y"]}, "<hook_data>y</hook_data>"),
        ("{a.-1}", {"a": ["x", "y"]}, ""),
        ("{a}", {"a": None}, ""),
        ("{a}", {"a": True}, "<hook_data>true</hook_data>"),
        ("{a}", {"a": 0}, "<hook_data>0</hook_data>"),
        ("{payload}", [1], "<hook_data>[1]</hook_data>"),
        ("{event}", {"event": "x"}, "<hook_data>x</hook_data>"),
        ("{a} {{a}}", {"a": "{b}", "b": "no"}, None),
        ("{__class__} {a.__len__}", {"a": "x"}, " "),
        ("{a}", {"a": "< / HOOK_DATA >"}, "<hook_data>&lt; / HOOK_DATA ></hook_data>"),
    ],
)
def test_values_are_marked_as_data_and_never_read_as_a_template(
    prompt: str, payload: object, text: str | None
) -> None:
    filled = fill(prompt, payload)
    if text is None:
        text = "<hook_data>{b}</hook_data> {<hook_data>{b}</hook_data>}"
    assert filled == text


@given(st.text(), st.recursive(st.text() | st.integers() | st.none(), st.lists))
def test_no_value_ends_its_own_mark(value: str, other: object) -> None:
    filled = fill("{a}|{b}", {"a": value, "b": other})
    assert filled.lower().count("</hook_data>") == filled.lower().count("<hook_data>") <= 2


def test_a_long_value_is_cut() -> None:
    filled = fill("{a}", {"a": "x" * (MAX_VALUE_CHARS + 1)})
    assert filled == f"<hook_data>{'x' * MAX_VALUE_CHARS}…</hook_data>"


def test_a_secret_that_cannot_be_used_is_an_error_of_the_configuration() -> None:
    for secret in ("short", "whsec_" + "!" * 20):
        with pytest.raises(ValueError, match="secret"):
            HookConfig(secret=secret, channel="slack", chat="C1", prompt="x")
    assert SECRET not in repr(HookConfig(secret=SECRET, channel="slack", chat="C1", prompt="x"))
