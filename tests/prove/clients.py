"""The clients of a proof: they set up schedules, send messages and broadcasts, and deliver signed events to hooks.

Each repeats its request until it is accepted, at any node. Some repeat it after that, as if the answer had been lost.
"""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import httpx

from tests.hook_senders import SECRET, signed, signed_by_github
from tests.prove.plan import PlannedRequest, RequestKind
from tests.prove.platforms import Place
from tests.prove.service import ProvenService

RETRY_S = 0.5
"""Pause before a request is repeated, seconds."""

TIMEOUT_S = 60.0
"""How long an answer may take, seconds. It is longer than a process is frozen or its database is away."""

COMMIT_S = 1.0
"""How long the transaction of a killed process may still take to be committed, seconds."""

PERIOD_S = 60
"""Seconds between the due times of recurring schedules."""

EXTRA_S = 20.0
"""How long recurring schedules are due after the last fault, seconds. The service still has messages to process."""

GITHUB = "github"


@dataclass(slots=True, kw_only=True)
class MadeRequest:
    """A request that was made.

    Attributes:
        place: The place; None = a broadcast.
        at: When it was first made, Unix seconds.
        answers: Number of answers that accepted it as new, and number of answers that called it a repetition.
        known: Private places of people from whom the service had a message before the first attempt.
        reach: Number of chats that get a broadcast according to the answer, for each channel that is not left out.
        refusal: The last answer that did not accept it.
        state: The API's final state of a message; "" = not queried.
    """

    planned: PlannedRequest
    place: Place | None
    at: float
    answers: Counter[str] = field(default_factory=Counter)
    known: Collection[str] = ()
    reach: Mapping[str, int] = field(default_factory=dict)
    refusal: str = ""
    state: str = ""

    @property
    def is_accepted(self) -> bool:
        """Whether the service promised to carry it out."""
        return bool(self.answers)


def hook_name(place: Place) -> str:
    """Return the name of the hook into a place."""
    return place.name.replace(" ", "-")


def hooks_config(places: Mapping[str, Place]) -> dict[str, Any]:
    """Return a hook into each private chat; half of them in GitHub's form."""
    return {
        hook_name(place): {
            "secret": SECRET,
            "form": _form(place),
            "channel": place.traits.channel,
            "chat": place.user.chat,
            "prompt": "{report}",
        }
        for place in places.values()
        if place.traits.private and not place.traits.stranger
    }


def _form(place: Place) -> str:
    return GITHUB if place.name.endswith("2") else "hmac"


class Clients:
    """Makes the requests of the plan.

    Args:
        is_heard: Returns whether the service has acknowledged a person's message in a place ("" = in any).
    """

    def __init__(
        self,
        requests: Sequence[PlannedRequest],
        places: Mapping[str, Place],
        nodes: Sequence[ProvenService],
        is_heard: Callable[[str], bool],
    ) -> None:
        self._requests = requests
        self._places = places
        self._nodes = itertools.cycle(nodes)
        self._is_heard = is_heard
        self._open = 0
        self._ends_at = 0.0
        self.made: dict[str, MadeRequest] = {}

    def count_waiting(self) -> int:
        """Return the number of requests that are not finished. Those to chats in which nobody wrote do not count."""
        return self._open

    async def run(self, started: float, duration_s: float) -> None:
        """Make all requests."""
        self._ends_at = started + duration_s + EXTRA_S
        async with anyio.create_task_group() as tasks:
            for request in self._requests:
                tasks.start_soon(self._make, request, started + request.at_s)

    async def ask_states(self) -> None:
        """Query the state of each message."""
        for made in self.made.values():
            if made.planned.kind is RequestKind.SEND and made.place is not None:
                path = f"/api/channels/{made.place.traits.channel}/messages/{made.planned.id}"
                async with next(self._nodes).service.client() as client:
                    answer = await client.get(path)
                    made.state = answer.json().get("state", "") if answer.is_success else ""

    async def _make(self, request: PlannedRequest, at: float) -> None:
        await anyio.sleep_until(at)
        while not self._is_heard(request.place):  # noqa: ASYNC110 - a state of the platform
            await anyio.sleep(RETRY_S)
        if (
            request.kind in {RequestKind.EVERY, RequestKind.CRON}
            and self._left_s() < PERIOD_S + RETRY_S
        ):
            return
        known = {
            name
            for name, place in self._places.items()
            if place.traits.private and self._is_heard(name)
        }
        place = self._places.get(request.place)
        made = MadeRequest(planned=request, place=place, at=time.time(), known=known)
        self.made[request.id] = made
        self._open += 1
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._until_accepted, made)
            if request.is_doubled:
                tasks.start_soon(self._until_accepted, made)
        for pause_s in request.repeats_s:
            await anyio.sleep(pause_s)
            await self._until_accepted(made)
        self._open -= 1

    async def _until_accepted(self, made: MadeRequest) -> None:
        attempt = {RequestKind.HOOK: self._deliver, RequestKind.BROADCAST: self._broadcast}.get(
            made.planned.kind, self._schedule if made.planned.kind.is_schedule else self._send
        )
        while True:
            try:
                async with next(self._nodes).service.client() as client:
                    client.timeout = httpx.Timeout(TIMEOUT_S)
                    answer = await attempt(client, made)
                    if answer.is_success:
                        return
                made.refusal = f"{answer.status_code} {answer.text[:200]}"
            except httpx.HTTPError as error:
                made.refusal = repr(error)
                await anyio.sleep(COMMIT_S)
            await anyio.sleep(RETRY_S)

    async def _deliver(self, client: httpx.AsyncClient, made: MadeRequest) -> httpx.Response:
        assert made.place is not None
        payload, delivery = {"report": made.planned.text}, made.planned.id
        form = _form(made.place)
        sign = signed_by_github if form == GITHUB else signed
        headers, body = sign(payload, delivery)
        path = f"/hooks/{hook_name(made.place)}"
        answer = await client.post(path, content=body, headers=headers)
        if answer.is_success:
            made.answers[answer.json()["status"]] += 1
        return answer

    async def _send(self, client: httpx.AsyncClient, made: MadeRequest) -> httpx.Response:
        assert made.place is not None
        fields = {
            "chat": made.place.user.chat,
            "text": _notice(made.planned),
            "key": made.planned.id,
        }
        path = f"/api/channels/{made.place.traits.channel}/messages"
        if made.planned.has_file:
            file = ("files", (f"{made.planned.id}.txt", made.planned.text.encode()))
            answer = await client.post(path, data=fields, files=[file])
        else:
            answer = await client.post(path, json=fields)
        _count_answer(made, answer)
        return answer

    async def _broadcast(self, client: httpx.AsyncClient, made: MadeRequest) -> httpx.Response:
        body = {"text": _notice(made.planned), "key": made.planned.id}
        answer = await client.post("/api/channels/broadcast", json=body)
        _count_answer(made, answer)
        if answer.is_success:
            channels = answer.json()["channels"].items()
            made.reach = {name: one["chats"] for name, one in channels if not one["left_out"]}
        return answer

    async def _schedule(self, client: httpx.AsyncClient, made: MadeRequest) -> httpx.Response:
        """Set up a schedule, unless an earlier request did so and its answer was lost."""
        assert made.place is not None
        request, now = made.planned, datetime.now(UTC)
        where = {"channel": made.place.traits.channel, "chat": made.place.user.chat}
        answer = await client.get("/api/schedules", params={**where, "limit": "100"})
        if not answer.is_success:
            return answer
        if all(one["name"] != request.id for one in answer.json()["schedules"]):
            once = (now + timedelta(seconds=request.delay_s)).isoformat()
            expression = {RequestKind.ONCE: once, RequestKind.EVERY: "1m"}
            body: dict[str, Any] = {
                **where,
                "name": request.id,
                "prompt": request.text,
                "kind": str(request.kind),
                "expression": expression.get(request.kind, "* * * * *"),
                "timezone": "Europe/Berlin",
                "missed": "skip" if request.skips else "once",
            }
            if request.kind is not RequestKind.ONCE:
                body["end_at"] = (now + timedelta(seconds=self._left_s())).isoformat()
            answer = await client.post("/api/schedules", json=body)
        if answer.is_success:
            made.answers["created"] += 1
        return answer

    def _left_s(self) -> float:
        """Return how long recurring schedules remain due, seconds."""
        return self._ends_at - anyio.current_time()


def _notice(request: PlannedRequest) -> str:
    return f"Notice {request.text}"


def _count_answer(made: MadeRequest, answer: httpx.Response) -> None:
    if answer.is_success:
        made.answers["repeated" if answer.json()["is_repeat"] else "accepted"] += 1
