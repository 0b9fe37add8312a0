import pytest

from mcclt.cli import flags
from mcclt.errors import ConfigError


def test_words_between_commas():
    assert flags.names("plain, mcclt,,trpo-mcclt") == ("plain", "mcclt", "trpo-mcclt")


def test_widths():
    assert flags.widths("64,32") == (64, 32)
    with pytest.raises(ConfigError, match="give widths such as 64,32"):
        flags.widths("64,wide")
