"""The tables of the documentation on how often a verdict is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cael.experiments.broken import CONDITIONS, worlds

LEVELS = ("ok", "caution", "refuse")


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


def added(cells: Iterable[dict[str, Any]]) -> dict[str, int]:
    """The sums of the counts of several cells."""
    names = ("trials", *LEVELS, "errors", *(f"{level}_missed" for level in LEVELS))
    listed = list(cells)
    return {name: sum(each[name] for each in listed) for name in names}


def line(label: str, total: dict[str, int]) -> str:
    n = total["trials"]
    missed = sum(total[f"{level}_missed"] for level in LEVELS)
    # An error is a refusal that cannot be overlooked.
    refused = total["refuse"] + total["errors"]
    cells = [label, *(share(each, n) for each in (total["ok"], total["caution"], refused, missed))]
    cells += [f"**{share(total['ok_missed'], n)}**", share(total["ok_missed"], total["ok"])]
    return "| " + " | ".join(cells) + " |"


def markdown(cells: Sequence[dict[str, Any]]) -> str:
    """A line for each condition, over all worlds."""
    heads = ["log", *LEVELS, "truth outside", "false ok", "outside, given ok"]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * 6]
    for condition in CONDITIONS:
        same = [each for each in cells if each["condition"] == condition]
        if same:
            lines.append(line(condition, added(same)))
    return "\n".join(lines) + "\n"


def markdown_worlds(cells: Sequence[dict[str, Any]]) -> str:
    """A line for each world: its sound logs, and its broken ones."""
    heads = ["world", "rows", "sound: ok", "outside, given ok", "broken: ok", "truth outside", "false ok"]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * 6]
    for world in dict.fromkeys(each["world"] for each in cells):
        own = [each for each in cells if each["world"] == world]
        sound = added(each for each in own if each["condition"] == "sound, logging policy known")
        broken = added(each for each in own if not each["condition"].startswith("sound"))
        missed = sum(broken[f"{level}_missed"] for level in LEVELS)
        row = [
            world, f"{own[0]['rows']:,}", share(sound["ok"], sound["trials"]), share(sound["ok_missed"], sound["ok"]),
            share(broken["ok"], broken["trials"]), share(missed, broken["trials"]),
            f"**{share(broken['ok_missed'], broken['trials'])}**",
        ]  # fmt: skip
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def markdown_learned(plain: Sequence[dict[str, Any]], learned: Sequence[dict[str, Any]]) -> str:
    """For each condition a line by SNDR and one by Auto, over the worlds that both were run on."""
    if not learned:
        return "Not measured with Auto yet; `make verdicts-learned` does it.\n"
    used = list(dict.fromkeys(each["world"] for each in learned))
    left_out = [name for name in worlds() if name not in used]
    told = f"Worlds: {', '.join(used)}."
    if left_out:
        told += f" Left out, since training takes too long there: {', '.join(left_out)}."
    heads = ["log", "headline", "logs", *LEVELS, "truth outside", "false ok", "outside, given ok"]
    lines = [told, "", "| " + " | ".join(heads) + " |", "|---|---|" + "---:|" * 7]
    for condition in CONDITIONS:
        for name, cells in (("SNDR", plain), ("Auto", learned)):
            total = added(each for each in cells if each["condition"] == condition and each["world"] in used)
            if total["trials"]:
                lines.append(line(f"{condition} | {name} | {total['trials']}", total))
    return "\n".join(lines) + "\n"


def page(folder: Path) -> None:
    """Render the results in `folder` as the tables that the documentation includes."""
    plain = json.loads((folder / "verdicts.json").read_text())
    learned = folder / "verdicts_learned.json"
    (folder / "verdicts.inc").write_text(markdown(plain))
    (folder / "verdicts_worlds.inc").write_text(markdown_worlds(plain))
    told = markdown_learned(plain, json.loads(learned.read_text()) if learned.exists() else [])
    (folder / "verdicts_learned.inc").write_text(told)
