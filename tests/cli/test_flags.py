from pathlib import Path

import pytest

from mcclt.cli import flags
from mcclt.errors import ConfigError

LISTS = (flags.Comma, flags.Variants)


def test_words_between_commas():
    assert flags.names("plain, mcclt,,trpo-mcclt") == ("plain", "mcclt", "trpo-mcclt")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (flags.Widths, "64,32", (64, 32)),
        (flags.Steps, "1.5M", 1_500_000),
        (flags.Steps | None, "unset", None),
        (flags.Steps | None, "2k", 2_000),
        (int | None, "unset", None),
        (int | None, "-3", -3),
        (Path | None, "unset", Path("unset")),
        (flags.Seeds, "3", (3,)),
        (flags.Seeds, "0..4", (0, 1, 2, 3, 4)),
        (flags.Seeds, "5..6,1", (5, 6, 1)),
    ],
)
def test_values(kind: object, text: str, value: object) -> None:
    assert flags.read("name", kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (flags.Widths, "64,wide", "name = '64,wide' is not allowed: give widths such as 64,32."),
        (int | None, "None", "give a whole number"),
        *((kind, text, "name = .* is not allowed: name at least one.") for kind in LISTS for text in ("", " , ")),
        *((flags.Seeds, text, "seeds = ") for text in ("", "-1", "a", "3..1", "1,", "1.5")),
    ],
)
def test_bad_values(kind: object, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        flags.read("name", kind, text)


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        (None, int | None, "unset"),
        ((), flags.Comma, "unset"),
        (("a", "b"), flags.Comma, "a,b"),
        (True, bool, "on"),
        (1_000_000, flags.Steps, "1M"),
        (50_000, flags.Steps, "50k"),
        (0, flags.Steps, "0"),
        (4000, int, "4000"),
        (3e-4, float, "0.0003"),
    ],
)
def test_defaults_are_shown_as_they_are_typed(value: object, kind: object, shown: str) -> None:
    assert flags.show(value, kind) == shown
