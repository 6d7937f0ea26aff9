"""What a picture says under the pointer: boxes that cannot be seen, each with a sentence, laid over an SVG."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from cael.common.visible import visible
from cael.inference.intervals import Interval
from cael.results.sheet import text_of


@final
@dataclass(frozen=True)
class Spot:
    """A part of a picture. x, y: its ends in units of the axes; None: the whole side."""

    text: str
    x: tuple[float, float] | None = None
    y: tuple[float, float] | None = None


def interval_text(label: str, value: float, low: float, high: float, kind: str = "interval") -> str:
    """A value and its interval, as tables write them."""
    single = kind.removesuffix(" interval") if kind != "interval" else "value"
    return f"{label}: {text_of(single, value)} {text_of(kind, Interval(low, high, 0.0, ''))}"


def overlaid(svg: str, axes: Any, spots: Sequence[Spot]) -> str:
    """The picture with its spots, where Matplotlib placed the axes when it drew them."""
    height = axes.figure.bbox.height
    boxes = "".join(_box(axes, spot, height) for spot in spots)
    return svg.replace("</svg>", f'<g class="spots">{boxes}</g></svg>')


def _box(axes: Any, spot: Spot, height: float) -> str:
    (x0, x1), (y0, y1) = spot.x or axes.get_xlim(), spot.y or axes.get_ylim()
    (left, bottom), (right, top) = axes.transData.transform([(x0, y0), (x1, y1)]).round().astype(int).tolist()
    text = html.escape(visible(spot.text), quote=False)
    path = f"M{left} {height - top:.0f}H{right}v{top - bottom}H{left}z"
    return f'<path d="{path}"><title>{text}</title></path>'
