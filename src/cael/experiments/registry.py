"""The estimators that a spec can name. To add one: one line in `ESTIMATORS`; it joins every full panel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeAlias

import numpy as np

import cael
from cael.embedding.settings import TRAININGS, objective
from cael.errors import InputError
from cael.estimators.estimator import Estimator

Factory: TypeAlias = Callable[..., Estimator]
QUICK: dict[str, Any] = {"iterations": 30, "epochs": None}
"""A short training for --quick: shows that the machinery works, and nothing about an estimator."""


def _training(stated: cael.Training, changes: dict[str, Any] | None, device: str, quick: bool) -> cael.Training:
    return replace(stated, **{**(changes or {}), "device": device, **(QUICK if quick else {})})


def _caelmips(
    device: str, quick: bool, preset: str = "constant-posterior", network: Any = None, training: Any = None,
    **changes: Any,
) -> Estimator:  # fmt: skip
    """network, training: their settings that differ; changes: of the preset's objective."""
    settings = cael.NetworkSettings(**(network or {}))
    trained = _training(TRAININGS.get(preset, cael.Training()), training, device, quick)
    return cael.CAELMIPS(objective=objective(preset, **changes), network=settings, training=trained)


def _network_dm(device: str, quick: bool, network: Any = None, training: Any = None) -> Estimator:
    settings = cael.NetworkSettings(**(network or {}))
    return cael.NetworkDM(cael.NetworkOutcome(settings, _training(cael.Training(), training, device, quick)))


def _cael(device: str, quick: bool, **settings: Any) -> cael.CAEL:
    short: dict[str, Any] = {"steps": 10, "restarts": 1} if quick else {}
    return cael.CAEL(growth=cael.Growth(device=device, **short), **settings)


def _slope(device: str, quick: bool, candidates: tuple[str, ...] = ()) -> Estimator:
    return cael.SLOPE([make(name, device=device, quick=quick) for name in candidates])


def _plain(kind: Callable[..., Estimator]) -> Factory:
    return lambda device, quick, **settings: kind(**settings)


ESTIMATORS: dict[str, Factory] = {
    "CAELMIPS": _caelmips,
    "AELMIPS": lambda device, quick, **settings: cael.AELMIPS(device=device, **settings),
    "IPS": _plain(cael.IPS),
    "NetworkDM": _network_dm,
    **{kind.__name__: _plain(kind) for kind in (cael.LoggedMean, cael.SNIPS, cael.DM, cael.DR, cael.SNDR, cael.MIPS)},
    "CAEL": _cael,
    "Auto": lambda device, quick, **settings: cael.Auto(cael=_cael(device, quick), **settings),
}
"""Name -> function(device, quick, **settings of the spec). Their order is the order of tables and legends."""

PAPER = ("CAELMIPS", "AELMIPS", "IPS", "NetworkDM")
"""The four estimators of the paper's figures; its DM is the network of CAEL-MIPS."""

_OTHERS = (
    cael.SwitchDR, cael.DRos, cael.SubGaussianIPS, cael.SubGaussianDR, cael.BaselineIPS, cael.OffCEM, cael.MDR,
    cael.MetaOPE, cael.OPERA, cael.OCV,
)  # fmt: skip
MORE: dict[str, Factory] = {
    "SLOPE": _slope,
    **{kind.__name__: _plain(kind) for kind in _OTHERS},
    "BoostedDM": lambda device, quick: cael.DM(cael.Boosting()),
    "OffCEMFeatures": lambda device, quick: cael.OffCEM("features"),
}
"""Estimators that a spec can name and that are not in the full panel."""


def make(kind: str, *, device: str = "cpu", quick: bool = False, **settings: Any) -> Estimator:
    """The estimator of that name."""
    known = {**ESTIMATORS, **MORE}
    if kind not in known:
        raise InputError(f"unknown estimator {kind!r}; a spec can name: {', '.join(known)}.")
    return known[kind](device, quick, **settings)


def described(thing: Any) -> Any:
    """Settings as plain data, for the key of a trial. What does not change the numbers, the device, is left out."""
    if is_dataclass(thing) and not isinstance(thing, type):
        names = [field.name for field in fields(thing) if field.name not in ("device", "seed")]
        names += ["schedule"] if isinstance(thing, cael.AELMIPS) else []  # what its preset stands for
        return {"kind": type(thing).__name__, **{name: described(getattr(thing, name)) for name in names}}
    if isinstance(thing, np.ndarray):
        return thing.tolist()
    if isinstance(thing, tuple | list):
        return [described(part) for part in thing]
    if isinstance(thing, dict):
        return {str(name): described(value) for name, value in thing.items()}
    return thing if isinstance(thing, str | int | float | bool | None) else repr(thing)


def seeded(estimator: Estimator, seed: int) -> Estimator:
    """The estimator with its seed set, where it has one."""
    takes_one = any(field.name == "seed" for field in fields(estimator))  # type: ignore[arg-type]
    return replace(estimator, seed=seed) if takes_one else estimator  # type: ignore[type-var]
