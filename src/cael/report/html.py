"""The page: one template, filled with a view and its pictures."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

from cael.common.visible import visible
from cael.common.whole import write_whole
from cael.errors import InputError, positive_int
from cael.judging.audits import Audit
from cael.report import charts
from cael.report.drawing import Picture
from cael.report.view import MOST_GROUPS, ends, grid, room, view
from cael.results.calibration import Calibration
from cael.results.comparison import Comparison
from cael.results.evaluation import Evaluation
from cael.results.planning import Plan
from cael.results.segmentation import Segments

TEMPLATE, SCRIPT = (Path(__file__).with_name(name) for name in ("page.html.j2", "sorting.js"))


def render(
    evaluation: Evaluation | None = None,
    *,
    comparison: Comparison | None = None,
    audit: Audit | None = None,
    segments: Segments | Mapping[str, Segments] | None = None,
    windows: Segments | None = None,
    plan: Plan | None = None,
    calibration: Calibration | None = None,
    learned: Any = None,
    title: str = "Off-policy evaluation",
    settings: Mapping[str, object] | None = None,
    seed: int | None = None,
) -> str:
    """A report as one HTML page: no request, one small script that sorts tables, the same bytes for the same results.

    evaluation, comparison: at least one of the two; the verdict is that of the evaluation where both are given.
    learned: what `cael.learn` gave, of which the evaluation is the certificate.
    segments: of one column, or of several by their names. At most four groups, the windows included, are shown with a
    picture and a table, and of twenty others what they say in a sentence; the page stays below 300 KiB.
    settings: what else shall stand in the table of settings, such as file names; every string is escaped. seed: of
    the run.
    """
    if evaluation is None and comparison is None:
        raise InputError("a report needs an evaluation or a comparison: cael.evaluate(log, policy) makes one.")
    needed()
    groups = _groups(segments, windows)
    page = view(evaluation, comparison, audit, groups, plan, calibration, title, settings or {}, seed)
    overlap = None if evaluation is None else evaluation.overlap
    result: Any = comparison if evaluation is None else evaluation
    pictures = {
        "answer": charts.answer(result),
        "course": None if evaluation is None else charts.course(evaluation.course, evaluation.metric),
        "intervals": None if evaluation is None else charts.intervals(evaluation),
        "lifts": None if comparison is None else charts.lifts(comparison),
        "weights": None if overlap is None else charts.weights(overlap),
        "support": None if overlap is None else charts.support(overlap),
        "segments": _pictures(groups[:MOST_GROUPS]),
        "paths": [] if evaluation is None else charts.paths(evaluation),
    }
    page["learned"] = None
    if learned is not None:  # what was learned decides, not what its certificate alone would say
        page["decisions"] = [(learned.decision, "", " ".join(learned.reasons) or learned.sentence())]
        page["learned"] = learned.sentence(), learned.explain(), grid(learned.sheet())
    script = SCRIPT.read_text(encoding="utf-8")
    return _template().render(page=page, pictures=pictures, script=script, hash=_hash(script))


def _hash(script: str) -> str:
    """By which a page names the only script that a browser may run on it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _groups(segments: Segments | Mapping[str, Segments] | None, windows: Segments | None) -> list[tuple[str, Segments]]:
    """(name, segments) pairs, windows of time first, since they are never left out."""
    named = {"segment": segments} if isinstance(segments, Segments) else segments or {}
    return [*([] if windows is None else [("time period", windows)]), *named.items()]


def _pictures(groups: Sequence[tuple[str, Segments]]) -> list[Picture]:
    most = room(len(groups))[0] if groups else 0
    return [charts.segment_lifts(each, ends(each.rows, most), f"segments-{at}") for at, (_, each) in enumerate(groups)]


def save(path: str | Path, evaluation: Evaluation | None = None, **parts: Any) -> Path:
    """Write the page of `render`, which takes the same arguments, to a file: the whole page, or nothing."""
    where = Path(path)
    write_whole(where, render(evaluation, **parts))
    return where


@final
@dataclass(frozen=True)
class Shown:
    """A page for a notebook: in a frame of its own, so that its style and the notebook's do not meet."""

    page: str
    height: int

    def _repr_html_(self) -> str:
        inside = html.escape(self.page, quote=True)
        style = f'style="width:100%;height:{self.height}px;border:0" title="Report" loading="lazy"'
        return f'<iframe srcdoc="{inside}" sandbox="allow-scripts" {style}></iframe>'


def show(evaluation: Evaluation | None = None, *, height: int = 720, **parts: Any) -> Shown:
    """The page of `render`, which takes the same arguments, for a notebook."""
    return Shown(render(evaluation, **parts), positive_int("height", height, least=100))


def needed() -> None:
    """Refuse where the extra is not installed; before the work is done, not after it."""
    if find_spec("matplotlib") is None or find_spec("jinja2") is None:
        raise InputError("a report needs matplotlib and jinja2: pip install 'cael[report]'.")


def _template() -> Any:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )  # fmt: skip
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
