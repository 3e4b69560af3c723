"""A short proof from start to end, with a kill: every message is accounted for, and the report says so."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.prove.report import broken_histories, write_report
from tests.prove.run import Options, ServerMissing, run_proof
from tests.prove.telegram import TelegramPlatform
from tests.prove.verdict import Violation, ViolationKind

SEED = 40


async def test_a_short_proof_accounts_for_every_message(tmp_path: Path) -> None:
    platforms = [TelegramPlatform("telegram", people=2, token="700700:fake-token")]
    options = Options(seed=SEED, minutes=0.15, messages=8, people=2)
    proof = await run_proof(options, tmp_path, platforms)
    assert proof.verdict.violations == []
    marks = {history.sent.id for history in proof.verdict.histories}
    assert marks == {*proof.plan.messages, *(one.id for one in proof.plan.requests)}
    assert None not in [history.outcome for history in proof.verdict.histories]
    report = tmp_path / "report.html"
    write_report(proof, report)
    page = report.read_text("utf-8")
    assert "parley prove --seed 40 --minutes 0.15 --messages 8" in page
    assert all(mark in page for mark in proof.plan.messages)
    assert "{{" not in page

    dense = Options(seed=1, minutes=2, messages=1260, rate=15, people=20)
    assert dense.command == "parley prove --seed 1 --minutes 2 --rate 15 --people 20"

    text = "</script><script>alert(1)</script>"
    violation = Violation(kind=ViolationKind.SILENT, text=text)
    first = replace(proof.verdict.histories[0], violations=[violation])
    found = replace(proof.verdict, violations=[violation], histories=[first])
    broken = replace(proof, verdict=found)
    printed = broken_histories(broken)
    assert printed[0].startswith(f"{first.sent.id} (")
    assert any(first.sent.versions[0] in line for line in printed)
    write_report(broken, report)
    page = report.read_text("utf-8")
    assert text not in page
    assert page.count("</script>") == 2


async def test_a_short_proof_of_two_nodes_accounts_for_every_message(tmp_path: Path) -> None:
    platforms = [
        TelegramPlatform("telegram", people=2, token="700700:fake-token"),
        TelegramPlatform("telegram-news", people=2, token="800800:news", webhook=True),
    ]
    options = Options(seed=SEED, minutes=0.15, messages=12, people=2, nodes=2)
    try:
        proof = await run_proof(options, tmp_path, platforms)
    except ServerMissing as reason:
        pytest.skip(str(reason))
    assert proof.verdict.violations == []
    assert {history.sent.id for history in proof.verdict.histories} >= {*proof.plan.messages}
    assert proof.counts["starts"] >= 2
    assert options.command.endswith("--nodes 2")
