from __future__ import annotations

import base64
import math
import re
from typing import Any
from xml.etree import ElementTree

from assets.plots import charts, curves, page
from assets.report.charts import MAX_POINTS, thin


def lines(steps: int = 30) -> list[dict[str, Any]]:
    return [
        {"step": s, "tokens": 10 * s, "loss": 5 - s / 10, "grad_norm": "nan" if s == 3 else 1.0,
         "entropy": 4.0, "batch_entropy": 6.0, "gate/norm_limit": math.nan if s < 9 else 2.0}
        for s in range(1, steps + 1)
    ]  # fmt: skip


def test_curves_are_images_inside_the_text() -> None:
    text = str(curves(lines(), ("other", lines(10))).value)
    found = re.findall(r"!\[\w+\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", text)
    assert len(found) == 3, "no update ratio was measured"
    for data in found:
        root = ElementTree.fromstring(base64.b64decode(data))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "dashed: other" in text


def test_a_run_without_steps_has_no_curve() -> None:
    assert charts([]) == []
    assert curves([]).value == "No step has been logged yet."


def test_the_page_escapes_what_it_says() -> None:
    html = page("Run <x>", ["a & b <script>"], lines(), None)
    assert "<h1>Run &lt;x&gt;</h1><p>a &amp; b &lt;script&gt;</p>" in html
    assert html.count("<figure>") == 3


def test_a_spike_does_not_flatten_the_rest() -> None:
    flat = {name: svg for name, _, svg in charts(lines())}["gradient_norm"]
    assert ">norm<" in flat
    steep = [dict(line, grad_norm=100.0 if line["step"] == 9 else 1.0) for line in lines()]
    found = {name: svg for name, _, svg in charts(steep)}["gradient_norm"]
    assert ">norm, log10<" in found
    assert ">2<" in found


def test_no_spike_of_one_step_is_lost_in_a_long_curve() -> None:
    points = [(float(n), 1.0 + n % 3) for n in range(100_001)]
    points[77_777], points[50_001], points[9] = (77_777.0, 60.0), (50_001.0, -9.0), (9.0, math.nan)
    found = thin(points)
    assert len(found) <= MAX_POINTS + 2
    assert {points[77_777], points[50_001], points[0], points[-1]} <= set(found)
    assert found == sorted(found)
    assert thin(points[:400]) == [point for point in points[:400] if point[0] != 9]


def test_curves_of_a_long_run_stay_small() -> None:
    assert len(str(curves(lines(20_000)).value)) < 60_000
