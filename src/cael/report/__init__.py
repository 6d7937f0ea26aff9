"""Report: one self-contained HTML file about an evaluation. view: numbers and words; figures: SVG; html: the page."""

from cael.report.html import Shown, render, save, show

__all__ = ["Shown", "render", "save", "show"]
