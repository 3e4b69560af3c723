"""`parley chat` with either of two nodes, no matter which of them works on the session."""

from pathlib import Path
from typing import Any

import anyio

from store.nodes import Node, preferred_node
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer
from tests.journeys.nodes import count_ready
from tests.journeys.service import Service, serving, with_model

ANSWERED_WITHIN_S = 60


def sessions_of_both() -> list[str]:
    """Return the name of a session that the first node gets, and of one that the second one gets."""
    nodes = [Node(number=number, name="") for number in (1, 2)]

    def owner(session: str) -> int:
        return preferred_node(nodes, f"terminal\0local\0{session}", otherwise=0)

    names = [f"s{number}" for number in range(100)]
    return [next(name for name in names if owner(name) == node.number) for node in nodes]


async def chat(service: Service, session: str, line: str) -> str:
    """Send a message in a session. Return what `parley chat` prints."""
    with anyio.fail_after(ANSWERED_WITHIN_S):
        code, output, errors = await service.command("chat", "--session", session, stdin=line)
    assert (code, errors) == (0, "")
    return output


async def test_the_chat_of_a_node_gets_the_answers_of_another_one(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    first_folder, second_folder = tmp_path / "first", tmp_path / "second"
    for folder in (first_folder, second_folder):
        await anyio.Path(folder).mkdir()
    async with FakeModelServer() as model:
        config = {**with_model(model.base_url), **database}
        async with (
            serving(first_folder, config, "terminal") as first,
            serving(second_folder, config, "terminal") as second,
        ):
            url = database["database"]["url"]
            await eventually(lambda: count_ready(url), lambda ready: ready == 2)
            for session in sessions_of_both():
                for service in (first, second):
                    asked = f"hi {session} {service.port}"
                    assert f"You said: {asked}\n" in await chat(service, session, f"{asked}\n")
            for service in (first, second):
                assert await service.stop() == 0
