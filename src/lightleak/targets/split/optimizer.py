"""The optimizer of a split network: one object, a state of its own for every parameter, hence for every party."""

import torch

from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.split.network import SplitNetwork

FUSED_ON = frozenset({"cpu", "cuda"})
"""Devices where PyTorch updates all parameters in one call for sgd, adam and adamw alike."""


def build_optimizer(config: OptimizerConfig, network: SplitNetwork) -> torch.optim.Optimizer:
    """The optimizer of ``config`` with two groups: the bottom networks, then the top network.

    The updates are elementwise, so that one object does what an optimizer per party would.
    """
    optimizer = config.build(network.bottoms.parameters())
    optimizer.add_param_group({"params": list(network.top.parameters())})
    if all(parameter.device.type in FUSED_ON for parameter in network.parameters()):
        for group in optimizer.param_groups:
            group["fused"] = True
    return optimizer
