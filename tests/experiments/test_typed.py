from typing import Any

import pytest

from mcclt.experiments.settings import text, typed


@pytest.mark.parametrize(
    ("value", "as_typed", "as_read"),
    [
        (None, "unset", "–"),
        (True, "true", "true"),
        (40_000, "40000", "40,000"),
        (1e-05, "1e-05", "1e-05"),
        ((64, 64), "64,64", "64,64"),
        (tuple(range(5)), "0,1,2,3,4", "0..4"),
        ("log", "log", "log"),
    ],
)
def test_values_in_words(value: Any, as_typed: str, as_read: str) -> None:
    assert (typed(value), text(value)) == (as_typed, as_read)
