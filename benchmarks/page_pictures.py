"""Takes the pictures of pages that README and documentation show: the watch page, moving and still, and reports.

    make demo
    python benchmarks/page_pictures.py zoo:LunarLanderContinuous-v3 --comparison demo/store

In a real browser: it needs chromium, chromedriver and the extra `dev`.
"""

import base64
import contextlib
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import tyro
from PIL import Image

from mcclt import load
from mcclt.experiments.store import Store
from mcclt.pages import report, watch

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
WIDTH = 1100
"""Of a page, in pixels."""
SHOWN = 900
"""Of the moving picture."""
FRAMES, FPS = 150, 20
STILL = 60
"""Step of the picture that does not move."""
PAINTED = """
const [step, done] = arguments;
if (step !== null) {
  const scrubber = document.getElementById('scrubber');
  scrubber.value = step;
  scrubber.dispatchEvent(new Event('input'));
}
requestAnimationFrame(() => requestAnimationFrame(done));
"""


def picture(driver: Any, height: int, step: int | None = None) -> Image.Image:
    """The top of the page, at a step of its episode."""
    driver.execute_async_script(PAINTED, step)
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": height, "scale": 1}
    found = driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip})
    return Image.open(io.BytesIO(base64.b64decode(found["data"]))).convert("RGB")


def visit(driver: Any, page: Path, height: int) -> None:
    size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(page.resolve().as_uri())


def film(driver: Any, page: Path) -> None:
    """The watch page: its first seconds down to the belief, and one moment of all of it."""
    visit(driver, page, 990)
    lowest = "return document.querySelector('.views').getBoundingClientRect().bottom"
    height = int(driver.execute_script(lowest)) + 16
    frames = [picture(driver, height, step) for step in range(FRAMES)]
    small = [frame.resize((SHOWN, height * SHOWN // WIDTH), Image.Resampling.LANCZOS) for frame in frames]
    path = IMAGES / "watch.webp"
    small[0].save(path, save_all=True, append_images=small[1:], duration=1000 // FPS, loop=0, quality=55, method=6)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    still(picture(driver, 990, STILL), "watch")


def still(found: Image.Image, name: str) -> None:
    """A PNG of 256 colours: a third of the size, and nobody sees it."""
    path = IMAGES / f"{name}.png"
    found.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path)


def main(run: tyro.conf.Positional[str | None] = None, seed: int | None = None, comparison: Path | None = None) -> None:
    """Takes them.

    Args:
        run: an agent of the zoo, a run directory or a saved model, to film.
        seed: which of its agents; unset: the first.
        comparison: a store of somebody's own comparison.
    """
    sys.path.append(str(ROOT / "tests" / "support"))
    from browser import opened

    with tempfile.TemporaryDirectory() as folder, opened() as driver:
        if run:
            recording = watch.record(load(run), seed=seed, width=640, max_frames=1_000)
            film(driver, watch.write([recording], Path(folder) / "watch.html"))
        with contextlib.chdir(ROOT):  # a page names its store as it was given
            stores = {"report": Store(Path("results")).load()}
        if comparison:
            stores["comparison"] = Store(comparison).load()
        for name, results in stores.items():
            visit(driver, report.write(results, Path(folder) / name), 1000)
            still(picture(driver, 1000), name)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
