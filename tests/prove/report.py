"""The report of a proof: one HTML page with totals, the timeline, and the history of each message."""

import html
import json
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.prove.verdict import MessageHistory

if TYPE_CHECKING:
    from tests.prove.run import Proof

MAX_KEPT = 20_000
"""Maximum number of histories of messages without violations. All those with violations are included."""

MAX_PRINTED = 5
"""Maximum number of histories that the command prints."""

_PAGE = Path(__file__).with_name("report.html")


def write_report(proof: "Proof", file: Path) -> None:
    """Write the page."""
    options = proof.options
    outcomes = Counter(str(one.outcome) for one in proof.verdict.histories if one.outcome)
    kept = [one for one in proof.verdict.histories if not one.violations][:MAX_KEPT]
    broken = [one for one in proof.verdict.histories if one.violations]
    data = {
        "seed": options.seed,
        "command": options.command,
        "seconds": round(proof.seconds),
        "counts": dict(proof.counts),
        "outcomes": dict(outcomes.most_common()),
        "leftOut": dict(proof.left_out),
        "violations": [[one.kind, one.message, one.text] for one in proof.verdict.violations],
        "timeline": [[round(e.at_s, 2), e.what, e.detail] for e in proof.timeline.entries],
        "messages": [_message(one, proof.timeline.started_at) for one in [*broken, *kept]],
    }
    text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    file.write_text(
        _PAGE.read_text("utf-8")
        .replace("{{data}}", text)
        .replace("{{seed}}", html.escape(str(options.seed))),
        "utf-8",
    )


def broken_histories(proof: "Proof") -> list[str]:
    """Return the first histories of messages with violations, as lines of text."""
    broken = [one for one in proof.verdict.histories if one.violations]
    lines = []
    for message in (_message(one, proof.timeline.started_at) for one in broken[:MAX_PRINTED]):
        lines.append(f"{message['id']} ({message['kind']}) in {message['place']}:")
        lines += [f"  {' '.join(step).strip()}" for step in message["steps"]]
    if len(broken) > MAX_PRINTED:
        lines.append(f"{len(broken) - MAX_PRINTED} more in the report")
    return lines


def _message(history: MessageHistory, started_at: float) -> dict[str, Any]:
    sent = history.sent
    steps = [
        [_at(sent.sent_at, started_at), "platform", f"sent ({sent.arrival}): {sent.versions[0]}"]
    ]
    steps += [
        [
            _at(edit.at, started_at),
            "platform",
            f"edited ({edit.arrival}): {sent.versions[edit.version - 1]}",
        ]
        for edit in sent.edits
    ]
    if sent.deletion:
        steps.append(["", "platform", f"deleted ({sent.deletion})"])
    steps += [
        [
            _at(row.received_at, started_at),
            "inbox",
            f"row {row.id}, event {row.event_id}, {row.kind}, conversation {row.conversation_id} no. {row.seq}: "
            f"{row.state} after {row.starts} starts; run {row.run_id or '-'}: {row.run_status or '-'}",
        ]
        for row in history.inbox
    ]
    steps += [
        [
            _at(row.created_at, started_at),
            "outbox",
            f"{row.key} ({row.body['kind']}): {row.state} after {row.attempts} attempts, {row.uncertain_attempts} "
            f"uncertain, until {time.strftime('%H:%M:%S', time.gmtime(row.updated_at))}; message "
            f"{row.platform_id or '-'} {row.error}",
        ]
        for row in history.outbox
    ]
    steps += [
        ["", "shown", f"{one.id}: {one.text[:300]}" + (f" [file {one.file}]" if one.file else "")]
        for one in history.shown
    ]
    return {
        "id": sent.id,
        "place": sent.place,
        "kind": f"{sent.kind}, model: {sent.behavior}",
        "outcome": str(history.outcome or "violation"),
        "violations": [f"{one.kind}: {one.text}" for one in history.violations],
        "steps": steps,
    }


def _at(moment: float, started_at: float) -> str:
    return f"{moment - started_at:.2f}"
