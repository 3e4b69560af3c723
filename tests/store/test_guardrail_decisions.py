"""Decisions of guardrails on both engines: paging, deletion, retention, the end of their thread."""

from store.database import Database
from store.guardrail_decisions import GuardrailDecisionRow, GuardrailDecisions
from store.retention import DAY_S, Retention
from store.threads import ThreadStore

ANN, ROOM = "slack:T1:U1", "slack:T1:C1"


def decision(tool: str, **more: object) -> GuardrailDecisionRow:
    fields = {
        "outcome": "denied", "tool": tool, "server": "", "code": "oap.denied", "policy": "", "reason": "no",
        "is_subagent": False, "thread_id": None, "person": "", "room": "", "created_at": 1.0, **more,
    }  # fmt: skip
    return GuardrailDecisionRow(**fields)  # type: ignore[arg-type]


async def tools(decisions: GuardrailDecisions, **query: int | str) -> list[str]:
    asked = {"limit": 10, "before": 2**60, **query}
    return [row.tool for row in await decisions.list_recent(**asked)]  # type: ignore[arg-type]


async def test_decisions_are_listed_newest_first(database: Database) -> None:
    decisions = GuardrailDecisions(database)
    await decisions.add(decision("a", is_subagent=True))
    await decisions.add(decision("b", outcome="approved"))
    await decisions.add(decision("c"))
    assert await tools(decisions) == ["c", "b", "a"]
    assert await tools(decisions, outcome="denied") == ["c", "a"]
    [newest] = await decisions.list_recent(limit=1, before=2**60)
    assert await tools(decisions, before=newest.id) == ["b", "a"]
    assert [row.is_subagent for row in await decisions.list_recent(limit=9, before=newest.id)] == [
        False,
        True,
    ]


async def test_people_and_rooms_are_forgotten(database: Database) -> None:
    decisions = GuardrailDecisions(database)
    await decisions.add(decision("private", person=ANN))
    await decisions.add(decision("room", person="slack:T1:U2", room=ROOM))
    await decisions.add(decision("other", person="slack:T1:U3"))
    await decisions.forget("default")
    await decisions.forget(f"person:{ANN}")
    assert await tools(decisions) == ["other", "room"]
    await decisions.forget(f"room:{ROOM}")
    assert await tools(decisions) == ["other"]


async def test_old_decisions_and_those_of_deleted_threads_are_deleted(database: Database) -> None:
    decisions, threads = GuardrailDecisions(database), ThreadStore(database)
    now = 1000 * DAY_S
    await threads.create("t1", {}, now=now)
    await decisions.add(decision("old", created_at=DAY_S))
    await decisions.add(decision("new", created_at=now))
    await decisions.add(decision("of a thread", thread_id="t1", created_at=now))
    await decisions.add(decision("of an unknown thread", thread_id="t2", created_at=now))
    await threads.delete("t1")
    await Retention(database).prune(now=now)
    assert await tools(decisions) == ["of an unknown thread", "new"]
