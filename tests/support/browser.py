"""A real browser for the tests of pages, and what they ask it."""

import contextlib
import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSER, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
FLAGS = (
    "headless=new no-sandbox disable-gpu disable-dev-shm-usage disable-background-networking disable-component-update "
    "disable-sync no-first-run hide-scrollbars allow-file-access-from-files"
)
where_there_is_one = pytest.mark.skipif(
    not (BROWSER and DRIVER and importlib.util.find_spec("selenium")),
    reason="needs chromium, chromedriver and the Python package selenium",
)


def needs_browser(test: Any) -> Any:
    """Marks a test that looks at a page: one of each page is in every run of the tests, the others have their own."""
    return pytest.mark.browser(where_there_is_one(test))


@contextlib.contextmanager
def opened() -> Iterator[Any]:
    """A browser without a window that keeps what pages say on their console."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER or ""
    for flag in FLAGS.split():
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER, env={"SE_OFFLINE": "true"}))
    driver.set_script_timeout(10)
    try:
        yield driver
    finally:
        driver.quit()


def sized(driver: Any, width: int, scheme: str = "light", media: str = "screen") -> None:
    """Gives the window a size, and its system a scheme of colours."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


def look_at(driver: Any, path: Path, width: int, scheme: str = "light") -> None:
    """Opens a page whose charts are drawn once their width is known, which is after the first frame."""
    sized(driver, width, scheme)
    driver.get(path.as_uri())
    driver.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => setTimeout(done, 50));")


def every(tab: Any, selector: str) -> list[Any]:
    return tab.find_elements("css selector", selector)


CONTRAST = """
const probe = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const rgb = (colour) => { probe.clearRect(0, 0, 1, 1); probe.fillStyle = colour; probe.fillRect(0, 0, 1, 1);
  return probe.getImageData(0, 0, 1, 1).data; };
const light = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, w, k) => {
  const v = c[k] / 255; return sum + w * (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); }, 0);
const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
  if (c[3] > 200) return c; } return [255, 255, 255]; };
const poor = new Set();
for (const e of document.querySelectorAll('body *')) {
  if (e.closest('svg, script, style, noscript') || !e.checkVisibility()) continue;
  if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
  const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((p, q) => q - p);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) poor.add(`${e.tagName}.${e.className}: ${ratio.toFixed(2)}`);
}
return [...poor];
"""
"""Texts, by their element, whose contrast with what is behind them is below 4.5."""
