"""Configuration of the bus: sessions, limits, and the access policy of a channel."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from bus.locales import LANGUAGES, supported_language
from bus.recurrence import find_zone

DmPolicy = Literal["open", "allowlist", "pairing", "disabled"]
GroupPolicy = Literal["mention", "open", "allowlist", "pairing", "disabled"]
ExternalPolicy = Literal["deny", "allowlist", "open"]
ThreadFollowups = Literal["mention", "smart", "all"]
Busy = Literal["queue", "interrupt", "steer"]

AUTO = "auto"
"""The language of the sender."""


def _language(name: str) -> str:
    if name != AUTO and not supported_language(name):
        raise ValueError(f"must be one of {', '.join([AUTO, *LANGUAGES])}")
    return supported_language(name) or AUTO


def _zone(name: str) -> str:
    find_zone(name)
    return name


TimeZone = Annotated[str, AfterValidator(_zone)]
"""The IANA name of a time zone."""

Language = Annotated[str, AfterValidator(_language)]
"""`AUTO`, or a language of `bus.locales`."""


class RateLimit(BaseModel):
    """Maximum number of messages of one person in a period."""

    model_config = ConfigDict(extra="allow", frozen=True)

    messages: int = Field(default=300, ge=0, description="0 = unlimited")
    per_seconds: float = Field(default=60.0, gt=0)


class RateOverride(BaseModel):
    """A channel's overrides of `RateLimit`."""

    model_config = ConfigDict(extra="allow", frozen=True)

    messages: int | None = Field(default=None, ge=0)
    per_seconds: float | None = Field(default=None, gt=0)


class SessionConfig(BaseModel):
    """Parameters of runs, merged in the order user > chat > channel > defaults; `config` and `context` key by key."""

    model_config = ConfigDict(extra="allow", frozen=True)

    assistant_id: str | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    context: dict[str, Any] = Field(default_factory=dict)
    busy: Busy | None = None
    chats: dict[str, "SessionConfig"] = Field(default_factory=dict)
    users: dict[str, "SessionConfig"] = Field(default_factory=dict)


LEAD_AGENT = "lead_agent"
"""The lead agent, in the embedded runtime and in DeerFlow. A name that is not a graph selects a custom agent."""

DEFAULT_SESSION = SessionConfig(
    assistant_id=LEAD_AGENT,
    config={"recursion_limit": 100},
    context={"thinking_enabled": True, "is_plan_mode": False, "subagent_enabled": False},
    busy="queue",
)


class ChatPolicy(BaseModel):
    """A chat's overrides of its channel's rules."""

    model_config = ConfigDict(extra="allow", frozen=True)

    thread_followups: ThreadFollowups | None = None


class ChannelPolicy(BaseModel):
    """The access policy and session of one channel. Every channel section has these keys."""

    model_config = ConfigDict(extra="allow", frozen=True)

    platform: str = ""
    enabled: bool = False
    allowed_users: list[str] = Field(default_factory=list)
    admin_users: list[str] = Field(default_factory=list)
    dm_policy: DmPolicy | None = None
    group_policy: GroupPolicy = "mention"
    external_policy: ExternalPolicy = "deny"
    thread_followups: ThreadFollowups = Field(
        default="smart",
        description="messages without a mention in a conversation's thread: mention = ignored, smart = the agent may"
        " stay silent, all = answered",
    )
    chats: dict[str, ChatPolicy] = Field(
        default_factory=dict, description="chat ID -> what differs from the channel"
    )
    max_bot_messages: int = Field(
        default=0,
        ge=0,
        description="messages of other bots in a row that the bot answers in a chat",
    )
    models: list[str] | None = Field(
        default=None, description="models that people may choose; null = all"
    )
    agents: list[str] | None = Field(
        default=None, description="agents and graphs that people may choose; null = all"
    )
    language: Language | None = None
    rate_limit: RateOverride = Field(default_factory=RateOverride)
    session: SessionConfig = Field(default_factory=SessionConfig)

    def followups_in(self, chat: str) -> ThreadFollowups:
        """Return how to treat messages without a mention in a thread of a chat."""
        override = self.chats.get(chat)
        return (override and override.thread_followups) or self.thread_followups


class TakeoverConfig(BaseModel):
    """Conversations that a person takes over from the agent."""

    model_config = ConfigDict(extra="allow", frozen=True)

    tell_people: bool = Field(
        default=True,
        description="say in the chat when a person takes over, and when the agent is back",
    )


class BusConfig(BaseModel):
    """The keys of the `channels` section that are not channels."""

    model_config = ConfigDict(extra="allow", frozen=True)

    langgraph_url: str | None = None
    gateway_url: str | None = None
    language: Language = AUTO
    timezone: TimeZone | None = Field(
        default=None, description="of people whose own is not known; null = the host's"
    )
    rate_limit: RateLimit = Field(default_factory=RateLimit)
    max_concurrent_runs: int = Field(default=16, ge=1)
    session: SessionConfig = Field(default_factory=SessionConfig)
    max_queue: int = Field(default=20, ge=1, description="queued messages per conversation")
    max_answer_chars: int = Field(
        default=60_000,
        ge=1000,
        description="longest answer in messages; a longer one is sent as a file",
    )
    max_intake: int = Field(default=1000, ge=1, description="messages being accepted at once")
    takeover: TakeoverConfig = Field(default_factory=TakeoverConfig)
    drain_s: float = Field(default=5.0, ge=0, description="limit of a graceful stop, seconds")
