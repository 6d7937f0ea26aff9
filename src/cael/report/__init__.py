"""Report: one self-contained HTML file about an evaluation. view: numbers and words; figures: SVG; html: the page."""

from cael.report.html import render, save

__all__ = ["render", "save"]
