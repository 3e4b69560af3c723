"""Memory use of the runtime's JSON."""

import tracemalloc

import orjson
import pytest
from langchain_core.messages import AIMessage

from gateway.runtime.serialization import dumps


@pytest.mark.parametrize("odd", [2**70, "\ud800", {2: 1}, {(1, 2): 3}])
def test_what_json_does_not_have_becomes_null_beside_other_odd_values(odd: object) -> None:
    value = {"odd": odd, "numbers": [float("nan"), float("inf"), -float("inf")], "text": "NaN"}
    found = orjson.loads(dumps([value, AIMessage("", additional_kwargs=value)]))
    assert found[0]["numbers"] == found[1]["additional_kwargs"]["numbers"] == [None] * 3
    assert found[0]["text"] == "NaN"


def test_events_take_the_memory_that_they_are_counted_with() -> None:
    """orjson's own results take at least 4 KB, so a finished run with four small events would take 16 KB."""
    dumps({"warm": "up"})
    tracemalloc.start()
    try:
        kept = [dumps({"run_id": "7" * 36, "number": number}) for number in range(500)]
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / len(kept) < 300
