"""Models that are built when they are first used."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from pydantic import BaseModel, TypeAdapter

from gateway.deferred_schemas import deferred_schemas

THREADS = 8


class Leaf(BaseModel):
    """Built at once."""

    number: int


def test_models_and_adapters_are_built_when_they_are_first_used() -> None:
    with deferred_schemas():

        class Tree(BaseModel):
            leaves: list[Leaf]
            children: "list[Tree]" = []

        adapter = TypeAdapter(list[Tree])
        assert not Tree.__pydantic_complete__
        assert not adapter.pydantic_complete

    class Later(BaseModel):
        number: int

    assert Later.__pydantic_complete__
    assert TypeAdapter(list[int]).pydantic_complete
    given = {"leaves": [{"number": "1"}], "children": [{"leaves": []}]}
    start = Barrier(THREADS)

    def build(_: int) -> int:
        start.wait()
        (one,) = adapter.validate_python([given])
        return one.leaves[0].number + Tree(leaves=[Leaf(number=1)]).leaves[0].number

    with ThreadPoolExecutor(THREADS) as threads:
        assert list(threads.map(build, range(THREADS))) == [2] * THREADS
    assert Tree.__pydantic_complete__
    assert adapter.pydantic_complete
    assert Tree.model_json_schema()["$defs"]["Leaf"]["title"] == "Leaf"


def test_the_service_builds_few_models_before_they_are_used() -> None:
    script = """
from gateway.commands.serve import import_service
import_service()
from concurrent.futures import ThreadPoolExecutor
from fastapi.openapi.models import OpenAPI
from langchain_core.messages import AIMessage, HumanMessage
from langsmith.schemas import Run
assert not any(model.__pydantic_complete__ for model in (OpenAPI, Run, AIMessage, HumanMessage))
with ThreadPoolExecutor(8) as threads:
    kinds = [HumanMessage, AIMessage] * 8
    made = list(threads.map(lambda kind: kind("text"), kinds))
assert [type(one) for one in made] == kinds and {one.content for one in made} == {"text"}
"""
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
