"""What mkdocs does to a page here: equations become MathML, drawings part of it, settings tables, packages modules.

All when it is built, so nothing needs a script or the network, and drawings take the colours of the page's theme.
MathML needs a font with mathematical tables, which many machines lack: ziamath brings STIX Two Math (SIL Open Font
License 1.1).
"""

import ast
import html
import importlib.util
import itertools
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

MATH = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
SHORT = re.compile(r"<td((?: [^>]*)?)>((?:<strong>|<em>)?[^<]{1,22}(?:</strong>|</em>)?[*]?)</td>")
"""A cell with a number, a name or a few words."""
DRAWING = re.compile(r'<img\s+alt="([^"]*)"\s+src="([^"]*\.svg)"\s*/?>')


FONT = "STIXTwoMath-Regular.ttf"


ROOT = Path(__file__).resolve().parent.parent
SETTINGS = re.compile(r"^<!-- settings (\w+) -->$", re.MULTILINE)
MODULES = re.compile(r"^<!-- modules ([\w.]+) -->$", re.MULTILINE)
OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)\)")


def on_files(files: Any, /, *, config: Any) -> Any:
    """Adds font and logo, the colours of `mcclt report` and `mcclt watch`, and the programs that pages link to."""
    spec = importlib.util.find_spec("ziamath")  # found, not imported: only its font is wanted
    assert spec is not None and spec.origin is not None
    font = Path(spec.origin).parent / "fonts" / FONT
    files.append(File.generated(config, f"css/{FONT}", abs_src_path=str(font)))
    page_style = (ROOT / "src" / "mcclt" / "pages" / "templates" / "style.css").read_text(encoding="utf-8")
    files.append(File.generated(config, "css/colours.css", content=page_style[: page_style.index("}") + 1]))
    logo = ROOT / "docs" / "_theme" / ".icons" / "mcclt.svg"
    files.append(File.generated(config, "images/logo.svg", abs_src_path=str(logo)))
    for path in sorted([*ROOT.glob("examples/*.*"), *ROOT.glob("benchmarks/*.*")]):
        where = f"repository/{path.relative_to(ROOT).as_posix()}"
        files.append(File.generated(config, where, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, /, *, page: Any, config: Any, files: Any) -> str:
    """Tables of settings, modules of a package; links out of docs/ lead to the site's copies or nowhere."""
    markdown = SETTINGS.sub(lambda m: settings_table(m[1]), markdown)
    markdown = MODULES.sub(lambda m: reference(m[1]), markdown)
    folder = Path(page.file.src_uri).parent

    def link(match: re.Match[str]) -> str:
        path = (Path(config.docs_dir) / folder / match[2]).resolve()
        if path.is_relative_to(config.docs_dir) or not path.is_relative_to(ROOT):
            return match[0]
        copy = f"repository/{path.relative_to(ROOT).as_posix()}"
        if files.get_file_from_path(copy) is None:
            return match[1]
        return f"[{match[1]}]({'../' * len(folder.parts)}{copy})"

    return OUTSIDE.sub(link, markdown)


def settings_table(name: str) -> str:
    """The fields of a class of mcclt.config: name, default, and the sentence that stands under each."""
    tree = ast.parse((ROOT / "src" / "mcclt" / "config" / "__init__.py").read_text(encoding="utf-8"))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    lines = ["| setting | default | what it is |", "|---|---|---|"]
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            default = ast.unparse(field.value) if field.value is not None else "needed"
            default = "one group of defaults" if "default_factory" in default else f"`{default}`"
            what = str(text.value.value).replace("|", "\\|")
            link = f"[`{ast.unparse(field.target)}`](settings.md#mcclt.config.{name}.{ast.unparse(field.target)})"
            lines.append(f"| {link} | {default} | {what} |")
    return "\n".join(lines)


def reference(package: str) -> str:
    """What mkdocstrings is asked for: a package, and every module in it."""
    folder = ROOT.joinpath("src", *package.split("."))
    modules = (path.relative_to(ROOT / "src").with_suffix("").parts for path in folder.rglob("*.py"))
    names = sorted(".".join(parts).removesuffix(".__init__") for parts in modules)
    return "\n\n".join(f"::: {name}" for name in names)


def on_page_content(content: str, /, *, page: Any, config: Any, files: Any) -> str:
    """The page's HTML with its equations and drawings, and what is short in a table on one line."""
    content = MATH.sub(lambda m: mathml(m[3], block=m[2] == "["), content)
    folder = Path(config.docs_dir) / Path(page.file.src_uri).parent
    content = DRAWING.sub(lambda m: drawing(folder / m[2], m[1]), content)
    return SHORT.sub(r"<td\1 data-whole>\2</td>", content)


def mathml(latex: str, block: bool) -> str:
    """An equation as MathML; a displayed one in a box that scrolls by itself on a narrow screen."""
    text = convert(html.unescape(latex).strip(), display="block" if block else "inline")
    return f'<div class="equation" tabindex="0">{text}</div>' if block else text


def drawing(path: Path, label: str) -> str:
    """An SVG file as an element of the page."""
    text = path.read_text(encoding="utf-8")
    text = text[text.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return f'<div class="drawing-box" tabindex="0">{text}</div>'


@event_priority(-100)
def on_post_build(*, config: Any) -> None:
    """The search index once more as a script, which a page that is opened from disk may load."""
    index = Path(config.site_dir) / "search" / "search_index.json"
    index.with_suffix(".js").write_text(f"var __index = {index.read_text(encoding='utf-8')}", encoding="utf-8")
