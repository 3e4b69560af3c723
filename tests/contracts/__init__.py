"""Suites that every implementation of a protocol keeps."""

import pytest

pytest.register_assert_rewrite("tests.contracts.adapter")
