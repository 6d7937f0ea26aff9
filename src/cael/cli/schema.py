"""The JSON documents of the command line, as JSON Schema. Keys may be added; none goes away without a new number."""

from __future__ import annotations

from typing import Any

from cael.cli.output import SCHEMA

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}
MAYBE: dict[str, Any] = {"type": ["number", "null"]}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
TRUTH: dict[str, Any] = {"type": "boolean"}
BETTER: dict[str, Any] = {"enum": ["more", "less"]}
DIRECTION: dict[str, Any] = {"enum": ["better", "worse", "no difference shown"]}


def record(**keys: Any) -> dict[str, Any]:
    """An object with these keys, all required; others may come later. A key that ends in _ is optional."""
    required = [name for name in keys if not name.endswith("_")]
    return {"type": "object", "properties": {k.removesuffix("_"): v for k, v in keys.items()}, "required": required}


def several(what: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": what}


def by_name(what: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": what}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


DEFINITIONS: dict[str, Any] = {
    "interval": record(low=NUMBER, high=NUMBER, level_=NUMBER, method_=TEXT),
    "check": record(name=TEXT, status={"enum": ["pass", "unknown", "warn", "fail"]}, value=MAYBE, sentence=TEXT),
    "verdict": record(
        level={"enum": ["ok", "caution", "refuse"]}, estimator=TEXT, reasons=several(TEXT),
        checks=several(ref("check")), thresholds_={"type": "object"},
    ),
    "diagnostics": record(
        n=COUNT, effective_sample_size=MAYBE, max_weight=MAYBE, mean_weight=MAYBE, mean_weight_z=MAYBE,
        tail_index=MAYBE, unsupported_mass=MAYBE, clipped_share=MAYBE, cross_fitted={"type": ["boolean", "null"]},
        logging_fit={"anyOf": [ref("logging_fit"), {"type": "null"}]}, warnings=several(TEXT),
    ),
    "logging_fit": record(family=TEXT, error=NUMBER, trained_on=COUNT, target_error=MAYBE),
    "estimate": record(
        estimator=TEXT, value=NUMBER, stderr=NUMBER, error=NUMBER, interval=ref("interval"),
        interval_without_bias={"anyOf": [ref("interval"), {"type": "null"}]}, n=COUNT, fingerprint=TEXT,
        assumes={"type": ["string", "null"]}, diagnostics=ref("diagnostics"),
    ),
    "answer": record(
        sentence=TEXT, metric=TEXT, policy=TEXT, baseline=TEXT, rows=COUNT, decisions=COUNT, unit=TEXT, scale=COUNT,
        first_day={"type": ["string", "null"]}, last_day={"type": ["string", "null"]},
        value=NUMBER, baseline_value=NUMBER, lift=NUMBER,
        interval=ref("interval"), relative_lift=MAYBE,
        relative_interval={"anyOf": [ref("interval"), {"type": "null"}]},
        chance_better={"type": "number", "minimum": 0, "maximum": 1}, chance_assumes=TEXT,
        total={"anyOf": [record(value=NUMBER, low=NUMBER, high=NUMBER), {"type": "null"}]},
        decision={"enum": ["ship", "test", "keep"]}, verdict={"enum": ["ok", "caution", "refuse"]},
        surer=several(TEXT), level=TEXT,
    ),
    "reading": record(
        source=TEXT, rows_read=COUNT, rows=COUNT, dropped=several(record(reason=TEXT, rows=COUNT)), n_actions=COUNT,
        context_dim=COUNT, columns={"type": "object"}, notes=several(TEXT), warnings=several(TEXT),
    ),
    "segments": record(
        rows=several(
            record(
                label=TEXT, rows=COUNT, effective_rows=MAYBE, value=NUMBER, baseline=NUMBER, lift=NUMBER, stderr=NUMBER,
                interval=ref("interval"), shrunk=NUMBER, shrunk_interval=ref("interval"), direction=DIRECTION,
            )
        ),
        estimator=TEXT, level=NUMBER, factor=NUMBER, differ=NUMBER, spread=NUMBER, kind=TEXT, sentence=TEXT,
        metric=TEXT, baseline=TEXT, assumes={"type": ["string", "null"]}, others_=several(ref("segments")),
    ),
    "calibration": record(
        best=TEXT, kinds=several(TEXT), repeats=COUNT, n=COUNT, level=NUMBER, redrawn=TRUTH, sentence=TEXT,
        rows=several(record(estimator=TEXT, rmse=MAYBE, bias=NUMBER, coverage=NUMBER, coverage_error=NUMBER)),
    ),
    "sensitivity": record(
        estimator=TEXT, factor=NUMBER, example=NUMBER, shift=NUMBER, value=ref("interval"), lift=ref("interval"),
        sentence=TEXT,
    ),
    "frequency": {"type": "object"},
    "decision": record(
        policy=TEXT, choice={"enum": ["ship", "test", "keep"]}, reasons=several(TEXT),
        rows={"type": ["integer", "null"]}, rule=TEXT, trusted=TRUTH,
    ),
    "scorecard": record(
        estimator=TEXT, baseline=TEXT, level=NUMBER, simultaneous_factor=NUMBER, decisions=several(ref("decision")),
        metrics=several(
            record(
                name=TEXT, column=TEXT, per={"type": ["string", "null"]}, direction={"enum": ["max", "min"]}, cap=MAYBE,
                guardrail=TRUTH, bound={"type": ["string", "null"]}, policy=TEXT, estimate=ref("estimate"),
                baseline=NUMBER, lift=NUMBER, lift_error=NUMBER, relative_lift=MAYBE, interval=ref("interval"),
                excess={"anyOf": [ref("interval"), {"type": "null"}]}, rows_above_cap=COUNT, verdict=ref("verdict"),
                status={"enum": ["better", "worse", "no difference shown", "within", "beyond", "open"]},
            )
        ),
    ),
}  # fmt: skip

DOCUMENTS: dict[str, dict[str, Any]] = {
    "evaluation": record(
        reading_=ref("reading"), version=TEXT, log=TEXT, fingerprint=TEXT, policy=TEXT, level=NUMBER, headline=TEXT,
        verdict=ref("verdict"), direction=DIRECTION, metric=TEXT, better=BETTER, decision=ref("decision"),
        baseline=record(name=TEXT, value=NUMBER), scorecard_=ref("scorecard"), overlap={"type": ["object", "null"]},
        sensitivity={"anyOf": [ref("sensitivity"), {"type": "null"}]}, answer=ref("answer"),
        lift=record(
            value=NUMBER, stderr=NUMBER, error=NUMBER, interval=ref("interval"), relative=MAYBE, adjusted_=TRUTH
        ),
        estimates=several(ref("estimate")), skipped=several(record(estimator=TEXT, reason=TEXT)),
        segments_=by_name(ref("segments")), windows_=ref("segments"), calibration_=ref("calibration"), truth_=NUMBER,
    ),
    "comparison": record(
        reading=ref("reading"), estimator=TEXT, baseline=ref("estimate"), level=NUMBER, simultaneous_factor=NUMBER,
        metric=TEXT, better=BETTER, baseline_name=TEXT, answer=ref("answer"), decisions=several(ref("decision")),
        scorecard_=ref("scorecard"), policies=several(
            record(
                name=TEXT, estimate=ref("estimate"), lift=NUMBER, lift_error=NUMBER, interval=ref("interval"),
                direction=DIRECTION, verdict=ref("verdict"),
            )
        ),
    ),
    "audit": record(
        reading=ref("reading"), status={"enum": ["pass", "warn", "fail"]}, log=TEXT, fingerprint=TEXT,
        checks=several(ref("check")), actions=several(ref("frequency")), deciles=several(ref("frequency")),
        periods=several({"type": "object"}),
    ),
    "learned": record(
        reading_=ref("reading"), decision={"enum": ["ship", "keep"]}, reasons=several(TEXT), sentence=TEXT, policy=TEXT,
        candidate=TEXT, lift=NUMBER, bound=NUMBER, level=NUMBER, changed=NUMBER, rows_learned=COUNT,
        rows_certified=COUNT, limits={"type": "object"}, guardrails=several({"type": "object"}), notes=several(TEXT),
        explanation=TEXT, path=several(
            record(
                candidate=TEXT, play=TEXT, lift=NUMBER, error=NUMBER, second=NUMBER, changed=NUMBER, share=NUMBER,
                promise=NUMBER, chosen=TRUTH,
            )
        ),
        certificate={"type": "object"}, plan={"type": ["object", "null"]},
    ),
    "watch": record(
        reading=ref("reading"), decision={"enum": ["ship", "keep"]}, sentence=TEXT, policy=TEXT, level=NUMBER,
        min_lift=NUMBER, rows=COUNT, units=COUNT, looks=several(record(n=COUNT, lift=NUMBER, bound=MAYBE)),
    ),
    "plan": record(
        reading=ref("reading"), policy=TEXT, baseline_name=TEXT, lift=NUMBER, baseline=NUMBER, level=NUMBER,
        power=NUMBER, n=COUNT, rows=COUNT, detectable=MAYBE, enough=MAYBE, rows_needed=MAYBE, more_rows=MAYBE,
        sentences=several(TEXT),
        options=several(record(exploration=NUMBER, rows=MAYBE, spread=MAYBE, cost=MAYBE)), checks=several(ref("check")),
    ),
}  # fmt: skip


def schema_of(kind: str) -> dict[str, Any]:
    """The JSON Schema of a document: "evaluation", "comparison", "audit", "plan", "learned" or "watch"."""
    document = DOCUMENTS[kind]
    name = f"cael.{kind}/{SCHEMA}"
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": name,
        **document,
        "properties": {"schema": {"const": name}, **document["properties"]},
        "required": ["schema", *document["required"]],
        "$defs": DEFINITIONS,
    }
