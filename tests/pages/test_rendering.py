"""Templates: what goes into a page is escaped, and no page is written by hand."""

import ast
import json
import re
from pathlib import Path

import jinja2
import numpy as np
import pytest

import mcclt
from mcclt.experiments.analysis import texts
from mcclt.experiments.cells import plain
from mcclt.pages import rendering

SOURCE = Path(mcclt.__file__).parent
EVIL = "</script><b>&'\""


def test_text_is_escaped_and_data_stay_data():
    text = rendering.render("watch", {"name": EVIL}, task=EVIL, who="somebody")
    assert EVIL not in text and text.count("</script>") == 2
    assert "<title>&lt;/script&gt;&lt;b&gt;&amp;&#39;&#34;: somebody</title>" in text
    assert json.loads(re.search(r'id="data">(.*?)</script>', text)[1]) == {"name": EVIL}


def test_a_forgotten_value_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="who"):
        rendering.render("watch", {}, task="Hopper-v5")


def test_numbers():
    assert plain(np.array([1234.5678, 3.0, np.nan, -0.000123456]), 4) == [1235, 3, None, -0.0001235]
    assert [rendering.short(n) for n in (1_000_000, 1_500_000, 50_000, 8)] == ["1M", "1.5M", "50k", "8"]
    assert texts.signed(-0.125, ".0%") == "−12%" and texts.signed(0.5, ".2f") == "+0.50"
    assert texts.count(1, "agent") == "1 agent" and texts.count(2000, "agent") == "2,000 agents"


def test_pages_are_templates():
    """No HTML in Python's own strings: there it would have to be escaped by hand."""
    tags = "a article code dd details div dl dt figure h1 h2 h3 li ol p section span svg table td th tr ul".split()
    markup = re.compile(rf"</?({'|'.join(tags)})[ >]")
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for joined in (node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)):
            parts = [part.value for part in joined.values if isinstance(part, ast.Constant)]
            assert not any(map(markup.search, parts)), f"{path}:{joined.lineno}"
