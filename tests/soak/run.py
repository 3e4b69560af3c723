"""A soak test from start to end: people write at a steady rate, things break, and the service is sampled."""

import random
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread

from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.journeys.service import free_port
from tests.prove.chaos import Chaos
from tests.prove.model import ProofModel
from tests.prove.plan import ONE_PLATFORM, Fault, FaultKind
from tests.prove.platforms import Place, SimulatedPlatform
from tests.prove.run import FORGET_S, make_platforms, service_config
from tests.prove.service import MovableClock, ProvenService, SmallDisk, Timeline
from tests.soak.samples import Sample, take_sample

MESSAGES_A_THREAD = 12
"""After so many messages somebody starts a new thread, as /new does."""

FAULTS = (*sorted(ONE_PLATFORM), FaultKind.MODEL_OFFLINE, FaultKind.DATABASE_LOCKED)
"""The process is not ended: what it uses is looked at."""

TOOL_EVERY, FAILURE_EVERY = 10, 50
"""Every so many requests the model calls a tool, or fails once."""

FINISHED = ("parley_runs_total",)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakOptions:
    """How long, how fast, and how often something breaks."""

    seed: int
    minutes: float
    turns_per_s: float
    people: int = 15
    fault_every_s: float = 20.0
    sample_every_s: float = 60.0


class SoakModel:
    """Answers at once; calls a tool or fails now and then."""

    def __init__(self) -> None:
        self.requests = 0
        self.is_offline = False

    def answer(self, request: ModelRequest) -> ModelReply:
        """Return the reply to a request."""
        self.requests += 1
        if self.is_offline:
            return ModelReply(drop_after=0)
        if self.requests % FAILURE_EVERY == 0:
            return ModelReply(status=500)
        if self.requests % TOOL_EVERY == 0 and request.messages[-1]["role"] != "tool":
            path = {"path": "/mnt/user-data/workspace"}
            return ModelReply(calls=(ToolCall("ls", path, id=f"ls-{self.requests}"),))
        return ModelReply(text=f"You said {request.last_user_text[-60:]!r}, which is noted.")


async def run_soak(
    options: SoakOptions, folder: Path, sampled: Callable[[Sample], None]
) -> list[Sample]:
    """Run a soak test in an empty folder; call `sampled` with each sample, and return all."""
    random_ = random.Random(options.seed)  # noqa: S311 - repeatable, not secret
    timeline, model, port = Timeline(), SoakModel(), free_port()
    async with AsyncExitStack() as stack:
        platforms = make_platforms(options.people)
        for platform in platforms:
            await stack.enter_async_context(platform)
            if platform.calls_webhook:
                platform.call_at(f"http://127.0.0.1:{port}")
        server = await stack.enter_async_context(FakeModelServer(answer=model.answer))
        config = service_config(server.base_url, platforms) | {"gateway": {"port": port}}
        (folder / "tmp").mkdir(parents=True)
        clock, disk = MovableClock(folder), SmallDisk(folder / "home")
        environment = {"TMPDIR": str(folder / "tmp")}
        service = ProvenService(folder, config, timeline, environment)
        stack.push_async_callback(service.kill_at_exit)
        broken = ProofModelSwitch(model)
        chaos = Chaos(service, {one.channel: one for one in platforms}, broken, disk, clock)
        await service.service.start()
        samples: list[Sample] = []
        async with anyio.create_task_group() as tasks:
            places = [place for one in platforms for place in one.places if _talks(place)]
            tasks.start_soon(_write, places, options.turns_per_s, random_)
            tasks.start_soon(_break, chaos, platforms, options.fault_every_s, random_)
            tasks.start_soon(_forget, server, platforms)
            await _sample(service, options, samples, sampled)
            tasks.cancel_scope.cancel()
    return samples
