"""What mkdocs does to a page here: equations become MathML and drawings become part of the page, both when it is built.

So neither needs a script or the network, and drawings take the colours of the page's theme. MathML needs a font with
mathematical tables, which many machines lack: ziamath brings STIX Two Math (SIL Open Font License 1.1).
"""

import html
import importlib.resources
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File

MATH = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
DRAWING = re.compile(r'<img\s+alt="([^"]*)"\s+src="([^"]*\.svg)"\s*/?>')


FONT = "STIXTwoMath-Regular.ttf"


def on_files(files: Any, /, *, config: Any) -> Any:
    """Adds the font beside the style sheet."""
    font = str(importlib.resources.files("ziamath") / "fonts" / FONT)
    files.append(File.generated(config, f"css/{FONT}", abs_src_path=font))
    return files


def on_page_content(content: str, /, *, page: Any, config: Any, files: Any) -> str:
    """The page's HTML with its equations and drawings."""
    content = MATH.sub(lambda m: mathml(m[3], block=m[2] == "["), content)
    folder = Path(config.docs_dir) / Path(page.file.src_uri).parent
    return DRAWING.sub(lambda m: drawing(folder / m[2], m[1]), content)


def mathml(latex: str, block: bool) -> str:
    """An equation as MathML; a displayed one in a box that scrolls by itself on a narrow screen."""
    text = convert(html.unescape(latex).strip(), display="block" if block else "inline")
    return f'<div class="equation" tabindex="0">{text}</div>' if block else text


def drawing(path: Path, label: str) -> str:
    """An SVG file as an element of the page."""
    text = path.read_text(encoding="utf-8")
    return text[text.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
