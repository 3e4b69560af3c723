"""The turn's state diagram, drawn from the table in bus/conversation/states.py."""

from bus.conversation.states import FINAL, TRANSITIONS, Effect, TurnEvent, TurnState
from tests.lab.pictures import svg

_SIZE = (170.0, 44.0)
_S = TurnState
_PLACES: dict[TurnState, svg.Point] = {
    _S.QUEUED: (130, 200),
    _S.STARTING: (440, 200),
    _S.RUNNING: (800, 200),
    _S.STEERING: (1110, 200),
    _S.CANCELLING: (560, 390),
    _S.DELIVERING: (800, 560),
    _S.DONE: (130, 560),
    _S.WAITING_FOR_APPROVAL: (440, 660),
    _S.FAILED: (285, 60),
}
"""The middle of each state's box; a state without a place fails."""

_BENDS: dict[tuple[TurnState, TurnState], float] = {
    (_S.STEERING, _S.STARTING): -70,
    (_S.STARTING, _S.CANCELLING): 0,
    (_S.CANCELLING, _S.STARTING): 48,
}
_LABEL_SHIFTS: dict[tuple[TurnState, TurnState], svg.Point] = {
    (_S.QUEUED, _S.DONE): (0, 30),
    (_S.STARTING, _S.DONE): (-50, 70),
    (_S.STARTING, _S.CANCELLING): (25, -10),
    (_S.CANCELLING, _S.STARTING): (-32, 14),
    (_S.QUEUED, _S.FAILED): (-8, -20),
    (_S.STARTING, _S.FAILED): (-24, 30),
    (_S.STEERING, _S.CANCELLING): (90, -30),
    (_S.STEERING, _S.STARTING): (0, -22),
    (_S.RUNNING, _S.DELIVERING): (0, 60),
}
_LOOPS = {_S.STARTING: (52, -1), _S.CANCELLING: (-30, 1)}
"""How far from the middle an arrow to the same state is, and whether above (-1) or below (1)."""
_COLORS = {_S.DONE: "#dcfce7", _S.FAILED: "#fee2e2", _S.WAITING_FOR_APPROVAL: "#fef9c3"}


def state_diagram() -> str:
    """Return the diagram as SVG."""
    labels: dict[tuple[TurnState, TurnState], list[str]] = {}
    crashing = set()
    for (state, event), transition in TRANSITIONS.items():
        if event is TurnEvent.CRASHED:
            crashing.add(state)
            continue
        effect = "" if transition.effect is Effect.NOTHING else f" / {transition.effect}"
        labels.setdefault((state, transition.target), []).append(f"{event}{effect}")
    arrows = [_edge(*pair, pair[::-1] in labels) for pair in labels]
    texts = [_label(*pair, found, pair[::-1] in labels) for pair, found in labels.items()]
    states = [_state(state, crashes=state in crashing) for state in TurnState]
    start = svg.arrow((16, 200), (43, 200)) + '<circle cx="12" cy="200" r="6" fill="#1f2937"/>'
    return svg.picture(
        1230, 720, "The states of a turn", start, *arrows, *states, *texts, *_legend()
    )


def _state(state: TurnState, *, crashes: bool) -> str:
    x, y = _PLACES[state]
    corner = (x - _SIZE[0] / 2, y - _SIZE[1] / 2)
    parts = [svg.box(corner, _SIZE, fill=_COLORS.get(state, "#e0f2fe"), stroke="#64748b")]
    if state in FINAL:
        inner = (corner[0] + 3, corner[1] + 3)
        parts.append(svg.box(inner, (_SIZE[0] - 6, _SIZE[1] - 6), fill="none", stroke="#64748b"))
    parts.append(svg.text((x, y + 5), state, weight=600))
    if crashes:
        parts.append(
            f'<circle cx="{corner[0] + 12:g}" cy="{corner[1] + 12:g}" r="4" fill="#dc2626"/>'
        )
    return "\n".join(parts)


def _loop(state: TurnState) -> tuple[float, float, int]:
    """Return the middle of an arrow to the same state, the border that it is at, and on which side."""
    shift, side = _LOOPS.get(state, (0, -1))
    x, y = _PLACES[state]
    return x + shift, y + side * _SIZE[1] / 2, side


def _bend(source: TurnState, target: TurnState, both_ways: bool) -> float:
    return _BENDS.get((source, target), 16.0 if both_ways else 0.0)


def _edge(source: TurnState, target: TurnState, both_ways: bool) -> str:
    if source == target:
        x, edge, side = _loop(source)
        far = edge + side * 44
        path = f"M{x - 22:g} {edge:g}C{x - 40:g} {far:g} {x + 40:g} {far:g} {x + 22:g} {edge:g}"
        return f'<path d="{path}" fill="none" stroke="{svg.MUTED}" marker-end="url(#arrow)"/>'
    bend = _bend(source, target, both_ways)
    middle = svg.beside(_PLACES[source], _PLACES[target], bend * 2)
    start, end = _border(source, middle), _border(target, middle)
    return svg.arrow(start, end, bend=bend)


def _border(state: TurnState, toward: svg.Point) -> svg.Point:
    """Return where the line from the middle of a box to a point leaves the box."""
    x, y = _PLACES[state]
    across, down = toward[0] - x, toward[1] - y
    factor = min(
        _SIZE[0] / 2 / abs(across) if across else float("inf"),
        _SIZE[1] / 2 / abs(down) if down else float("inf"),
    )
    return (round(x + across * factor, 1), round(y + down * factor, 1))


def _label(source: TurnState, target: TurnState, found: list[str], both_ways: bool) -> str:
    if source == target:
        x, edge, side = _loop(source)
        return svg.lines((x, edge + side * (38 + 6 * len(found))), found)
    x, y = svg.beside(_PLACES[source], _PLACES[target], _bend(source, target, both_ways) * 1.15)
    right, down = _LABEL_SHIFTS.get((source, target), (0, 0))
    return svg.lines((x + right, y + down), found)


def _legend() -> list[str]:
    crash = next(t for (_, event), t in TRANSITIONS.items() if event is TurnEvent.CRASHED)
    return [
        '<circle cx="905" cy="38" r="4" fill="#dc2626"/>',
        svg.text(
            (917, 42),
            f"{TurnEvent.CRASHED} / {crash.effect}: to {crash.target}",
            size=12,
            anchor="start",
        ),
        svg.text((901, 62), "Arrows: event / effect.", size=12, anchor="start"),
        svg.text((901, 82), "Double border: the turn's task ends.", size=12, anchor="start"),
    ]
