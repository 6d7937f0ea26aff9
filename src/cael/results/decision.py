"""Decision: ship, test or keep, by one rule for every way it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

from cael.results.notebook import paragraphs
from cael.results.sheet import Note

BOUNDS = {"within": "within its bound", "beyond": "beyond its bound", "open": "not settled"}
SHOWN = {
    "better": "is shown to be better", "worse": "is shown to be worse",
    "no difference shown": "shows no significant difference",
}  # fmt: skip
TONES = {"ship": "pass", "test": "unknown", "keep": "warn"}


@final
@dataclass(frozen=True)
class Finding:
    """What was found of a metric. name: of the metric. status: of a goal "better", "worse" or "no difference shown", of
    a guardrail "within", "beyond" or "open"."""

    name: str
    status: str


@final
@dataclass(frozen=True)
class Decision:
    """What to do about a policy: "ship" it, "test" further, or "keep" the baseline.

    reasons: sentences. rows: of this kind that would settle it, by the differences as they are estimated; None: none
    would, or it is settled. rule: how it was decided. trusted: whether no verdict that it rests on is "refuse".
    choice: "ship", "test" or "keep".
    """

    policy: str
    choice: str
    reasons: tuple[str, ...]
    rows: int | None
    rule: str
    trusted: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        return {**asdict(self), "reasons": list(self.reasons)}

    def _repr_html_(self) -> str:
        return paragraphs([self.note()])

    def note(self) -> Note:
        """The decision, in words."""
        name = f" ({self.policy})" if self.policy else ""
        return Note(" ".join([f"decision: {self.choice}{name}.", *self.reasons]), TONES[self.choice])


def choice_of(primary: str, guardrails: Sequence[str], *, refused: bool) -> str:
    """ "ship", "test" or "keep" from the status of the primary metric and those of the guardrails."""
    if refused:
        return "test"
    if primary == "worse" or "beyond" in guardrails:
        return "keep"
    return "ship" if primary == "better" and all(status == "within" for status in guardrails) else "test"


def rule_of(primary: str, guardrails: int, baseline: str) -> str:
    """The rule, in words."""
    held = "every guardrail is shown to be within its bound, " if guardrails else ""
    beyond = ", or a guardrail is shown to be beyond its bound" if guardrails else ""
    return (
        f"Rule: ship if {primary} is shown to be better than under {baseline}, {held}and no verdict is refuse. Keep "
        f"{baseline} if {primary} is shown to be worse{beyond}, and no verdict is refuse. Otherwise test."
    )


def rough(count: float) -> str:
    """A number of rows with two digits."""
    return f"{float(f'{count:.2g}'):,.0f}"


def enough(rows: int) -> str:
    """How many rows would settle what is open."""
    return f"About {rough(rows)} rows of this kind would settle it, if the difference is as estimated."


def decided(
    policy: str, primary: Finding, guardrails: Sequence[Finding], refused: Sequence[str], rows: int | None, rule: str
) -> Decision:
    """The decision about a policy. refused: metrics whose verdict is refuse. rows: that would settle what is open."""
    choice = choice_of(primary.status, [guardrail.status for guardrail in guardrails], refused=bool(refused))
    if refused:
        reason = f"The verdict on {' and '.join(refused)} is refuse: correct what it names before deciding."
        return Decision(policy, choice, (reason,), None, rule, trusted=False)
    shown = f"{primary.name} {SHOWN[primary.status]}"
    bounds = [f"{guardrail.name}: {BOUNDS[guardrail.status]}" for guardrail in guardrails]
    reasons = [f"{'; '.join([shown, *bounds])}."]
    if choice == "test":
        reasons.append("No number of rows of this kind would settle it." if rows is None else enough(rows))
    return Decision(policy, choice, tuple(reasons), rows if choice == "test" else None, rule)
