"""Sessions: user > channel > defaults, and no shared objects."""

import pytest

from bus.config import DEFAULT_SESSION, SessionConfig
from bus.settings.sessions import InvalidSession, for_embedded_runtime, merge_layers, session_layers

EMPTY = SessionConfig()


def merge_sessions(
    defaults: SessionConfig, channel: SessionConfig, *, user_id: str, chat: str = ""
) -> SessionConfig:
    """Return the session of one person in one chat."""
    layers = session_layers(defaults, channel, channel="slack", user_id=user_id, chat=chat)
    return merge_layers(layers).session


def test_without_configuration_the_defaults_hold() -> None:
    session = merge_sessions(EMPTY, EMPTY, user_id="7")
    assert session.assistant_id == "lead_agent"
    assert session.config == {"recursion_limit": 100}
    assert session.context == {
        "thinking_enabled": True, "is_plan_mode": False, "subagent_enabled": False,
    }  # fmt: skip
    assert session.busy == "queue"


def test_the_nearer_layer_wins_key_by_key() -> None:
    defaults = SessionConfig(
        assistant_id="a",
        context={"x": 1, "y": 1, "z": 1},
        users={"7": SessionConfig(context={"u": "default"})},
    )
    channel = SessionConfig(
        context={"y": 2, "z": 2},
        busy="interrupt",
        users={"7": SessionConfig(assistant_id="mine", context={"z": 3})},
    )
    mine = merge_sessions(defaults, channel, user_id="7")
    assert (mine.assistant_id, mine.busy) == ("mine", "interrupt")
    assert {key: mine.context[key] for key in "xyzu"} == {"x": 1, "y": 2, "z": 3, "u": "default"}
    other = merge_sessions(defaults, channel, user_id="8")
    assert (other.assistant_id, other.context["z"]) == ("a", 2)
    assert "u" not in other.context


def test_nothing_is_shared_with_the_configuration() -> None:
    channel = SessionConfig(config={"configurable": {"model": "gpt"}})
    session = merge_sessions(EMPTY, channel, user_id="7")
    session.config["configurable"]["thread_id"] = "leaked"
    session.context["leaked"] = True
    assert channel.config == {"configurable": {"model": "gpt"}}
    assert "leaked" not in DEFAULT_SESSION.context


@pytest.mark.parametrize(
    ("assistant", "agent"),
    [("Code_Reviewer", "code-reviewer"), ("x", "x"), (" My-Agent ", "my-agent")],
)
def test_another_assistant_is_an_agent_of_the_embedded_runtime(assistant: str, agent: str) -> None:
    session = for_embedded_runtime(SessionConfig(assistant_id=assistant, context={"a": 1}))
    assert session.assistant_id == "lead_agent"
    assert session.context == {"a": 1, "agent_name": agent}


def test_the_lead_agent_has_no_agent_name() -> None:
    assert for_embedded_runtime(EMPTY).assistant_id == "lead_agent"
    assert for_embedded_runtime(EMPTY).context == {}


@pytest.mark.parametrize("assistant", ["a/b", "../x", "é", "a b", "x" * 65])
def test_an_impossible_agent_name_is_refused(assistant: str) -> None:
    with pytest.raises(InvalidSession, match="invalid agent name"):
        for_embedded_runtime(SessionConfig(assistant_id=assistant))


def test_a_chat_has_its_own_settings_below_those_of_people() -> None:
    defaults = SessionConfig(
        context={"who": "default"}, chats={"C": SessionConfig(context={"who": "chat", "a": 1})}
    )
    channel = SessionConfig(
        busy="queue",
        chats={"C": SessionConfig(busy="steer", context={"a": 2})},
        users={"7": SessionConfig(context={"who": "seven"})},
    )
    theirs = merge_sessions(defaults, channel, user_id="7", chat="C")
    assert (theirs.context["who"], theirs.context["a"], theirs.busy) == ("seven", 2, "steer")
    others = merge_sessions(defaults, channel, user_id="8", chat="C")
    assert (others.context["who"], others.busy) == ("chat", "steer")
    assert merge_sessions(defaults, channel, user_id="8", chat="D").context["who"] == "default"
