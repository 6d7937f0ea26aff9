"""From logs to networks: what the network is told about actions, and embeddings of logged rows."""

from __future__ import annotations

import numpy as np
import torch

from cael.common.types import Floats, Ints
from cael.embedding.batches import TrialData
from cael.embedding.network import ActionNetwork, ContextActionNetwork, Network, Parameters
from cael.embedding.rows import rows_at_once
from cael.embedding.settings import NetworkSettings
from cael.embedding.tensors import Torch
from cael.errors import InputError
from cael.log.logged import LoggedData

BLOCK = 4096


def action_inputs(log: LoggedData, actions: str, device: torch.device) -> tuple[torch.Tensor | None, bool]:
    """(phi, onehot) of a setting; "auto" is features where the log has them, else one-hot."""
    known = log.action_features is not None
    if actions in ("features", "both") and not known:
        raise InputError(f"actions={actions!r} needs action_features in the log, and it has none.")
    features = actions in ("features", "both") or (actions == "auto" and known)
    phi = torch.as_tensor(np.array(log.action_features), dtype=torch.float64, device=device) if features else None
    return phi, actions in ("onehot", "both") or (actions == "auto" and not known)


def context_action_network(log: LoggedData, settings: NetworkSettings, device: torch.device) -> ContextActionNetwork:
    if log.contexts.shape[1] == 0 and not settings.intercept:
        raise InputError(
            "the log has no contexts, so r_hat = e'x is 0: pass contexts, or NetworkSettings(intercept=True)."
        )
    phi, onehot = action_inputs(log, settings.actions, device)
    return ContextActionNetwork(settings, log.contexts.shape[1], log.n_actions, phi, onehot)


def action_network(log: LoggedData, actions: str, device: torch.device) -> ActionNetwork:
    if log.contexts.shape[1] == 0:
        raise InputError("the log has no contexts, so r_hat = e'x is 0 for every embedding.")
    phi, onehot = action_inputs(log, actions, device)
    return ActionNetwork(log.contexts.shape[1], log.n_actions, phi, onehot)


@torch.no_grad()
def embeddings(network: Network, parameters: Parameters, data: TrialData) -> Floats:
    """f(x_i, a_i) of every row in evaluation mode, (T, n, e) float64."""
    parts = [
        network.embed(parameters, data.x[:, at : at + BLOCK], data.a[:, at : at + BLOCK], None)
        for at in range(0, data.x.shape[1], BLOCK)
    ]
    return torch.cat(parts, dim=1).cpu().numpy()


@torch.no_grad()
def rewards_of_all(
    network: ContextActionNetwork, parameters: Parameters, contexts: Floats, device: torch.device
) -> Floats:
    """r_hat(x, a) for all actions, (b, k), of a network with one trial."""
    x = torch.as_tensor(np.array(contexts), dtype=torch.float64, device=device)[None]
    size = rows_at_once(Torch(device), network.cells)
    parts = [network.reward_all(parameters, x[:, at : at + size]) for at in range(0, x.shape[1], size)]
    return torch.cat(parts, dim=1)[0].cpu().numpy()


@torch.no_grad()
def rewards_at(
    network: ContextActionNetwork, parameters: Parameters, contexts: Floats, actions: Ints, device: torch.device
) -> Floats:
    """r_hat(x, a) of some actions (b, m) of each row, (b, m), of a network with one trial."""
    x = torch.as_tensor(np.repeat(contexts, actions.shape[1], axis=0), dtype=torch.float64, device=device)[None]
    a = torch.as_tensor(np.array(actions).reshape(1, -1), dtype=torch.int64, device=device)
    e = network.embed(parameters, x, a, None)
    return network.reward(parameters, e, x)[0].cpu().numpy().reshape(actions.shape)
