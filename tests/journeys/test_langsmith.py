"""The real service with LangSmith: starting the service does not import its client, and the client works."""

from pathlib import Path

from tests.agent.test_tracing import LANGSMITH, collecting
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply
from tests.journeys.service import serving, with_model
from tests.people.platforms import PlatformServers


async def test_langsmith_gets_a_trace_of_a_message(tmp_path: Path) -> None:
    async with (
        PlatformServers() as platforms,
        FakeModelServer() as model,
        collecting() as collector,
    ):
        config = {**with_model(model.base_url), "channels": platforms.channels}
        environment = {**LANGSMITH, "LANGSMITH_ENDPOINT": collector.url}
        async with serving(tmp_path, config, "telegram", environment=environment):
            model.reply(ModelReply(text="Good morning."))
            user = next(one for one in platforms.users if one.channel == "telegram")
            await user.send("hello")
            await user.expect_messages("Good morning.")
            await eventually(
                lambda: {run["run_type"] for run in collector.runs.values()} >= {"llm"}
            )
        assert len(collector.roots) == 1
        assert collector.keys == {"ls-secret"}
