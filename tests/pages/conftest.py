from collections.abc import Iterator
from typing import Any

import pytest

from browser import opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with opened() as driver:
        yield driver
