"""A defense at work in training: it acts on the gradient of every step before the optimizer uses it."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lightleak.core.errors import UsageError
from lightleak.core.seeds import generator
from lightleak.defenses.horizontal.defense import UpdateDefense

STEP_KEY = "defended_steps"


class DefendedOptimizer(torch.optim.Optimizer):
    """Applies a defense to the mean gradient of a step and hands the result to the optimizer it wraps.

    What is random in step s depends on (seed, rank, s) alone, and s is part of ``state_dict``: a resumed training
    repeats to the bit.

    On several processes (DDP) each is a client: its own gradient is defended and the results are averaged, so that all
    processes take the same step. What DDP has reduced, and what was done to that (the Trainer's clipping), is not used.

    Args:
        optimizer: the optimizer that moves the weights.
        network: what it trains; names the gradients.
        defense: the transform.
        seed: root seed.

    Attributes:
        original_optimizer: ``optimizer``, as opacus' ``DPOptimizer`` names it.
        defense: ``defense``.

    Raises:
        UsageError: an optimizer that computes several gradients in a step, or parameters that are not the network's.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, network: nn.Module, defense: UpdateDefense, seed: int) -> None:
        if isinstance(optimizer, torch.optim.LBFGS):
            raise UsageError("a defense acts on the one gradient of a step; LBFGS computes several")
        self.original_optimizer = optimizer
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self._share()
        trained = {parameter for group in optimizer.param_groups for parameter in group["params"]}
        self._named = {name: value for name, value in network.named_parameters() if value in trained}
        if len(self._named) != len(trained):
            raise UsageError("the optimizer must train parameters of the network and nothing else to be defended")
        self.defense, self._seed, self._steps = defense, seed, 0
        several = torch.distributed.is_available() and torch.distributed.is_initialized()
        self._rank = torch.distributed.get_rank() if several else 0
        self._ranks = torch.distributed.get_world_size() if several else 1
        # Lightning calls zero_grad through a copy of __dict__: these two are changed in place only.
        self._own: dict[str, Tensor] = {}
        self._hooks: list[RemovableHandle] = []

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Begin a step: forget gradients, and with several processes watch for this one's own."""
        super().zero_grad(set_to_none)
        if self._ranks > 1:
            self._stop_watching()
            self._own.clear()
            self._hooks.extend(value.register_hook(self._adder(name)) for name, value in self._named.items())

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Defend the gradient that lies in ``.grad`` (after ``closure``, which puts it there) and take the step."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        self._stop_watching()
        with torch.no_grad():
            self._defend()
        self._steps += 1
        self.original_optimizer.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The wrapped optimizer's, and the number of steps taken."""
        return {**self.original_optimizer.state_dict(), STEP_KEY: self._steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Inverse of `state_dict`.

        Raises:
            UsageError: the state is that of a training without this defense.
        """
        if STEP_KEY not in state_dict:
            raise UsageError("the optimizer's state is that of an undefended training; it cannot be resumed defended")
        self.original_optimizer.load_state_dict({k: v for k, v in state_dict.items() if k != STEP_KEY})
        self._steps = int(state_dict[STEP_KEY])
        self._share()

    def _share(self) -> None:
        """Both optimizers hold the same groups and state, so that whoever changes one changes both."""
        self.param_groups, self.state = self.original_optimizer.param_groups, self.original_optimizer.state

    def _defend(self) -> None:
        reached = {name: value.grad for name, value in self._named.items() if value.grad is not None}
        if not reached:
            return
        draws = generator(self._seed, "defense", self._rank, self._steps)
        if self._ranks == 1:
            sent = self.defense.apply(reached, draws)
        else:
            own = {name: self._own.get(name, torch.zeros_like(grad)) for name, grad in reached.items()}
            sent = self.defense.apply(own, draws)
            for tensor in sent.values():
                torch.distributed.all_reduce(tensor)
                tensor /= self._ranks
        for name, grad in reached.items():
            if sent[name] is not grad:
                grad.copy_(sent[name])

    def _adder(self, name: str) -> Callable[[Tensor], None]:
        def add(gradient: Tensor) -> None:
            self._own[name] = self._own[name] + gradient.detach() if name in self._own else gradient.detach().clone()

        return add

    def _stop_watching(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()
