"""The tables of the documentation on how often a verdict is wrong."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from cael.experiments.broken import CONDITIONS, worlds
from cael.experiments.ledger import read_json
from cael.experiments.markdown import table

LEVELS = ("ok", "caution", "refuse")
HEADS = (*LEVELS, "truth outside", "false ok", "outside, given ok")


def share(count: int, trials: int) -> str:
    """A share with its Monte Carlo standard error, in percent; a 95% limit where it was seen never or always."""
    if trials == 0:
        return ""
    if count == 0:
        return f"0\u00a0(<\u00a0{300 / trials:.1f})" if trials > 3 else "0"
    if count == trials:
        return f"100\u00a0(>\u00a0{100 - 300 / trials:.1f})" if trials > 3 else "100"
    p = count / trials
    return f"{100 * p:.1f}\u00a0±\u00a0{100 * math.sqrt(p * (1 - p) / trials):.1f}"


def added(cells: Iterable[dict[str, Any]]) -> Counter[str]:
    """The sums of the counts of several cells; missed: whatever the verdict, refused: by an error, too."""
    total: Counter[str] = Counter()
    for cell in cells:
        total.update({name: count for name, count in cell.items() if name not in ("world", "condition", "rows")})
    total["missed"] = sum(total[f"{level}_missed"] for level in LEVELS)
    total["refused"] = total["refuse"] + total["errors"]
    return total


def shares(total: Counter[str]) -> list[str]:
    """The share of each verdict, of intervals without the truth, and of a false "ok" among all and among "ok"."""
    n = total["trials"]
    parts = [share(total[name], n) for name in ("ok", "caution", "refused", "missed")]
    return [*parts, f"**{share(total['ok_missed'], n)}**", share(total["ok_missed"], total["ok"])]


def markdown(cells: Sequence[dict[str, Any]]) -> str:
    """A line for each condition, over all worlds."""
    totals = {condition: added(cell for cell in cells if cell["condition"] == condition) for condition in CONDITIONS}
    return table(["log", *HEADS], [[name, *shares(total)] for name, total in totals.items() if total["trials"]])


def markdown_worlds(cells: Sequence[dict[str, Any]]) -> str:
    """A line for each world: its sound logs, and its broken ones."""
    heads = ["world", "rows", "sound: ok", "outside, given ok", "broken: ok", "truth outside", "false ok"]
    rows = []
    for world in dict.fromkeys(cell["world"] for cell in cells):
        here = [cell for cell in cells if cell["world"] == world]
        sound = added(cell for cell in here if cell["condition"] == "sound, logging policy known")
        broken = added(cell for cell in here if not cell["condition"].startswith("sound"))
        accepted, _, _, missed, false_ok, _ = shares(broken)
        good = [share(sound["ok"], sound["trials"]), share(sound["ok_missed"], sound["ok"])]
        rows.append([world, f"{here[0]['rows']:,}", *good, accepted, missed, false_ok])
    return table(heads, rows)


def markdown_learned(plain: Sequence[dict[str, Any]], learned: Sequence[dict[str, Any]]) -> str:
    """For each condition a line by SNDR and one by Auto, over the worlds that both were run on."""
    if not learned:
        return "Not measured with Auto yet; `make verdicts-learned` does it.\n"
    used = list(dict.fromkeys(cell["world"] for cell in learned))
    left_out = [name for name in worlds() if name not in used]
    text = f"Worlds: {', '.join(used)}."
    if left_out:
        text += f" Left out, since training takes too long there: {', '.join(left_out)}."
    rows = []
    for condition, (name, cells) in product(CONDITIONS, (("SNDR", plain), ("Auto", learned))):
        total = added(cell for cell in cells if cell["condition"] == condition and cell["world"] in used)
        if total["trials"]:
            rows.append([condition, name, str(total["trials"]), *shares(total)])
    return f"{text}\n\n{table(['log', 'headline', 'logs', *HEADS], rows, words=2)}"


def page(folder: Path) -> None:
    """Render the results in `folder` as the tables that the documentation includes."""
    plain, learned = read_json(folder / "verdicts.json", []), read_json(folder / "verdicts_learned.json", [])
    (folder / "verdicts.inc").write_text(markdown(plain))
    (folder / "verdicts_worlds.inc").write_text(markdown_worlds(plain))
    (folder / "verdicts_learned.inc").write_text(markdown_learned(plain, learned))
