"""From logs to networks: what the network is told about actions, and embeddings of logged rows."""

from __future__ import annotations

from collections.abc import Sequence

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


def action_inputs(logs: Sequence[LoggedData], actions: str, device: torch.device) -> tuple[torch.Tensor | None, bool]:
    """(phi, onehot) of a setting; "auto" is features where the logs have them, else one-hot.

    phi: (1, k, f) where all logs have the same action features, else (T, k, f).
    """
    tables = [log.action_features for log in logs]
    known = tables[0] is not None
    if actions in ("features", "both") and not known:
        raise InputError(f"actions={actions!r} needs action_features in the log, and it has none.")
    if not known or actions == "onehot":
        return None, True
    if all(np.array_equal(tables[0], table) for table in tables):  # type: ignore[arg-type]
        tables = tables[:1]
    return torch.as_tensor(np.stack(tables), dtype=torch.float64, device=device), actions == "both"  # type: ignore[arg-type]


def context_action_network(
    logs: Sequence[LoggedData], settings: NetworkSettings, device: torch.device
) -> ContextActionNetwork:
    dim, k = logs[0].contexts.shape[1], logs[0].n_actions
    if dim == 0 and not settings.intercept:
        raise InputError(
            "the log has no contexts, so r_hat = e'x is 0: pass contexts, or NetworkSettings(intercept=True)."
        )
    return ContextActionNetwork(settings, dim, k, *action_inputs(logs, settings.actions, device))


def action_network(logs: Sequence[LoggedData], actions: str, device: torch.device) -> ActionNetwork:
    dim, k = logs[0].contexts.shape[1], logs[0].n_actions
    if dim == 0:
        raise InputError("the log has no contexts, so r_hat = e'x is 0 for every embedding.")
    return ActionNetwork(dim, k, *action_inputs(logs, actions, device))


@torch.no_grad()
def embeddings(network: Network, parameters: Parameters, data: TrialData) -> tuple[Floats, Floats]:
    """f(x_i, a_i) and r_hat of every row in evaluation mode, (T, n, e) and (T, n) float64."""
    parts, rewards = [], []
    for at in range(0, data.x.shape[1], BLOCK):
        x, a = data.x[:, at : at + BLOCK], data.a[:, at : at + BLOCK]
        parts.append(network.embed(parameters, x, a, None))
        rewards.append(network.reward(parameters, parts[-1], x))
    return torch.cat(parts, dim=1).cpu().numpy(), torch.cat(rewards, dim=1).cpu().numpy()


@torch.no_grad()
def embeddings_at(network: Network, parameters: Parameters, contexts: Floats, actions: Ints) -> Floats:
    """f(x, a) of rows, (b, e), of a network with one trial on the CPU."""
    x = torch.as_tensor(np.array(contexts), dtype=torch.float64)[None]
    return network.embed(parameters, x, torch.as_tensor(np.array(actions), dtype=torch.int64)[None], None)[0].numpy()


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
