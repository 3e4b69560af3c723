"""JSON of the runtime: the memory it takes."""

import tracemalloc

from gateway.runtime.serialization import dumps


def test_events_take_the_memory_that_they_are_counted_with() -> None:
    """orjson's own results take 4 KB at least: a finished run of four small events took 16 KB."""
    dumps({"warm": "up"})
    tracemalloc.start()
    try:
        kept = [dumps({"run_id": "7" * 36, "number": number}) for number in range(500)]
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / len(kept) < 300
