"""Summary, claims and figures, on rows whose errors are known."""

import dataclasses
import gzip
import re

import numpy as np
import pytest

import cael
from cael.experiments import claim_rules, claims, compact, figures, latex, registry, trial
from cael.experiments.claim_rules import RULES, wilson
from cael.experiments.claims import FAILS, HOLDS, NOT_RUN, OPEN, READINGS, Claim, judge, load_claims, untested
from cael.experiments.spec import NAMES, load, parse
from cael.experiments.summary import COLUMNS, lines_of, statistic_of, table_of, to_csv, to_text

TRUTH = 2.0


def rows_of(spec, errors):
    """Rows in which an estimator errs by errors(name, at) (runs or more,) around the truth; half-width 1."""
    rows = []
    for cell in spec.cells:
        for name in spec.estimators:
            for seed, error in enumerate(errors(name, cell.at)[: spec.runs_of(name)]):
                value = TRUTH + float(error)
                cost = {"seconds": 0.5, "megabytes": 3.0, "together": 1}
                rows.append(
                    {"world": cell.world, "n": cell.n, "estimator": name, "seed": seed, "truth": TRUTH, "value": value,
                     "low": value - 1, "high": value + 1, "mean_weight": 1.0, "cost": cost}
                )  # fmt: skip
    return rows


def spec_of(runs=40, values=(10, 20), names=("IPS", "SNIPS", "DM", "LoggedMean"), **more):
    told = {
        "title": "t", "runs": runs, "estimators": list(names), "axis": "n_actions", "values": list(values),
        "world": {"kind": "paper", "n": 100}, "panels": {"full": "all"}, **more,
    }  # fmt: skip
    return parse(told, "mine")


def table_with(scale, **settings):
    """IPS has errors of standard deviation scale(name, at) and mean 0 by construction; the seeds of all are paired."""
    spec = spec_of(**settings)
    base = np.random.default_rng(0).standard_normal(spec.runs)
    base = (base - base.mean()) / base.std(ddof=1)
    return table_of(spec, rows_of(spec, lambda name, at: scale(name, at)[0] + scale(name, at)[1] * base))


def verdict(table, test, *, generally=False, **settings):
    return judge(Claim("c", ("mine",), "here", "s", test, settings, generally), {"mine": table}).verdict


PLAIN = table_with(
    lambda name, at: {"IPS": (0, 3.0), "SNIPS": (0.1, 1.0), "DM": (2.0, 0.1), "LoggedMean": (1, 1)}[name]
)


def test_bias_variance_and_mse_are_what_they_say():
    line = next(line for line in lines_of(PLAIN) if line.estimator == "DM")
    assert line.bias == pytest.approx(2.0) and line.variance == pytest.approx(0.01)
    assert line.mse == pytest.approx(4 + 0.01 * 39 / 40)
    assert line.bias_error == pytest.approx(0.1 / np.sqrt(40))
    assert line.coverage == 0 and line.runs == 40 and line.failed == 0 and line.seconds == 0.5
    good = next(line for line in lines_of(PLAIN) if line.estimator == "SNIPS")
    assert 0.5 < good.coverage < 0.9 and good.coverage_error == pytest.approx(
        np.sqrt(good.coverage * (1 - good.coverage) / 40)
    )


def test_monte_carlo_errors_are_standard_deviations_over_repetitions():
    """2000 experiments of 50 runs: the reported errors match the spread of what they are errors of, within 10%."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(2000):
        error = 0.3 + rng.standard_normal(50)
        spec = spec_of(runs=50, values=(10,), names=("IPS",))
        found.append(lines_of(table_of(spec, rows_of(spec, lambda *_, e=error: e)))[0])
    for name in ("bias", "variance", "mse"):
        spread = np.std([getattr(line, name) for line in found])
        reported = np.mean([getattr(line, f"{name}_error") for line in found])
        assert reported == pytest.approx(spread, rel=0.1)


def test_statistics_leave_out_runs_that_failed():
    errors = np.array([1.0, np.nan, 3.0])
    assert statistic_of(errors, "bias") == 2 and statistic_of(errors, "mse") == 5
    assert statistic_of(errors, "variance") == 2
    with pytest.raises(cael.InputError, match="statistic must be one of"):
        statistic_of(errors, "median")


def test_a_missing_row_is_an_error():
    spec = spec_of(runs=3)
    with pytest.raises(cael.InputError, match="no row for LoggedMean at 20, seed 2"):
        table_of(spec, rows_of(spec, lambda *_: np.zeros(3))[:-1])


def test_an_order_holds_fails_or_stays_open():
    assert verdict(PLAIN, "order", statistic="variance", smaller=["SNIPS"], larger=["IPS"]) == HOLDS
    assert verdict(PLAIN, "order", statistic="variance", smaller=["IPS"], larger=["SNIPS"]) == FAILS
    assert verdict(PLAIN, "order", statistic="variance", smaller=["SNIPS"], larger=["IPS", "DM"]) == FAILS
    rng = np.random.default_rng(5)
    noisy = table_of(spec_of(), rows_of(spec_of(), lambda *_: rng.standard_normal(40)))
    assert verdict(noisy, "order", statistic="mse", smaller=["SNIPS"], larger=["IPS"]) == OPEN
    assert verdict(PLAIN, "chain", statistic="variance", order=["DM", "SNIPS", "IPS"]) == HOLDS
    assert verdict(PLAIN, "chain", statistic="variance", order=["DM", "IPS", "SNIPS"]) == FAILS


def test_generally_goes_by_the_majority():
    order = ["DM", "SNIPS", "IPS", "LoggedMean"]  # right, right, wrong
    assert verdict(PLAIN, "chain", statistic="variance", order=order) == FAILS
    assert verdict(PLAIN, "chain", statistic="variance", order=order, generally=True) == HOLDS
    assert verdict(PLAIN, "chain", statistic="variance", order=order[::-1], generally=True) == FAILS


def test_trends_and_rates():
    growing = table_with(lambda name, at: (0, 1.0 if name == "DM" else at / 10), runs=200)  # x 4, flat for DM
    assert verdict(growing, "trend", statistic="variance", estimators=["IPS"]) == HOLDS
    assert verdict(growing, "falls", statistic="variance", estimators=["IPS"]) == FAILS
    assert verdict(growing, "trend", statistic="variance", estimators=["IPS"], start=20, end=10) == FAILS
    assert verdict(growing, "trend", statistic="variance", estimators=["IPS"], start=10, end=99) == NOT_RUN
    assert verdict(growing, "trend", statistic="variance", estimators=["IPS"], factor=0.01) == FAILS
    assert verdict(growing, "rate", statistic="variance", estimators=["IPS"], expected=4.0) == HOLDS
    assert verdict(growing, "rate", statistic="variance", estimators=["IPS"], expected=30.0) == FAILS
    assert verdict(growing, "rate", statistic="variance", estimators=["DM"], expected=1.0) == HOLDS
    assert verdict(growing, "similar", statistic="variance", pair=["SNIPS", "IPS"]) == HOLDS
    assert verdict(growing, "similar", statistic="variance", pair=["DM", "IPS"]) == FAILS


def test_what_dominates_an_error_and_what_a_bias_costs():
    assert verdict(PLAIN, "dominated", estimator="DM", by="bias") == HOLDS
    assert verdict(PLAIN, "dominated", estimator="DM", by="variance") == FAILS
    assert verdict(PLAIN, "dominated", estimator="IPS", by="variance") == HOLDS
    assert (
        verdict(PLAIN, "small_price", of="SNIPS", against="DM") == HOLDS
    )  # variance 1 for 0.01, squared bias 0.01 for 4
    assert verdict(PLAIN, "small_price", of="IPS", against="DM") == FAILS


def test_shares_of_runs():
    """SNIPS errs a ninth of what IPS errs in every run (variance), DM always more."""
    scale = {"IPS": (0, 3.0), "SNIPS": (0, 0.5)}
    table = table_with(lambda name, at: scale.get(name, (100.0, 0.1)), values=(10,), runs=100)
    assert verdict(table, "above", estimator="SNIPS", below=1.0, share=0.75) == HOLDS
    assert verdict(table, "above", estimator="DM", below=1.0, share=0.75) == FAILS
    assert verdict(table, "never", estimator="DM", below=0.1, unlike="SNIPS") == HOLDS
    assert verdict(table, "never", estimator="SNIPS", below=0.1, unlike="SNIPS") == FAILS
    assert verdict(table, "about", estimator="SNIPS", below=0.1, share=1.0) == HOLDS
    assert verdict(table, "about", estimator="SNIPS", below=0.1, share=0.4) == FAILS
    assert verdict(table, "most_runs", estimator="SNIPS", others=["IPS", "DM"]) == HOLDS
    assert verdict(table, "most_runs", estimator="IPS", others=["SNIPS", "DM"]) == FAILS


def test_never_does_not_hold_where_nobody_gets_there():
    """DM and LoggedMean are both far away in every run: that says nothing about the difference of the two."""
    table = table_with(lambda name, at: (0, 3.0) if name == "IPS" else (100.0, 0.1), values=(10,), runs=100)
    assert verdict(table, "never", estimator="DM", below=0.1, unlike="LoggedMean") == FAILS


def test_a_stated_share_is_as_uncertain_as_its_thirty_runs():
    """12 of 30 is stated. The same share of 100 runs supports it; of 30 runs it cannot; 4 of 30 leaves it open."""
    for runs, near, expected in ((100, 40, HOLDS), (30, 12, HOLDS), (30, 9, OPEN), (100, 5, FAILS)):
        spec = spec_of(runs=runs, values=(10,), names=("IPS", "SNIPS"))
        errors = {"IPS": np.ones(runs), "SNIPS": np.where(np.arange(runs) < near, 0.01, 5.0)}
        table = table_of(spec, rows_of(spec, lambda name, _, e=errors: e[name]))
        assert verdict(table, "about", estimator="SNIPS", below=0.1, share=0.4) == expected, (runs, near)


def test_a_bias_that_changes_its_sign_does_not_fall():
    """From +1 through 0 to -0.5: smaller at the end than at the start, but larger than in between."""
    biases = {10: 1.0, 20: 0.01, 30: -0.5}
    table = table_with(lambda name, at: (biases[at], 0.1), values=(10, 20, 30), runs=100)
    assert verdict(table, "steps", statistic="bias", estimators=["DM"], up=False) == FAILS
    assert verdict(table, "falls", statistic="bias", estimators=["DM"]) == HOLDS
    straight = table_with(lambda name, at: (10 / at, 0.1), values=(10, 20, 30), runs=100)
    assert verdict(straight, "steps", statistic="bias", estimators=["DM"], up=False) == HOLDS
    assert verdict(straight, "steps", statistic="bias", estimators=["DM"], up=True) == FAILS


def test_the_bias_of_ips_is_zero_by_theory_and_not_its_mean_over_the_runs():
    """IPS errs by 3 +- 30 on these runs: DM with 0.5 +- 0.1 has the larger bias all the same."""
    table = table_with(lambda name, at: {"IPS": (3, 30.0), "DM": (0.5, 0.1)}.get(name, (0.0, 1.0)), values=(10,))
    assert verdict(table, "order", statistic="bias", smaller=["IPS"], larger=["DM"]) == HOLDS
    assert verdict(table, "order", statistic="bias", smaller=["DM"], larger=["IPS"]) == FAILS
    assert verdict(table, "order", statistic="bias", smaller=["SNIPS"], larger=["IPS"]) == OPEN


def test_a_term_matters_less_in_a_larger_log():
    """Without the term the MSE is 4 times as large in the first cell, 1.1 times in the last."""
    scale = {("IPS", 10): 2.0, ("IPS", 20): 1.05}
    table = table_with(lambda name, at: (0, scale.get((name, at), 1.0)), runs=100)
    assert verdict(table, "fades", statistic="mse", of="SNIPS", against="IPS") == HOLDS
    assert verdict(table, "fades", statistic="mse", of="IPS", against="SNIPS") == FAILS


def test_one_doubtful_check_of_many_does_not_refute_a_claim():
    """A check with a doubt of 98% refutes when it is alone, and not among twenty."""
    check = RULES["order"](PLAIN, "variance", ["SNIPS"], ["IPS"], at="first")
    assert next(check).verdict() == 1
    doubtful = claim_rules.Check("t", 0.98, 0.0)
    assert doubtful.verdict() == -1 and doubtful.verdict(20) == 0 and claim_rules.Check("t", 1.0, 0).verdict(20) == -1


def test_estimators_with_another_number_of_runs_are_compared_on_those_they_share():
    spec = dataclasses.replace(spec_of(runs=20, values=(10,)), often={"SNIPS": 40, "IPS": 40})
    rng = np.random.default_rng(3)
    table = table_of(spec, rows_of(spec, lambda name, _: rng.standard_normal(40) * (0.1 if name == "DM" else 3.0)))
    assert {name: len(values) for name, values in table.values[10].items()} == {
        "IPS": 40, "SNIPS": 40, "DM": 20, "LoggedMean": 20,
    }  # fmt: skip
    assert verdict(table, "order", statistic="mse", smaller=["DM"], larger=["SNIPS"]) == HOLDS
    claim = Claim("c", ("mine",), "", "", "order", {"statistic": "mse", "smaller": ["DM"], "larger": ["IPS"]})
    assert judge(claim, {"mine": table}).runs == 20


def test_an_interval_of_a_bias_contains_its_own_bar():
    table = table_with(lambda name, at: (0.01, 1.0), values=(10,))
    low, high = table.band(10, "DM", "bias")
    assert low == 0 <= table.point(10, "DM", "bias") <= high
    low, high = PLAIN.band(10, "DM", "bias")
    assert 0 < low <= PLAIN.point(10, "DM", "bias") <= high


def test_a_wilson_interval_agrees_with_scipy():
    from scipy.stats import binomtest

    for count in (0, 7, 30):
        expected = binomtest(count, 30).proportion_ci(method="wilson")
        assert wilson(count, 30) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_few_runs_tell_nothing():
    table = table_with(lambda name, at: (0, 3.0 if name == "IPS" else 0.1), runs=9)
    assert verdict(table, "order", statistic="mse", smaller=["DM"], larger=["IPS"]) == OPEN


EXTENDED = {name: load(name, runs=40, extended=True) for name in {s for claim in load_claims() for s in claim.specs}}


def drawn(errors, size):
    """Tables of all experiments that claims are about, with rows whose errors, and losses around a size, are drawn."""
    tables, noise = {}, np.random.default_rng(1)
    for name, spec in EXTENDED.items():
        at = {(trial.canonical(cell.world), cell.n): cell.at for cell in spec.cells}
        rows = rows_of(spec, errors)
        for row in rows:
            about = size(row["estimator"], at[trial.canonical(row["world"]), row["n"]])
            row.update({column: about * noise.uniform(0.9, 1.1) for column in COLUMNS})
        tables[name] = table_of(spec, rows)
    return tables


def test_every_claim_can_be_told_under_every_reading():
    """On rows with large differences, some sign of each claim is decided: none is open whatever the rows say."""
    found = load_claims()
    assert len({claim.id for claim in found}) == len(found) == 72 and set(EXTENDED) <= set(NAMES)
    rng = np.random.default_rng(0)
    scale, told = {}, {}
    for turn in range(4):

        def errors(name, at, turn=turn):
            shift, size = scale.setdefault((turn, name, at), (rng.normal(scale=3), 10 ** rng.uniform(-2, 1)))
            return shift + size * rng.standard_normal(40)

        def size(name, at, turn=turn):
            return scale[turn, name, at][1]

        tables = drawn(errors, size)
        for reading in READINGS:
            for claim in found:
                verdict = judge(claim, tables, reading)
                told.setdefault(claim.id, set()).add(verdict.verdict)
                assert verdict.supported + verdict.refuted + verdict.open > 0 and verdict.runs == 40
                assert verdict.to_dict()["sentence"] == claim.sentence and verdict.numbers
    assert {claim for claim, verdicts in told.items() if verdicts == {OPEN}} == set()


def test_no_claim_goes_by_cells_in_which_all_are_equal_by_construction():
    for claim in load_claims():
        at = claim.settings.get("at", "all")
        cells = at.get("epsilon", "") if isinstance(at, dict) else at
        if "epsilon" in claim.specs and claim.test in ("order", "chain"):
            assert 1.0 not in cells and cells != "all", claim.id


def test_claims_say_their_rule_and_what_is_not_tested_has_a_reason():
    rules = [claim.rule for claim in load_claims()]
    assert not any("{" in rule for rule in rules)
    assert all(entry.keys() == {"where", "sentence", "why"} and all(entry.values()) for entry in untested())
    assert max(len(claim.sentence) for claim in load_claims()) < 120
    with pytest.raises(cael.InputError, match="unknown rule"):
        judge(Claim("c", ("mine",), "", "", "magic", {}), {"mine": PLAIN})


def test_a_claim_is_about_the_estimators_of_the_reading():
    claim = next(claim for claim in load_claims() if claim.id == "terms-reduce-bias")
    assert claim.under("offset").settings["smaller"] == ["CAELMIPS(offset)"]
    assert claim.under("offset").settings["larger"] == ["CAELMIPS(offset), no terms", "AELMIPS(offset)"]
    through = claim.under("through-posterior").settings["larger"]
    assert through == ["CAELMIPS(through-posterior), no terms", "AELMIPS"]
    assert not next(claim for claim in load_claims() if claim.id == "samples-dm-bias").depends_on_reading
    table = table_with(lambda name, at: (0, 1.0))
    ours = Claim("c", ("mine",), "", "", "order", {"statistic": "mse", "smaller": ["CAELMIPS"], "larger": ["IPS"]})
    assert judge(ours, {"mine": table}).verdict == NOT_RUN == judge(ours, {}, "offset").verdict


def test_what_lies_beyond_the_likely_cells_is_said_and_does_not_decide():
    """IPS is worse in the cell that decides, and better in the one beyond."""
    table = table_with(lambda name, at: (0, 3.0 if (name == "IPS") == (at == 10) else 1.0), runs=100)
    settings = {"statistic": "mse", "smaller": ["SNIPS"], "larger": ["IPS"], "at": [10]}
    verdict = judge(Claim("c", ("mine",), "", "", "order", settings, beyond=[20]), {"mine": table})
    assert verdict.verdict == HOLDS and "1 of 1 checks do not hold" in verdict.beyond
    assert judge(Claim("c", ("mine",), "", "", "order", settings), {"mine": table}).beyond == ""


def test_the_claims_of_the_paper_hold_where_they_are_built_in():
    """Errors made such that the first figure's sentences are all true, and then one of them false."""
    true = {"CAELMIPS": (-0.2, 0.5), "AELMIPS": (-1.2, 0.2), "IPS": (0.1, 2.2), "NetworkDM": (-1.5, 0.05)}
    for change, failing in (({}, set()), ({"NetworkDM": (-1.5, 0.5)}, {"dm-lowest-variance"})):
        scale = {**true, **change}
        spec = load("bias-variance-mse")
        base = np.random.default_rng(0).standard_normal(30)
        base = (base - base.mean()) / base.std()
        pairs = {name: scale.get(name, (0, 1)) for name in spec.estimators}
        rows = rows_of(spec, lambda name, _, p=pairs, b=base: p[name][0] + p[name][1] * b)
        tables = {spec.name: table_of(spec, rows)}
        told = {claim.id: judge(claim, tables).verdict for claim in load_claims() if claim.specs == (spec.name,)}
        assert {name for name, each in told.items() if each != HOLDS} == failing


@pytest.mark.long
@pytest.mark.parametrize("kind", ["bars", "lines", "dots", "ecdf"])
def test_figures_are_byte_identical_and_have_their_labels(kind, tmp_path):
    figure = {"kind": kind, "statistics": ["bias", "variance", "mse"], "label": "k"}
    table = table_with(lambda name, at: (0.1, {"IPS": 3.0}.get(name, 1.0)), figure=figure)
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        paths = figures.draw(table, folder)
        assert [path.name for path in paths] == ["figure-full.svg", "figure-full.png", "figure-full.pdf"]
    for path in one.iterdir():
        assert path.read_bytes() == (two / path.name).read_bytes()
    text = (one / "figure-full.svg").read_text()
    assert all(figures.shown(name) in text for name in table.spec.estimators if not (kind == "ecdf" and name == "IPS"))
    assert not re.search(r"https?://(?!www\.w3\.org|purl\.org|creativecommons\.org|matplotlib\.org)", text)


def test_colours_and_markers_tell_the_full_panel_apart():
    marks = list(zip(figures.COLOURS, figures.MARKERS, strict=False))
    assert len(figures.COLOURS) == len(set(figures.COLOURS)) >= len(registry.ESTIMATORS)
    assert len(set(marks)) == len(marks)
    for name in ("selection", "bias-variance-mse", "readings"):
        spec = load(name, runs=2)
        table = table_of(spec, rows_of(spec, lambda *_: np.zeros(2)))
        styles = {tuple(figures.style_of(table, each).values()) for each in spec.estimators}
        assert len(styles) == len(spec.estimators)
        if "IPS" in spec.estimators:
            assert figures.style_of(table, "IPS")["color"] == "#000000"


def test_compact_rows_give_the_same_table(tmp_path):
    path = tmp_path / "trials.csv.gz"
    compact.write(PLAIN, path)
    again = table_of(PLAIN.spec, compact.read(PLAIN.spec, path))
    for at, of in PLAIN.values.items():
        for name in of:
            np.testing.assert_allclose(again.values[at][name], PLAIN.values[at][name], rtol=1e-8)
    assert again.truths == PLAIN.truths
    first = path.read_bytes()
    compact.write(PLAIN, path)
    assert path.read_bytes() == first and gzip.decompress(first).startswith(b"at,estimator,seed")


def test_compact_rows_keep_failures(tmp_path):
    spec = spec_of(runs=2, values=(10,), names=("IPS",))
    rows = rows_of(spec, lambda *_: np.zeros(2))
    failed = {name: rows[1][name] for name in ("world", "n", "estimator", "seed", "truth", "cost")}
    table = table_of(spec, [rows[0], {**failed, "error": "InputError: no, really"}])
    compact.write(table, tmp_path / "t.csv.gz")
    again = compact.read(spec, tmp_path / "t.csv.gz")
    assert again[1]["error"] == "InputError: no, really" and "value" not in again[1]


def test_tables_for_latex():
    text = latex.accuracy(PLAIN, lines_of(PLAIN))
    rows = text.splitlines()
    assert rows[0] == r"\begin{tabular}{llrrr}" and rows[2].startswith(r"n\_actions & estimator & bias")
    assert len(rows) == 8 + 6 and all(row.endswith(r"\\") for row in rows[4:-2]) and "DM & $2 \\pm 0.02$" in text
    verdicts = [(judge(claim, {}), judge(claim, {}, "offset")) for claim in load_claims()[:3]]
    assert latex.verdicts(verdicts, ["a", "b"]).count("not run yet") == 6


def test_tables_as_text_and_csv():
    lines = lines_of(PLAIN)
    text, table = to_text(lines, "n_actions"), to_csv(lines)
    assert text.splitlines()[0].split()[:2] == ["n_actions", "estimator"] and len(text.splitlines()) == 9
    assert table.splitlines()[0].startswith("at,estimator,runs,failed,truth,bias,bias_error")
    assert claims.HOLDS == "holds"
