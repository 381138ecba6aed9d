"""How pages are judged: can every text be read, and does axe-core find anything wrong?"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

AXE: Final = Path(__file__).parents[2] / "labextension/node_modules/axe-core/axe.min.js"


def violations(page: Any, within: str = "html") -> list[str]:
    """What axe-core finds in the page, or *within* a part of it, one line for each element."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: python3 tests/support/prepare.py labextension")
    if not page.evaluate("'axe' in window"):
        page.add_script_tag(content=AXE.read_text("utf-8"))
    found: list[str] = page.evaluate(
        """async (within) => (await axe.run(within, {resultTypes: ['violations']})).violations
          .flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 200)} ${
            node.failureSummary}`))""",
        within,
    )
    return found


def poor_contrasts(page: Any) -> list[str]:
    """Texts that are too pale for WCAG 2, level AA."""
    found: list[str] = page.evaluate(_CONTRASTS)
    return found


# Text against the nearest background that is not transparent, after WCAG 2.
_CONTRASTS: Final = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, below) => {
    const a = top[3] / 255;
    return [0, 1, 2].map((i) => top[i] * a + below[i] * (1 - a)).concat(255);
  };
  const backgroundOf = (element) => {
    const colour = rgba(getComputedStyle(element).backgroundColor);
    if (colour[3] === 255) return colour;
    if (!element.parentElement) return [255, 255, 255, 255];
    return over(colour, backgroundOf(element.parentElement));
  };
  const light = ([r, g, b]) => {
    const part = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const poor = [];
  for (const element of document.querySelectorAll('main *')) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !element.offsetParent || element.closest('.opv-sr') || element.disabled) continue;
    const below = backgroundOf(element);
    const ink = over(rgba(getComputedStyle(element).color), below);
    const [high, low] = [light(ink), light(below)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    const words = element.textContent.slice(0, 30);
    if (ratio < 4.5) poor.push(`${element.className} ${words} ${ratio.toFixed(2)}`);
  }
  return poor;
}"""
