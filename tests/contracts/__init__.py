"""Test suites that every implementation of a protocol must pass."""

import pytest

pytest.register_assert_rewrite("tests.contracts.adapter")
