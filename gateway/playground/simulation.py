"""The whole playground: three platforms with people, the model, the service beside them, and the recorder of actions.

Everything that a person does is an `Action`: the page sends it, a recording contains it, and a replay repeats it.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio
import httpx

from gateway.config import Config
from gateway.playground.feishu.people import SimulatedFeishu
from gateway.playground.inspector import Inspector
from gateway.playground.model import MODEL_WEATHERS, ModelFront
from gateway.playground.recording import Recorder
from gateway.playground.service import Line, PlaygroundService
from gateway.playground.shown import (
    PEOPLE,
    WEATHERS,
    Action,
    ChangeSignal,
    SeenMessage,
    SeenPlace,
    SimulatedPerson,
    SimulatedPlace,
    SimulatedPlatform,
    UnknownAction,
)
from gateway.playground.slack.people import SimulatedSlack
from gateway.playground.telegram.people import SimulatedTelegram

DECISIONS = ("bus.inbound", "bus.access")
"""Loggers of the service's decisions about messages."""

STANDING = frozenset(WEATHERS[:5])


class Simulation:
    """Use as `async with Simulation(folder, config) as simulation:`, and serve `simulation.model` before `start`.

    Args:
        folder: A new folder for the service.
        config: The operator's configuration.
    """

    def __init__(self, folder: Path, config: Config) -> None:
        self.changed = ChangeSignal()
        self.inspector = Inspector(self.changed.set)
        self.model = ModelFront(self.inspector)
        watch = self.inspector.watch
        self.slack = SimulatedSlack([watch("slack")])
        self.telegram = SimulatedTelegram([watch("telegram")])
        self.feishu = SimulatedFeishu([watch("feishu")])
        self.platforms: dict[str, SimulatedPlatform] = {
            one.name: one for one in (self.telegram, self.slack, self.feishu)
        }
        self.service = PlaygroundService(
            folder, config, on_line=self._logged, changed=self.changed.set
        )
        self.weather: dict[str, str] = {}
        self.recorder = Recorder()
        self.url = ""
        self._reactions: dict[tuple[str, str], dict[str, str]] = {}
        self._config = config
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for server in (self.slack.server, self.telegram.server, self.feishu.server):
            await self._stack.enter_async_context(server)
        for listeners, platform in (
            (self.slack.server.listeners, self.slack),
            (self.telegram.server.listeners, self.telegram),
            (self.feishu.server.state.listeners, self.feishu),
        ):
            listeners.append(partial(self._noticed, platform))
        secrets = {
            self.service.token, self.model.key, self.slack.server.bot_token, self.slack.server.app_token,
            self.telegram.server.token, self.feishu.server.app_secret, *self._config.secrets,
        }  # fmt: skip
        self.inspector.mask(secrets)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def start(self, model_url: str) -> None:
        """Start the service. `model_url`: where this playground, and with it `model`, is served."""
        self.url = model_url
        channels = {name: platform.settings for name, platform in self.platforms.items()}
        url = f"{model_url}/model/{self.model.key}"
        await anyio.to_thread.run_sync(self.service.write_config, channels, url)
        self.model.upstreams = self.service.upstreams
        await self.service.start()

    # Views.

    def places(self) -> Iterator[SimulatedPlace]:
        """Yield all places."""
        for platform in self.platforms.values():
            yield from platform.places()

    def seen(self, place: SimulatedPlace) -> SeenPlace:
        """Return what people see in a place."""
        seen = self.platforms[place.platform].seen(place)
        messages = [self._with_reactions(place, one) for one in seen.messages]
        return replace(seen, messages=messages)

    def _with_reactions(self, place: SimulatedPlace, message: SeenMessage) -> SeenMessage:
        """Return a message with people's reactions after the bot's."""
        found = self._reactions.get((place.id, message.id), {})
        return replace(message, reactions=(*message.reactions, *found.values()))

    def view(self) -> dict[str, Any]:
        """Return everything that the page shows, except the inspector, as JSON."""
        places = list(self.places())
        return {
            "people": [asdict(one) for one in PEOPLE],
            "places": [asdict(one) for one in places],
            "seen": {one.id: asdict(self.seen(one)) for one in places},
            "service": {
                "state": self.service.state, "channels": self.service.channels, "url": self.service.url,
            },
            "weather": self.weather,
            "violations": self.violations,
        }  # fmt: skip

    @property
    def violations(self) -> Sequence[str]:
        """Calls of the bot that a real platform would not accept."""
        return [
            *self.slack.server.violations,
            *self.telegram.server.violations,
            *self.feishu.server.violations,
        ]

    # Actions.

    async def act(self, action: Action) -> None:
        """Do something as a person, or to the weather or the service. Raises UnknownAction."""
        try:
            await self._act(action)
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise UnknownAction(f"This cannot be done: {error!r}") from error

    async def _act(self, action: Action) -> None:
        match action.get("do"):
            case "weather":
                await self._change_weather(str(action["target"]), str(action["kind"]))
            case "kill":
                await self.service.kill()
            case "start":
                await self.service.start()
            case "approve":
                await self._approve(str(action["code"]))
            case "event":
                if not isinstance(action["content"], dict):
                    raise UnknownAction("The content of an event is an object.")
                await self._platform(str(action["platform"])).push(action["content"])
            case _:
                await self._act_as_person(action)
                return
        self.inspector.add("weather", "action", str(action["do"]), detail=dict(action))
        self.recorder.add(action)

    async def _act_as_person(self, action: Action) -> None:
        place = next((one for one in self.places() if one.id == action.get("place")), None)
        person = next((one for one in PEOPLE if one.key == action.get("person")), None)
        if place is None or person is None:
            raise UnknownAction("There is no such place or person.")
        if place.only_for not in {"", person.key}:
            raise UnknownAction("This is another person's private chat.")
        self._note_messages()
        self.recorder.add(action)
        title = f"{person.name} in {place.name}: {action['do']} {action.get('text', '')[:80]}"
        self.inspector.add("person", "action", title, detail=_without_files(action))
        try:
            if action["do"] == "react":
                self._react(place, person, action)
            else:
                await self.platforms[place.platform].act(place, person, action)
        except UnknownAction:
            self.recorder.drop_last()
            raise
        except (KeyError, ValueError, StopIteration) as error:
            self.recorder.drop_last()
            raise UnknownAction(f"This cannot be done: {error!r}") from error

    def _react(self, place: SimulatedPlace, person: SimulatedPerson, action: Action) -> None:
        """Set a person's reaction to a message, or remove it if the person already has it.

        The bot does not learn of it, because it does not subscribe to events of reactions.
        """
        message = next(one.id for one in self.seen(place).messages if one.id == action["message"])
        found = self._reactions.setdefault((place.id, message), {})
        if found.get(person.key) == action["emoji"]:
            del found[person.key]
        else:
            found[person.key] = str(action["emoji"])
        self.changed.set()

    def _platform(self, name: str) -> SimulatedPlatform:
        platform = self.platforms.get(name)
        if platform is None:
            raise UnknownAction(f"There is no platform {name}.")
        return platform

    async def _approve(self, code: str) -> None:
        """Approve the person to whom the bot gave this code."""
        headers = {"Authorization": f"Bearer {self.service.token}"}
        url = f"{self.service.url}/api/channels/pairings/{code}/approve"
        async with httpx.AsyncClient(headers=headers, trust_env=False) as client:
            try:
                response = await client.post(url)
            except httpx.HTTPError as error:
                raise UnknownAction(f"The service does not answer: {error!r}") from error
        if not response.is_success:
            raise UnknownAction(f"The service answers: {response.text}")

    async def _change_weather(self, target: str, kind: str) -> None:
        """Change the weather of a platform or of "model". `kind`: "" = end all faults."""
        if target == "model":
            if kind not in {"", *MODEL_WEATHERS}:
                raise UnknownAction(f"The model has no such weather: {kind}")
            self.model.weather = kind
        else:
            platform = self._platform(target)
            if not kind or kind in STANDING:
                await platform.calm()
            if kind:
                await platform.weather(kind)
        if not kind or kind in STANDING or target == "model":
            self.weather[target] = kind
        self.changed.set()

    # Events and log lines.

    def _noticed(self, platform: SimulatedPlatform) -> None:
        for event in platform.new_events():
            is_sent = event.kind in {"event", "redelivery"}
            curl = self._curl(platform.name, event.content) if is_sent else ""
            self.inspector.add(
                platform.name, event.kind, event.name, detail=event.content, curl=curl
            )
        self.changed.set()

    def _curl(self, platform: str, content: object) -> str:
        """Return the command that makes a platform send an event again. It needs the link's token."""
        action = {"do": "event", "platform": platform, "content": content}
        data = json.dumps(action, ensure_ascii=False)
        headers = ["-H", "Authorization: Bearer ***", "-H", "Content-Type: application/json"]
        return shlex.join(["curl", f"{self.url}/api/actions", *headers, "--data-binary", data])

    def _logged(self, line: Line) -> None:
        logger = str(line.get("logger", ""))
        kind = "decision" if logger.startswith(DECISIONS) else "log"
        is_bad = line.get("level") in {"warning", "error", "critical"}
        more = {name: value for name, value in line.items() if name not in {"message", "time"}}
        self.inspector.add(
            "service", kind, str(line.get("message", "")), detail=more, failed=is_bad
        )

    def _note_messages(self) -> None:
        """Give the recorder the messages so far, so that actions can name them."""
        for place in self.places():
            self.recorder.note(place.id, self.seen(place).messages)

    def recording(self) -> Mapping[str, Any]:
        """Return the actions so far and the visible messages, as JSON."""
        self._note_messages()
        places = list(self.places())
        return self.recorder.recording({one.id: self.seen(one) for one in places})


def _without_files(action: Action) -> dict[str, Any]:
    files = [str(file.get("name")) for file in action.get("files", ())]
    return {**action, **({"files": files} if files else {})}
