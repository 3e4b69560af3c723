"""The sequence diagram of a message's path. Each step names the code that does it."""

from tests.lab.pictures import svg

_WIDTH, _TOP, _STEP = 1180.0, 84.0, 40.0

PARTICIPANTS = (
    ("platform", "Slack, Telegram, Feishu"),
    ("adapter", "bots/<platform>"),
    ("inbound", "bus/inbound"),
    ("turn", "bus/conversation"),
    ("delivery", "bus/outbound"),
    ("runtime", "gateway/runtime"),
    ("agent", "agent"),
    ("journal", "store"),
)

STEPS = (
    ("platform", "adapter", "event", "bots.common.adapter:BaseAdapter.receive"),
    ("adapter", "inbound", "InboundMessage", "bus.platform:Intake.receive"),
    ("inbound", "journal", "store the message", "store.inbox:InboxStore.accept"),
    ("inbound", "platform", "acknowledge", "bots.common.adapter:BaseAdapter.hand_over"),
    (
        "inbound",
        "turn",
        "queue in its conversation",
        "bus.conversation.conversations:Conversations.enqueue",
    ),
    ("turn", "journal", "the turn starts", "store.inbox:InboxStore.mark_running"),
    ("turn", "runtime", "start the run (LangGraph API)", "gateway.runtime.runs:RunManager.start"),
    ("runtime", "agent", "run the graph", "gateway.runtime.execution:execute_run"),
    ("runtime", "turn", "events", "bus.conversation.steps:TurnSteps.events"),
    (
        "turn",
        "platform",
        "live reply, where the platform has one",
        "bus.platform:SupportsStreaming.update_streaming",
    ),
    (
        "turn",
        "journal",
        "finish the message, store its answer: one transaction",
        "store.inbox:InboxStore.finish",
    ),
    ("delivery", "journal", "the send begins", "store.outbox:OutboxStore.mark_sending"),
    ("delivery", "adapter", "answer", "bus.outbound.sending:RowSender.send"),
    ("adapter", "platform", "message", "bus.platform:Adapter.send"),
    ("delivery", "journal", "delivered", "store.outbox:OutboxStore.mark_delivered"),
)
"""Rows of (from, to, label, code that does it). A test checks that the code exists."""


def sequence_diagram() -> str:
    """Return the diagram as SVG."""
    space = _WIDTH / len(PARTICIPANTS)
    places = {name: space * (number + 0.5) for number, (name, _) in enumerate(PARTICIPANTS)}
    bottom = _TOP + _STEP * len(STEPS) + 10
    parts = []
    for name, folder in PARTICIPANTS:
        x = places[name]
        parts += [
            svg.box((x - 66, 14), (132, 42), fill="#e0f2fe" if name != "journal" else "#dcfce7"),
            svg.text((x, 32), name, weight=600),
            svg.text((x, 48), folder, size=11, color=svg.MUTED),
            f'<path d="M{x:g} 56V{bottom:g}" stroke="#cbd5e1" stroke-dasharray="3 4"/>',
        ]
    for number, (source, target, what, _) in enumerate(STEPS):
        y = _TOP + _STEP * number + 20
        start, end = places[source], places[target]
        parts.append(svg.arrow((start, y), (end, y)))
        middle = (start + end) / 2
        parts.append(svg.text((middle, y - 6), f"{number + 1}. {what}", size=12, halo=True))
    return svg.picture(int(_WIDTH), int(bottom + 14), "How a message flows through Parley", *parts)
