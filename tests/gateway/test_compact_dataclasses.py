"""Compact dataclasses behave like Python's."""

import gc
import pickle
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any

import pytest

from gateway.compact_dataclasses import compact_dataclasses


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """As Python builds it."""

    name: str
    secret: str = field(default="s", repr=False)
    note: str = field(default="n", compare=False)
    children: tuple[Any, ...] = ()


with compact_dataclasses():

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Compact:
        """The same, with shared code."""

        name: str
        secret: str = field(default="s", repr=False)
        note: str = field(default="n", compare=False)
        children: tuple[Any, ...] = ()

    @dataclass
    class Node:
        """One that can refer to itself."""

        next: Any = None

    @dataclass(frozen=True)
    class Open:
        """Frozen, but not what its subclasses add."""

        value: int = 1

    class Extended(Open):
        """Not a dataclass."""

    class SlottedExtension(Compact):
        """Not a dataclass; its instances have a dictionary."""


@pytest.fixture(params=[Original, Compact])
def kind(request: pytest.FixtureRequest) -> Callable[..., Any]:
    built: Callable[..., Any] = request.param
    return built


def test_texts_hashes_and_comparisons(kind: Callable[..., Any]) -> None:
    one = kind(name="a", children=(1, "x"))
    name = kind.__name__
    assert repr(one) == f"{name}(name='a', note='n', children=(1, 'x'))"
    assert hash(one) == hash(("a", "s", (1, "x")))
    assert one == kind(name="a", note="other", children=(1, "x")) != kind(name="b")
    assert replace(one, name="b").name == "b"
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301


def test_fields_are_frozen(kind: Callable[..., Any]) -> None:
    one = kind(name="a")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'name'"):
        one.name = "b"
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'name'"):
        del one.name
    assert one.name == "a"


def test_nothing_can_be_added_to_a_frozen_instance() -> None:
    with pytest.raises(FrozenInstanceError, match="'other'"):
        Compact(name="a").other = 1  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError, match="'other'"):
        Open().other = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("one", [Extended(), SlottedExtension(name="a")])
def test_subclasses_can_have_attributes_of_their_own(one: Any) -> None:  # noqa: ANN401 - two classes
    one.other = 2
    assert one.other == 2
    del one.other
    assert not hasattr(one, "other")
    known = "value" if isinstance(one, Open) else "name"
    with pytest.raises(FrozenInstanceError):
        setattr(one, known, 3)


def test_a_text_of_an_instance_that_contains_itself_ends() -> None:
    node = Node()
    node.next = node
    assert repr(node) == "Node(next=...)"


@pytest.mark.parametrize("builder", [compact_dataclasses, nullcontext])
def test_methods_have_the_names_of_their_class(builder: Callable[[], Any]) -> None:
    with builder():

        @dataclass(frozen=True, slots=True)
        class Local:
            a: int

    names = [Local.__repr__, Local.__hash__, Local.__setattr__, Local.__delattr__]
    prefix = f"{test_methods_have_the_names_of_their_class.__name__}.<locals>.Local."
    assert [method.__qualname__ for method in names] == [
        f"{prefix}{name}" for name in ("__repr__", "__hash__", "__setattr__", "__delattr__")
    ]


def test_the_class_without_slots_is_freed() -> None:
    def build() -> weakref.ref[type]:
        class Plain:
            a: int

        slotted = dataclass(frozen=True, slots=True)(Plain)
        assert slotted is not Plain
        kept.append(slotted)
        return weakref.ref(Plain)

    kept: list[type] = []
    with compact_dataclasses():
        plain = build()
    gc.collect()
    assert plain() is None
    assert len(kept) == 1
