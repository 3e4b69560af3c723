"""How each refusal and failure of Feishu affects a delivery."""

import httpx
import pytest

from bots.feishu.errors import FeishuResponse, error_from


@pytest.mark.parametrize(
    ("status", "code", "retryable", "gone"),
    [
        (400, 230001, False, False),
        (400, 230002, False, False),
        (400, 230006, False, False),
        (400, 230011, False, True),
        (400, 230013, False, False),
        (400, 230018, False, False),
        (400, 230020, True, False),
        (400, 230025, False, False),
        (400, 230027, False, False),
        (400, 230028, False, False),
        (400, 230031, False, True),
        (400, 230099, False, False),
        (400, 231003, False, True),
        (400, 232009, False, False),
        (400, 300309, False, False),
        (400, 99991400, True, False),
        (429, 99991400, True, False),
        (429, None, True, False),
        (400, 99991661, True, False),
        (400, 99991663, True, False),
        (400, 99991664, True, False),
        (400, 99991668, True, False),
        (401, 99991677, True, False),
        (400, 99991672, False, False),
        (200, 10014, True, False),
        (200, 1, True, False),
        (200, 424242, False, False),
        (500, 424242, True, False),
        (502, None, True, False),
        (504, None, True, False),
        (404, None, False, False),
        (403, None, False, False),
    ],
)
def test_error_responses_are_mapped_to_decisions(
    status: int, code: int | None, retryable: bool, gone: bool
) -> None:
    error = error_from(FeishuResponse(status=status, code=code, msg="a reason"))
    assert (error.retryable, error.target_gone, error.ambiguous) == (retryable, gone, False)
    assert error.code == (code or 0)
    assert str(code or status) in error.user_message or str(status) in error.user_message


@pytest.mark.parametrize(
    ("error", "ambiguous"),
    [
        (httpx.ConnectError("x"), False),
        (httpx.ConnectTimeout("x"), False),
        (httpx.PoolTimeout("x"), False),
        (httpx.ProxyError("x"), False),
        (httpx.ReadTimeout("x"), True),
        (httpx.WriteTimeout("x"), True),
        (httpx.ReadError("x"), True),
        (httpx.WriteError("x"), True),
        (httpx.RemoteProtocolError("x"), True),
        (TimeoutError(), True),
    ],
)
def test_transport_errors_are_retryable_and_may_be_ambiguous(
    error: httpx.HTTPError | TimeoutError, ambiguous: bool
) -> None:
    found = error_from(error)
    assert found.retryable
    assert found.ambiguous is ambiguous


def test_a_success_that_is_no_json_may_have_arrived() -> None:
    error = error_from(FeishuResponse(status=200, code=None))
    assert (error.retryable, error.ambiguous) == (True, True)


def test_other_failures_are_permanent() -> None:
    assert not error_from(httpx.DecodingError("x")).retryable
    assert "domain" in error_from(httpx.UnsupportedProtocol("x")).user_message


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 1.0),
        ({"x-ogw-ratelimit-reset": "12"}, 12.0),
        ({"x-ogw-ratelimit-reset": "0"}, 1.0),
        ({"x-ogw-ratelimit-reset": "soon"}, 1.0),
        ({"x-ogw-ratelimit-reset": "inf"}, 1.0),
        ({"x-ogw-ratelimit-reset": "nan"}, 1.0),
        ({"x-ogw-ratelimit-reset": "-3"}, 1.0),
        ({"retry-after": "5"}, 5.0),
    ],
)
def test_the_wait_after_a_rate_limit(headers: dict[str, str], seconds: float) -> None:
    error = error_from(FeishuResponse(status=429, code=99991400, headers=headers))
    assert error.retry_after_s == seconds


def test_a_long_reason_is_cut_and_stays_on_one_line() -> None:
    error = error_from(FeishuResponse(status=400, code=424242, msg="why\n" * 1000))
    assert len(error.user_message) < 300
    assert "\n" not in error.user_message


@pytest.mark.parametrize("code", [10014, 99991663])
def test_refused_credentials_are_marked(code: int) -> None:
    error = error_from(FeishuResponse(status=200, code=code))
    assert error.refused
    assert error.credentials_refused
    assert error.retry_after_s == 60.0


@pytest.mark.parametrize(("code", "bad"), [(230099, True), (200570, True), (230025, False)])
def test_bad_cards_are_marked(code: int, bad: bool) -> None:
    assert error_from(FeishuResponse(status=400, code=code)).bad_card is bad


@pytest.mark.parametrize(
    ("code", "gone"),
    [
        (230011, "thread"),
        (230110, "thread"),
        (231003, "thread"),
        (230019, "thread"),
        (232009, "chat"),
        (230002, "chat"),
        (230018, "chat"),
        (230025, ""),
        (230020, ""),
    ],
)
def test_a_missing_chat_is_distinguished_from_a_refused_text(code: int, gone: str) -> None:
    assert error_from(FeishuResponse(status=400, code=code)).place_gone == gone
