"""Repeats a recording with a fresh service, and compares what people see."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from gateway.config import Config
from gateway.playground.recording import REFERENCES, VERSION, MessageNames, differences, seen_lines
from gateway.playground.server import PlaygroundServer
from gateway.playground.shown import Action, UnknownAction
from gateway.playground.simulation import Simulation

WITHIN_S = 90.0
"""How long to wait for the service to connect, for a message that an action names, and for the last answer, seconds."""

MAX_S = 86_400.0
"""Longest recording, seconds."""

QUIET_S = 15.0
"""How long nothing must change until the comparison is final, seconds."""


class RecordingInvalid(Exception):
    """The file is not a recording. The message says why."""


def check_recording(value: object) -> Mapping[str, Any]:
    """Return a recording. Raises RecordingInvalid."""
    if not isinstance(value, dict) or value.get("version") != VERSION:
        raise RecordingInvalid(f"it is not a recording of version {VERSION}")
    actions, seen = value.get("actions"), value.get("seen")
    if not isinstance(actions, list) or not isinstance(seen, dict):
        raise RecordingInvalid("it lacks the actions, or the messages that people saw")
    if not all(isinstance(one, dict) and _is_time(one.get("at_s")) for one in actions):
        raise RecordingInvalid("an action has no time")
    if not all(
        isinstance(lines, list) and all(isinstance(line, str) for line in lines)
        for lines in seen.values()
    ):
        raise RecordingInvalid("the messages that people saw are not lines of text")
    return value


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value <= MAX_S


async def replay(config: Config, recording: Mapping[str, Any]) -> Sequence[str]:
    """Return the differences as lines; empty = people see the same."""
    with TemporaryDirectory(prefix="parley-replay-", ignore_cleanup_errors=True) as folder:
        async with (
            Simulation(Path(folder), config) as simulation,
            anyio.create_task_group() as tasks,
        ):
            server = PlaygroundServer(simulation)
            async with server.listening():
                tasks.start_soon(simulation.service.run)
                await simulation.start(server.url)
                found = await _Replay(simulation, recording).run()
                tasks.cancel_scope.cancel()
    return found


class _Replay:
    def __init__(self, simulation: Simulation, recording: Mapping[str, Any]) -> None:
        self._simulation = simulation
        self._recording = recording
        self._names = MessageNames()
        self._problems: list[str] = []

    async def run(self) -> Sequence[str]:
        if not await self._wait(self._is_connected):
            return [f"the service did not connect: {self._simulation.service.channels}"]
        began_at = anyio.current_time()
        actions: Sequence[Mapping[str, Any]] = self._recording["actions"]
        first_s = actions[0]["at_s"] if actions else 0.0
        for number, action in enumerate(actions, 1):
            await anyio.sleep_until(began_at + action["at_s"] - first_s)
            try:
                await self._repeat(action)
            except UnknownAction as error:
                self._problems.append(f"action {number} ({action.get('do')}): {error}")
        await self._wait_for_the_end()
        return [*self._problems, *differences(self._recording["seen"], self._seen())]

    def _is_connected(self) -> bool:
        channels = self._simulation.service.channels
        return all(channels.get(name) == "connected" for name in self._simulation.platforms)

    async def _repeat(self, recorded: Mapping[str, Any]) -> None:
        """Do an action as soon as the messages that it names exist."""
        action: dict[str, Any] = {k: v for k, v in recorded.items() if k != "at_s"}
        place = str(action.get("place", ""))
        for name in REFERENCES:
            if action.get(name):
                action[name] = await self._find(place, str(action[name]))
        if action.get("do") == "press":
            await self._wait(lambda: self._has_button(action))
        await self._simulation.act(action)

    async def _find(self, place: str, name: str) -> str:
        if not await self._wait(lambda: bool(self._seen() and self._names.find(place, name))):
            raise UnknownAction(f"the message {name} in {place} did not arrive")
        return self._names.find(place, name)

    def _has_button(self, action: Action) -> bool:
        places = [one for one in self._simulation.places() if one.id == action.get("place")]
        return not places or any(
            one.id == action.get("message") and action.get("label") in one.buttons
            for one in self._simulation.seen(places[0]).messages
        )

    def _seen(self) -> dict[str, list[str]]:
        found = {
            place.id: seen_lines(place.id, self._simulation.seen(place), self._names)
            for place in self._simulation.places()
        }
        return {place: lines for place, lines in found.items() if lines}

    async def _wait(self, holds: Callable[[], bool]) -> bool:
        with anyio.move_on_after(WITHIN_S):
            while not holds():
                with anyio.move_on_after(1):
                    await self._simulation.changed.wait()
        return bool(holds())

    async def _wait_for_the_end(self) -> None:
        """Wait until people see the recorded messages, or until they see nothing new for a while."""
        with anyio.move_on_after(WITHIN_S):
            seen, since = self._seen(), anyio.current_time()
            while seen != self._recording["seen"] and anyio.current_time() - since < QUIET_S:
                with anyio.move_on_after(1):
                    await self._simulation.changed.wait()
                now = self._seen()
                since = since if now == seen else anyio.current_time()
                seen = now
