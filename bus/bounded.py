"""A dictionary of bounded size."""

from collections import OrderedDict
from typing import TypeVar

from typing_extensions import override

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(OrderedDict[K, V]):
    """A dictionary that keeps only the most recently set items.

    Args:
        max_items: Maximum number of items.

    >>> recent = BoundedDict[str, int](2)
    >>> recent["a"], recent["b"], recent["a"], recent["c"] = 1, 2, 3, 4
    >>> list(recent.items())
    [('a', 3), ('c', 4)]
    """

    def __init__(self, max_items: int) -> None:
        super().__init__()
        self._max_items = max_items

    @override
    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._max_items:
            self.popitem(last=False)
