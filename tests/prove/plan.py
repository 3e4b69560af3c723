"""The plan of a proof, derived from its seed: actions of people and clients, the model's answers, faults, times."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

BURST_SHARE = 0.25
"""Default share of messages that follow the previous one of the same place within a second."""


FIRST_KILLS = 2
MIGRATION_S = 0.15
"""Approximate duration of the migrations of a new database, seconds."""


class MessageKind(StrEnum):
    """A kind of message that a person sends."""

    CHAT = "chat"
    COMMAND = "command"
    FILE = "file"
    ASIDE = "aside"  # In a group and not addressed to the bot.
    FILE_REQUEST = "file request"
    STRANGER = "stranger"  # From a person who may not use the bot.
    HOOK = "hook"  # An event from another system.
    SCHEDULE = "schedule"  # A message that a schedule sends when it is due.
    NOTIFICATION = "notification"  # A message that a client of the API sends to people.


class RequestKind(StrEnum):
    """A kind of request of a client of the API."""

    HOOK = "hook"
    SEND = "send"
    BROADCAST = "broadcast"
    ONCE = "once"
    EVERY = "every"
    CRON = "cron"

    @property
    def is_schedule(self) -> bool:
        """Whether it sets up a schedule of this kind."""
        return self in {RequestKind.ONCE, RequestKind.EVERY, RequestKind.CRON}


class ModelBehavior(StrEnum):
    """How the model answers a message."""

    ANSWER = "answer"
    SLOW = "slow"
    VERY_SLOW = "very slow"
    LONG = "long"
    TOOL = "tool"
    QUESTION = "question"
    FILE = "file"
    REFUSE_ONCE = "429 once"
    FAIL_ONCE = "500 once"
    FAIL_ALWAYS = "500 always"
    DENY = "401"
    CUT_ONCE = "cut once"
    HANG_ONCE = "hang once"
    OVERLOADED_ONCE = "529 once"
    TOO_LONG_ONCE = "context length exceeded once"
    BROKEN_CALL_ONCE = "call without JSON once"
    UNKNOWN_TOOL_ONCE = "unknown tool once"
    EMPTY = "empty"
    EMPTY_AFTER_TOOL = "empty after a tool once"
    FILTERED = "filtered"


class ActionKind(StrEnum):
    """A kind of action."""

    SEND = "send"
    EDIT = "edit"
    DELETE = "delete"
    PRESS = "press"
    PRESS_OLD = "press an old button"


class FaultKind(StrEnum):
    """A kind of fault."""

    KILL = "kill"
    KILL_TWICE = "kill twice"
    KILL_WHILE_STOPPING = "kill while stopping"
    RESTART = "restart"
    FREEZE = "freeze"
    DISK_FULL = "disk full"
    DATABASE_LOCKED = "database locked"
    CLOCK_MOVED = "clock moved"
    CONNECTIONS_CUT = "connections cut"
    PLATFORM_OFFLINE = "platform offline"
    CALLS_REFUSED = "calls refused"
    CALLS_FAIL = "calls fail"
    CALLS_CUT_BEFORE = "calls cut before"
    CALLS_CUT_AFTER = "calls cut after"
    CALLS_SLOW = "calls slow"
    MODEL_OFFLINE = "model offline"


ONE_PLATFORM = frozenset({
    FaultKind.CONNECTIONS_CUT, FaultKind.PLATFORM_OFFLINE, FaultKind.CALLS_REFUSED, FaultKind.CALLS_FAIL,
    FaultKind.CALLS_CUT_BEFORE, FaultKind.CALLS_CUT_AFTER, FaultKind.CALLS_SLOW,
})  # fmt: skip
"""Faults of one channel."""

_FAULT_WEIGHTS = {
    FaultKind.KILL: 6, FaultKind.KILL_TWICE: 2, FaultKind.KILL_WHILE_STOPPING: 2, FaultKind.RESTART: 1,
    FaultKind.FREEZE: 2, FaultKind.DISK_FULL: 2, FaultKind.DATABASE_LOCKED: 1, FaultKind.CONNECTIONS_CUT: 4,
    FaultKind.CLOCK_MOVED: 2,
    FaultKind.PLATFORM_OFFLINE: 2, FaultKind.CALLS_REFUSED: 4, FaultKind.CALLS_FAIL: 4,
    FaultKind.CALLS_CUT_BEFORE: 4, FaultKind.CALLS_CUT_AFTER: 4, FaultKind.CALLS_SLOW: 3, FaultKind.MODEL_OFFLINE: 1,
}  # fmt: skip
_MODEL_WEIGHTS = {
    ModelBehavior.ANSWER: 40, ModelBehavior.SLOW: 15, ModelBehavior.VERY_SLOW: 3, ModelBehavior.LONG: 5,
    ModelBehavior.TOOL: 8, ModelBehavior.QUESTION: 3, ModelBehavior.REFUSE_ONCE: 3, ModelBehavior.FAIL_ONCE: 3,
    ModelBehavior.FAIL_ALWAYS: 1, ModelBehavior.DENY: 1, ModelBehavior.CUT_ONCE: 3, ModelBehavior.HANG_ONCE: 2,
    ModelBehavior.OVERLOADED_ONCE: 2, ModelBehavior.TOO_LONG_ONCE: 1, ModelBehavior.BROKEN_CALL_ONCE: 2,
    ModelBehavior.UNKNOWN_TOOL_ONCE: 2, ModelBehavior.EMPTY: 1, ModelBehavior.EMPTY_AFTER_TOOL: 1,
    ModelBehavior.FILTERED: 1,
}  # fmt: skip
_KIND_WEIGHTS = {
    MessageKind.CHAT: 80, MessageKind.COMMAND: 8, MessageKind.FILE: 4, MessageKind.FILE_REQUEST: 5,
    MessageKind.ASIDE: 3,
}  # fmt: skip
_REQUEST_MODEL_WEIGHTS = {
    ModelBehavior.ANSWER: 60, ModelBehavior.SLOW: 20, ModelBehavior.TOOL: 10, ModelBehavior.REFUSE_ONCE: 3,
    ModelBehavior.FAIL_ONCE: 3, ModelBehavior.CUT_ONCE: 4,
}  # fmt: skip
_MESSAGES_PER_REQUEST = {RequestKind.HOOK: 12, RequestKind.SEND: 10, RequestKind.ONCE: 24}
"""Messages of people for each request of a client."""

BROADCAST_EVERY_S = 60.0
MIN_RECURRING_S = 100.0
"""Shortest proof with schedules that are due every minute, seconds."""

_COMMANDS = (
    "/help", "/status", "/models", "/memory", "/new", "/stop", "/skills", "/retry", "/retry", "/undo", "/why",
    "/export", "/language", "/model", "/agent", "/forget", "/sttaus",
)  # fmt: skip
_WORDS = (
    "trains", "rivers", "tables", "winter", "colors", "bread", "maps", "letters", "islands", "clocks", "gardens",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMessage:
    """A message that a person will send.

    Attributes:
        id: Its mark, which is in its text and in the model's answer: "m00042".
        place: Name of the place.
        versions: Its texts: the original, then the edited ones.
    """

    id: str
    place: str
    kind: MessageKind
    versions: tuple[str, ...]
    behavior: ModelBehavior


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action of a person. `at_s` counts from the start. `pick` (0 to 1) chooses among the buttons at that time."""

    at_s: float
    kind: ActionKind
    place: str
    message: str = ""
    version: int = 1
    pick: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """A request that a client of the API will make, until it is accepted and `repeats` times after that.

    Attributes:
        id: Its mark, which is in its text and in the model's answer: "r00042". Also its key or delivery ID.
        place: Name of a private place in which a person wrote before; "" = a broadcast.
        at_s: Counts from the start.
        behavior: How the model answers.
        is_doubled: Whether two clients make the request at the same time.
        repeats_s: Pauses before the request is repeated after its acceptance, seconds.
        delay_s: How long after its creation a one-time schedule is due, seconds.
        skips: Whether a schedule skips missed times.
        has_file: Whether a message has a file.
    """

    id: str
    kind: RequestKind
    place: str
    at_s: float
    text: str
    behavior: ModelBehavior
    is_doubled: bool
    repeats_s: tuple[float, ...]
    delay_s: float
    skips: bool
    has_file: bool

    @property
    def message(self) -> PlannedMessage:
        """Its text and the model's answer, in the form of a person's message."""
        return PlannedMessage(
            id=self.id,
            place=self.place,
            kind=MessageKind.SCHEDULE if self.kind.is_schedule else MessageKind.HOOK,
            versions=(self.text,),
            behavior=self.behavior,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault. `channel` is set for the kinds in `ONE_PLATFORM`. `pick` (0 to 1) chooses the call or the moment."""

    at_s: float
    kind: FaultKind
    seconds: float
    times: int
    channel: str = ""
    pick: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that will happen to the service. Each list is in order of time.

    Attributes:
        first_kills: Pauses between the creation of the database and the kills of the first starts, seconds. At these
            times, the database is being migrated.
    """

    seed: int
    duration_s: float
    first_kills: tuple[float, ...]
    messages: dict[str, PlannedMessage]
    actions: tuple[Action, ...]
    faults: tuple[Fault, ...]
    requests: tuple[PlannedRequest, ...] = ()

    @property
    def answered(self) -> dict[str, PlannedMessage]:
        """Everything that the model answers, by mark: messages of people, events of hooks, messages of schedules."""
        return {**self.messages, **{one.id: one.message for one in self.requests}}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceTraits:
    """The properties of a place that the plan depends on.

    Attributes:
        stranger: Whether the person there may not use the bot.
        steers: Whether messages during a turn are injected into its run.
        weight: Its share of the messages, relative to the others.
    """

    name: str
    channel: str
    private: bool
    stranger: bool = False
    steers: bool = False
    weight: float = 1.0
    can_delete: bool = True
    can_edit: bool = True


def make_plan(
    seed: int,
    *,
    duration_s: float,
    messages: int,
    places: Sequence[PlaceTraits],
    faults: int,
    burst_share: float = BURST_SHARE,
) -> Plan:
    """Return the plan of a seed. The same arguments give the same plan."""
    random_ = random.Random(seed)  # noqa: S311 - repeatable, not secret
    planned: dict[str, PlannedMessage] = {}
    actions: list[Action] = []
    at_s, place = 0.0, places[0]
    for number in range(1, messages + 1):
        if number == 1 or random_.random() > burst_share:
            at_s = random_.uniform(0, duration_s)
            place = random_.choices(places, [one.weight for one in places])[0]
        else:
            at_s = min(at_s + random_.uniform(0.02, 1.0), duration_s)
        message = _message(random_, number, place)
        planned[message.id] = message
        actions.append(
            Action(at_s=at_s, kind=ActionKind.SEND, place=place.name, message=message.id)
        )
        actions += _second_thoughts(random_, message, place, at_s)
    ordered = tuple(sorted(actions, key=lambda action: action.at_s))
    return Plan(
        seed=seed,
        duration_s=duration_s,
        messages=planned,
        actions=ordered,
        first_kills=tuple(random_.uniform(0.0, MIGRATION_S) for _ in range(FIRST_KILLS)),
        faults=_faults(random_, duration_s, faults, sorted({one.channel for one in places})),
        requests=_requests(seed, duration_s, planned, ordered, places),
    )


def _requests(
    seed: int,
    duration_s: float,
    messages: Mapping[str, PlannedMessage],
    actions: Sequence[Action],
    places: Sequence[PlaceTraits],
) -> tuple[PlannedRequest, ...]:
    """Return the requests of clients, by time. They use separate random numbers, so people's actions stay the same."""
    random_ = random.Random(f"{seed} requests")  # noqa: S311 - repeatable, not secret
    private = {one.name for one in places if one.private and not one.stranger}
    first_at: dict[str, float] = {}
    for action in actions:
        sent = messages.get(action.message) if action.kind is ActionKind.SEND else None
        if action.place in private and sent is not None and sent.kind is MessageKind.CHAT:
            first_at.setdefault(action.place, action.at_s)
    if not first_at:
        return ()
    kinds = [
        kind
        for kind, per in _MESSAGES_PER_REQUEST.items()
        for _ in range(max(1, len(messages) // per))
    ]
    kinds += [RequestKind.BROADCAST] * max(1, int(duration_s / BROADCAST_EVERY_S))
    if duration_s >= MIN_RECURRING_S:
        kinds += [RequestKind.EVERY, RequestKind.EVERY, RequestKind.CRON, RequestKind.CRON]
    names = sorted(first_at)
    early = sorted(names, key=lambda name: first_at[name])[: max(2, len(names) // 3)]
    behaviors, weights = list(_REQUEST_MODEL_WEIGHTS), list(_REQUEST_MODEL_WEIGHTS.values())
    requests = []
    for number, kind in enumerate(kinds, start=1):
        # Schedules that are due every minute begin as early as possible.
        place = random_.choice(early if kind in {RequestKind.EVERY, RequestKind.CRON} else names)
        latest = first_at[place] if kind in {RequestKind.EVERY, RequestKind.CRON} else duration_s
        at_s, mark = random_.uniform(first_at[place], latest), f"r{number:05d}"
        repeats = random_.choice((0, 1, 2)) if not kind.is_schedule else 0
        requests.append(
            PlannedRequest(
                id=mark,
                kind=kind,
                place="" if kind is RequestKind.BROADCAST else place,
                at_s=at_s,
                text=f"{mark}v1 {' '.join(random_.choices(_WORDS, k=4))}",
                behavior=random_.choices(behaviors, weights)[0],
                is_doubled=not kind.is_schedule and random_.random() < 0.3,
                repeats_s=tuple(random_.uniform(0.1, 8.0) for _ in range(repeats)),
                delay_s=random_.uniform(0.5, max(1.0, min(20.0, duration_s - at_s))),
                skips=kind.is_schedule and random_.random() < 0.3,
                has_file=kind is RequestKind.SEND and random_.random() < 0.25,
            )
        )
    return tuple(sorted(requests, key=lambda one: one.at_s))


def _message(random_: random.Random, number: int, place: PlaceTraits) -> PlannedMessage:
    kinds = dict(_KIND_WEIGHTS)
    if place.private:
        del kinds[MessageKind.ASIDE]
    else:
        del kinds[MessageKind.FILE]
    if place.steers:
        # An injected message may interrupt the model before it has presented a file.
        del kinds[MessageKind.FILE_REQUEST]
    if place.stranger:
        kinds = {MessageKind.STRANGER: 1}
    kind = random_.choices(list(kinds), list(kinds.values()))[0]
    mark = f"m{number:05d}"
    words = " ".join(random_.choices(_WORDS, k=random_.randint(1, 12)))
    behavior = random_.choices(list(_MODEL_WEIGHTS), list(_MODEL_WEIGHTS.values()))[0]
    if place.steers and behavior is ModelBehavior.TOO_LONG_ONCE:
        # The model would answer only the last message of the history that is removed then.
        behavior = ModelBehavior.ANSWER
    versions = [f"{mark}v1 {words}"]
    match kind:
        case MessageKind.COMMAND:
            versions = [random_.choice(_COMMANDS)]
        case MessageKind.FILE_REQUEST:
            behavior = ModelBehavior.FILE
        case MessageKind.CHAT if place.can_edit and random_.random() < 0.12:
            versions += [
                f"{mark}v{number} {words}, edited" for number in range(2, random_.randint(3, 4))
            ]
    return PlannedMessage(
        id=mark, place=place.name, kind=kind, versions=tuple(versions), behavior=behavior
    )


def _second_thoughts(
    random_: random.Random, message: PlannedMessage, place: PlaceTraits, at_s: float
) -> list[Action]:
    """Return the edits of a message, or its deletion, and presses of current buttons."""
    actions = []
    for version in range(2, len(message.versions) + 1):
        at_s += random_.choice((random_.uniform(0.05, 1.0), random_.uniform(1.0, 12.0)))
        actions.append(
            Action(
                at_s=at_s,
                kind=ActionKind.EDIT,
                place=place.name,
                message=message.id,
                version=version,
            )
        )
    is_chat = message.kind is MessageKind.CHAT and len(message.versions) == 1
    if is_chat and place.can_delete and random_.random() < 0.04:
        later_s = at_s + random_.uniform(0.05, 6.0)
        actions.append(
            Action(at_s=later_s, kind=ActionKind.DELETE, place=place.name, message=message.id)
        )
    if random_.random() < 0.15:
        later_s, pick = at_s + random_.uniform(0.5, 15.0), random_.random()
        press = ActionKind.PRESS if random_.random() < 0.7 else ActionKind.PRESS_OLD
        actions.append(Action(at_s=later_s, kind=press, place=place.name, pick=pick))
    return actions


def _faults(
    random_: random.Random, duration_s: float, count: int, channels: Sequence[str]
) -> tuple[Fault, ...]:
    kinds, weights = list(_FAULT_WEIGHTS), list(_FAULT_WEIGHTS.values())
    faults = []
    for _ in range(count):
        kind = random_.choices(kinds, weights)[0]
        channel = random_.choice(channels)
        faults.append(
            Fault(
                at_s=random_.uniform(1.0, duration_s),
                kind=kind,
                seconds=random_.uniform(0.2, 6.0),
                times=random_.randint(1, 4),
                channel=channel if kind in ONE_PLATFORM else "",
                pick=random_.random(),
            )
        )
    return tuple(sorted(faults, key=lambda fault: fault.at_s))
