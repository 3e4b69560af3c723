"""Dataclasses whose methods share their code, for a process that keeps hundreds of them."""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import Field, FrozenInstanceError
from reprlib import recursive_repr
from typing import Any

_FIRST_OTHER_PYTHON = (3, 13)
"""From this version on, dataclasses are built in another way."""

_Method = Callable[..., Any]
_Fields = Sequence[Field[Any]]


@contextmanager
def compact_dataclasses() -> Iterator[None]:
    """Inside the block, dataclasses are built with methods that behave like Python's, without code of their own.

    Python compiles `__repr__`, `__hash__`, `__setattr__` and `__delattr__` for each class, and with `frozen` and
    `slots` also keeps the class without slots that it builds first: together 7 of 14 kB of a class with five fields,
    and half of the time that it takes.
    """
    if sys.version_info >= _FIRST_OTHER_PYTHON:
        yield
        return
    builders = {"_repr_fn": _repr, "_hash_fn": _hash, "_frozen_get_del_attr": _frozen_methods}
    before = {name: getattr(dataclasses, name) for name in builders}
    vars(dataclasses).update(builders)
    try:
        yield
    finally:
        vars(dataclasses).update(before)


def _repr(fields: _Fields, _globals: object) -> _Method:
    names = tuple(field.name for field in fields)

    @recursive_repr("...")
    def __repr__(self: object) -> str:  # noqa: N807 - the method's name
        values = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{self.__class__.__qualname__}({values})"

    return __repr__


def _hash(fields: _Fields, _globals: object) -> _Method:
    names = tuple(field.name for field in fields)

    def __hash__(self: object) -> int:  # noqa: N807 - the method's name
        return hash(tuple([getattr(self, name) for name in names]))

    return __hash__


def _frozen_methods(_class: type, _fields: _Fields, _globals: object) -> tuple[_Method, _Method]:
    # They do not keep the class: with slots, it is replaced by another one.
    def __setattr__(self: object, name: str, value: object) -> None:  # noqa: N807 - the method's name
        owner: Any = _frozen_owner(self, name, __setattr__)
        if owner is None:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(owner, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:  # noqa: N807 - the method's name
        owner: Any = _frozen_owner(self, name, __delattr__)
        if owner is None:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(owner, self).__delattr__(name)

    return __setattr__, __delattr__


def _frozen_owner(instance: object, name: str, method: _Method) -> type | None:
    """Return the class that a method belongs to; None if it freezes this attribute."""
    kind = type(instance)
    owner = next(one for one in kind.__mro__ if vars(one).get(method.__name__) is method)
    is_field = any(field.name == name for field in dataclasses.fields(owner))
    return None if kind is owner or is_field else owner
