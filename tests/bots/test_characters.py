"""Texts are never cut inside a character as people see it."""

from bots.text.characters import safe_cut

GERMANY, FRANCE = "\U0001f1e9\U0001f1ea", "\U0001f1eb\U0001f1f7"


def test_flags_are_cut_between_and_not_inside() -> None:
    text = f"x{GERMANY}{FRANCE}"
    assert [safe_cut(text, at) for at in range(1, 6)] == [1, 1, 3, 3, 5]
    # At the beginning of the text, the first two letters are a flag, too.
    assert [safe_cut(f"{GERMANY}{FRANCE}", at) for at in (2, 3)] == [2, 2]
