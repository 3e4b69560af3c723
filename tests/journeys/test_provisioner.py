"""A person gets a file that a command created in a provisioner's sandbox, even after the service was killed."""

from pathlib import Path

import pytest

from agent.sandbox.bubblewrap import probe_bubblewrap
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall
from tests.fakes.provisioner import API_KEY, open_provisioner
from tests.journeys.service import serving, with_model
from tests.journeys.test_files import OUTPUTS, received
from tests.people.platforms import PlatformServers

FAULT = probe_bubblewrap()


def compute(request: ModelRequest) -> ModelReply:
    """Run the person's command, and present its output as a file."""
    last, name = request.messages[-1], request.last_user_text.partition(" ")[0]
    if last["role"] != "tool":
        args = {"command": f"({request.last_user_text}) > {OUTPUTS}/{name}.txt"}
        return ModelReply(calls=(ToolCall("bash", args, id=f"run-{name}"),))
    if last["tool_call_id"] == f"run-{name}":
        arguments = {"filepaths": [f"{OUTPUTS}/{name}.txt"]}
        return ModelReply(calls=(ToolCall("present_files", arguments, id=f"show-{name}"),))
    return ModelReply(text="Here it is.")


@pytest.mark.skipif(FAULT is not None, reason=f"bubblewrap: {FAULT}")
async def test_a_file_from_a_sandbox_elsewhere_arrives(tmp_path: Path) -> None:
    async with (
        PlatformServers() as platforms,
        FakeModelServer(answer=compute) as model,
        open_provisioner(tmp_path / "cluster") as provisioner,
    ):
        config = {
            **with_model(model.base_url),
            "channels": platforms.channels,
            "sandbox": {
                "use": "deerflow.community.aio_sandbox:AioSandboxProvider",
                "provisioner_url": provisioner.url,
                "provisioner_api_key": "$PROVISIONER_KEY",
            },
        }
        environment = {"PROVISIONER_KEY": API_KEY}
        user = next(one for one in platforms.private_users(1) if one.channel == "telegram")
        async with serving(tmp_path, config, "telegram", environment=environment) as service:
            await user.send("expr 6 '*' 7; touch note.txt")
            await eventually(lambda: received(platforms, user) == [("expr.txt", b"42\n")])
            (kept,) = provisioner.sandboxes
            await service.until_recorded()
            await service.kill()
        async with serving(tmp_path, config, "telegram", environment=environment) as service:
            await user.send("ls")
            await eventually(lambda: len(received(platforms, user)) > 1)
            assert received(platforms, user)[1] == ("ls.txt", b"note.txt\n")
            assert set(provisioner.sandboxes) == {kept}  # the same sandbox was found again
            assert await service.stop() == 0
        assert not provisioner.sandboxes
        assert API_KEY not in service.log.read_text()
