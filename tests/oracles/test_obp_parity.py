"""Point estimates equal those of obp 0.5.7 (tests/oracles/obp_parity.json, made with it); docs list what differs."""

import json
from pathlib import Path

import numpy as np
import pytest

import cael

CASES = json.loads((Path(__file__).parent / "obp_parity.json").read_text())["cases"]


def estimators(case):
    q = cael.FixedOutcome(np.array(case["q_hat"]))
    lambdas = cael.SLOPE([float(x) for x in case["slope_lambdas"]])
    dros_lambdas = cael.SLOPE([float(x) for x in case["dros_slope_lambdas"]])
    found = {
        "ips": cael.IPS(),
        "snips": cael.SNIPS(),
        "dm": cael.DM(q),
        "dr": cael.DR(q),
        "dr_clip_5": cael.DR(q, clip=5),
        "sndr": cael.SNDR(q),
        "ips_slope": cael.IPS(clip=lambdas),
        "switch_dr_slope": cael.SwitchDR(q, tau=lambdas),
        "dros_slope": cael.DRos(q, lambda_=dros_lambdas),
        "mips_logistic": cael.MIPS(case["action_embedding"]),
    }
    for x in (1, 5, 20):
        found |= {
            f"ips_clip_{x}": cael.IPS(clip=x),
            f"switch_dr_{x}": cael.SwitchDR(q, tau=x),
            f"dros_{x}": cael.DRos(q, lambda_=x),
        }
    for x in (0.01, 0.1):
        found |= {f"sg_ips_{x}": cael.SubGaussianIPS(x), f"sg_dr_{x}": cael.SubGaussianDR(q, x)}
    return found


def test_every_stored_number_is_compared():
    for case in CASES:
        assert set(case["estimates"]) == set(estimators(case))


@pytest.mark.parametrize("name", sorted(CASES[0]["estimates"]))
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"n={case['n']},k={case['k']}")
def test_equals_obp(case, name):
    log = cael.LoggedData(case["contexts"], case["actions"], case["rewards"], logging=case["logging"])
    ours = estimators(case)[name].estimate(log, case["target"])
    tolerance = 1e-2 if name == "mips_logistic" else 1e-6
    assert ours.value == pytest.approx(case["estimates"][name], abs=tolerance)
