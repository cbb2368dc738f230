"""What federated learning frameworks ship against leakage, run by the frameworks' own code.

NVFlare's filters and Flower's mods act on the change of weights that a client sends. An update has the scale of a mean
gradient here; ``scale`` says what it is multiplied by to become that change.
"""

import logging
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from lightleak.core.bounds import bounded
from lightleak.core.errors import UsageError
from lightleak.core.optional import import_optional
from lightleak.defenses.horizontal.defense import UPDATE_DEFENSES, KnownTo, UpdateDefense
from lightleak.defenses.horizontal.privacy_accounting import gaussian_epsilon
from lightleak.targets.trainer import loggers_at

Change = dict[str, np.ndarray]
"""Change of weights by parameter name, float32."""


class FrameworkFilter(UpdateDefense):
    """Base of what a framework's own code does to the change of weights.

    Attributes:
        extra: the extra of this package that installs the framework.
        package: import name of the framework, and name of its logger.
        scale: factor from a mean gradient to the change of weights in which a filter states its bounds. None: in FedAvg
            what a client of the framework sends, see `acting_at`; in FedSGD 1.
    """

    extra: ClassVar[str]
    package: ClassVar[str]
    scale: float | None

    @property
    def factor(self) -> float:
        """``scale``, or 1 where it is not set."""
        return 1.0 if self.scale is None else self.scale

    def acting_at(self, learning_rate: float, steps: int) -> UpdateDefense:
        """See `UpdateDefense.acting_at`; bounds are those of the change of all steps, unless `scale` is set."""
        return replace(self, scale=learning_rate * steps) if self.scale is None else self  # type: ignore[type-var]

    @abstractmethod
    def filtered(self, change: Change) -> Change:
        """What the framework sends in place of a change; tensors that it leaves out may be missing.

        Raises:
            UnsupportedError: the framework is not installed.
        """

    def release_privacy(self, n_parameters: int, releases: int = 1) -> dict[str, Any]:
        """Return ``release_epsilon``, ``delta`` and ``privacy_unit`` of an update; empty if nothing is guaranteed.

        Args:
            n_parameters: size of the update.
            releases: updates of the same rows, each with noise of its own, which the guarantee is for together.
        """
        return {}

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`; a tensor that the framework leaves out is zero."""
        change = {name: (-self.factor * gradient[name].float()).cpu().numpy() for name in sorted(gradient)}
        import_optional(self.package, f"{self.name} runs the framework's own code", self.extra)
        with loggers_at(logging.WARNING, self.package), _numpy_draws(draws):  # it logs a line for every update
            sent = self.filtered(change)
        zero = np.zeros((), np.float32)
        return {
            name: (torch.as_tensor(sent.get(name, zero)) / -self.factor).to(g).expand(g.shape).clone()
            for name, g in gradient.items()
        }


@contextmanager
def _numpy_draws(draws: torch.Generator) -> Iterator[None]:
    """Seed numpy's global generator, from which frameworks draw, and restore it afterwards."""
    state = np.random.get_state()
    np.random.seed(int(torch.randint(2**32 - 1, (), generator=draws)))
    try:
        yield
    finally:
        np.random.set_state(state)


class NVFlareFilter(FrameworkFilter):
    """A filter of NVFlare on what a client sends (``task_result_filters``).

    A client's change of weights comes with the number of its steps (``NUM_STEPS_CURRENT_ROUND``, which NVFlare's
    Lightning client sets). A filter divides by it, applies its bounds to the mean change of a step, and multiplies by
    it again. Here it gets that mean change.
    """

    extra: ClassVar[str] = "nvflare"
    package: ClassVar[str] = "nvflare"
    module: ClassVar[str]
    filter_name: ClassVar[str]

    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """Arguments of the filter's class."""

    def acting_at(self, learning_rate: float, steps: int) -> UpdateDefense:
        """See `UpdateDefense.acting_at`; bounds are those of the mean change of a step, unless `scale` is set."""
        return super().acting_at(learning_rate, 1)

    def filtered(self, change: Change) -> Change:
        """See `FrameworkFilter.filtered`."""
        need = f"{self.name} runs NVFlare's own filter (nvflare)"
        made = getattr(import_optional(f"nvflare.app_common.filters.{self.module}", need, self.extra), self.filter_name)
        dxo = import_optional("nvflare.apis.dxo", need, self.extra)
        context = import_optional("nvflare.apis.fl_context", need, self.extra).FLContext()
        shareable = import_optional("nvflare.apis.shareable", need, self.extra).Shareable()
        sent = dxo.DXO(dxo.DataKind.WEIGHT_DIFF, data={name: part.copy() for name, part in change.items()})
        found = made(**self.arguments()).process_dxo(sent, shareable, context)
        return dict((sent if found is None else found).data)


@UPDATE_DEFENSES.register("nvflare_percentile")
@dataclass(frozen=True)
class NVFlarePercentile(NVFlareFilter):
    """NVFlare's ``PercentilePrivacy``: send the largest changes, clipped entry by entry.

    Attributes:
        percentile: entries whose magnitude is below this percentile become zero.
        gamma: largest magnitude of an entry that is sent.
        scale: factor from a mean gradient to the change of weights that the bounds are of. Left out: in FedAvg the
            local learning rate, as NVFlare's client sends its number of steps and the filter bounds the mean change of
            a step; in FedSGD 1. For a client that does not send it: learning rate times local steps.

    Raises:
        UsageError: a value out of range.

    Needs:
        * It gives no guarantee. What stays is exact unless it is beyond gamma.
        * The cut is a percentile of all entries. Updates of one-hot columns have so many zeros that the default leaves
          nearly all others.
    """

    name: ClassVar[str] = "nvflare_percentile"
    citation: ClassVar[str] = "Roth et al., NVIDIA FLARE, 2022: PercentilePrivacy; Shokri and Shmatikov, CCS 2015"
    words: ClassVar[str] = "NVFlare PercentilePrivacy({percentile:g}, {gamma:g})"
    varies: ClassVar[str | None] = "percentile"
    known_to: ClassVar[KnownTo] = {"exact_pruned": {}}
    module: ClassVar[str] = "percentile_privacy"
    filter_name: ClassVar[str] = "PercentilePrivacy"

    percentile: float = bounded(10, ge=0, le=100)
    gamma: float = bounded(0.01, gt=0)
    scale: float | None = bounded(None, gt=0)

    def arguments(self) -> dict[str, Any]:
        """See `NVFlareFilter.arguments`."""
        return {"percentile": self.percentile, "gamma": self.gamma}


@UPDATE_DEFENSES.register("nvflare_svt")
@dataclass(frozen=True)
class NVFlareSVT(NVFlareFilter):
    """NVFlare's ``SVTPrivacy``: send entries that pass a noisy threshold, clipped and with Laplace noise.

    Attributes:
        noise_var: budget of each entry that is sent.
        fraction: share of the entries that are sent.
        epsilon: budget of choosing them.
        gamma: largest magnitude of an entry that is sent.
        tau: threshold.
        scale: factor from a mean gradient to the change of weights that the bounds are of. Left out: in FedAvg the
            local learning rate, as NVFlare's client sends its number of steps and the filter bounds the mean change of
            a step; in FedSGD 1. For a client that does not send it: learning rate times local steps.

    Raises:
        UsageError: a value out of range.

    Needs:
        * The filter counts epsilon per entry that it releases: with its defaults a model of a few thousand parameters
          spends hundreds in every round.
        * That is the sum of the filter's own accountant, which has not been verified.
        * It guarantees nothing where statistics of a batch leave the client, as BatchNorm's running ones do.
    """

    name: ClassVar[str] = "nvflare_svt"
    citation: ClassVar[str] = "Roth et al., NVIDIA FLARE, 2022: SVTPrivacy"
    words: ClassVar[str] = "NVFlare SVTPrivacy(fraction {fraction:g}, noise_var {noise_var:g}, gamma {gamma:g})"
    varies: ClassVar[str | None] = "noise_var"
    known_to: ClassVar[KnownTo] = {"exact_signs": {}}
    module: ClassVar[str] = "svt_privacy"
    filter_name: ClassVar[str] = "SVTPrivacy"

    noise_var: float = bounded(0.1, gt=0)
    fraction: float = bounded(0.1, gt=0, le=1)
    epsilon: float = bounded(0.1, gt=0)
    gamma: float = bounded(1e-5, gt=0)
    tau: float = bounded(1e-6, ge=0)
    scale: float | None = bounded(None, gt=0)

    @property
    def knowledge(self) -> KnownTo:
        """See `HorizontalDefense.knowledge`: at which size a gradient is cut off, and the scale of the noise."""
        cut = self.gamma / self.factor
        return {"exact_signs": {"cut": cut, "noise": 2 * cut / self.noise_var}}

    def arguments(self) -> dict[str, Any]:
        """See `NVFlareFilter.arguments`."""
        return {name: getattr(self, name) for name in ("fraction", "epsilon", "noise_var", "gamma", "tau")}

    def spent(self, n_parameters: int) -> float:
        """Epsilon of one update, as the filter itself counts it: of the choice, and of every entry that is sent.

        >>> round(NVFlareSVT().spent(21_000), 1)
        210.1
        """
        return self.epsilon + math.ceil(self.fraction * n_parameters) * self.noise_var

    def release_privacy(self, n_parameters: int, releases: int = 1) -> dict[str, Any]:
        """See `FrameworkFilter.release_privacy`; the sum that NVFlare's accountant reports, which is not verified."""
        return {"release_epsilon": releases * self.spent(n_parameters), "delta": 0.0, "privacy_unit": "client"}


@UPDATE_DEFENSES.register("nvflare_exclude")
@dataclass(frozen=True)
class NVFlareExclude(NVFlareFilter):
    """NVFlare's ``ExcludeVars``: tensors whose names fit an expression are not sent.

    Attributes:
        exclude: regular expression of the names.
        scale: see `FrameworkFilter`; of no effect here.

    Raises:
        UsageError: the expression is empty.

    Needs:
        * It gives no guarantee: the tensors that are sent are exact.
    """

    name: ClassVar[str] = "nvflare_exclude"
    citation: ClassVar[str] = "Roth et al., NVIDIA FLARE, 2022: ExcludeVars"
    words: ClassVar[str] = "NVFlare ExcludeVars({exclude})"
    module: ClassVar[str] = "exclude_vars"
    filter_name: ClassVar[str] = "ExcludeVars"
    known_to: ClassVar[KnownTo] = {"exact_pruned": {}}

    exclude: str = "bias"
    scale: float | None = bounded(None, gt=0)

    def __post_init__(self) -> None:
        if not self.exclude:
            raise UsageError("nvflare_exclude: exclude must be a regular expression of parameter names, got ''")
        super().__post_init__()

    def arguments(self) -> dict[str, Any]:
        """See `NVFlareFilter.arguments`."""
        return {"exclude_vars": self.exclude}


class FlowerMod(FrameworkFilter):
    """A mod of Flower's client app, called with the messages that it would see in a round."""

    extra: ClassVar[str] = "flower"
    package: ClassVar[str] = "flwr"

    @abstractmethod
    def mod(self, mods: Any) -> Any:
        """The mod, of the module ``flwr.clientapp.mod``."""

    def filtered(self, change: Change) -> Change:
        """See `FrameworkFilter.filtered`: the server sends zero weights, and the client answers with the change."""
        need = f"{self.name} runs Flower's own mod (flwr)"
        app = import_optional("flwr.app", need, self.extra)
        mods = import_optional("flwr.clientapp.mod", need, self.extra)
        bounds = app.ConfigRecord({"clipping_norm": float(getattr(self, "clipping_norm", 1.0))})
        zeros = app.ArrayRecord({name: app.Array(np.zeros_like(part)) for name, part in change.items()})
        weights = app.ArrayRecord({name: app.Array(part) for name, part in change.items()})
        asked = _Message(app.RecordDict({"arrays": zeros, "config": bounds}))
        answer = self.mod(mods)(asked, None, lambda message, context: _Message(app.RecordDict({"arrays": weights})))
        return {name: array.numpy() for name, array in answer.content["arrays"].items()}


@dataclass(frozen=True)
class _Message:
    """What a mod reads and changes of a message; Flower's own can be made within a run of Flower only."""

    content: Any

    def has_error(self) -> bool:
        return False


@UPDATE_DEFENSES.register("flower_clipping")
@dataclass(frozen=True)
class FlowerClipping(FlowerMod):
    """Flower's ``fixedclipping_mod``, the client's part of central differential privacy: clip the whole update.

    The adaptive mod does the same, with a norm that the server changes from round to round.

    Attributes:
        clipping_norm: largest Euclidean norm of the change.
        scale: factor from a mean gradient to the change of weights that the bound is of. Left out: in FedAvg the local
            learning rate times the local steps (``point: steps``: the learning rate); in FedSGD 1.

    Raises:
        UsageError: a value out of range.

    Needs:
        * Flower's server adds noise after it has received the clipped update: a server that reads updates sees them
          without noise.
    """

    name: ClassVar[str] = "flower_clipping"
    citation: ClassVar[str] = "Beutel et al., Flower, 2020: fixedclipping_mod"
    words: ClassVar[str] = "Flower fixed clipping to norm {clipping_norm:g}"
    varies: ClassVar[str | None] = "clipping_norm"
    known_to: ClassVar[KnownTo] = {"exact": {}, "exact_fedavg": {}}

    clipping_norm: float = bounded(1.0, gt=0)
    scale: float | None = bounded(None, gt=0)

    def mod(self, mods: Any) -> Any:
        """See `FlowerMod.mod`."""
        return mods.fixedclipping_mod


@UPDATE_DEFENSES.register("flower_local_dp")
@dataclass(frozen=True)
class FlowerLocalDP(FlowerMod):
    """Flower's ``LocalDpMod``: clip the whole update and add Gaussian noise at the client.

    Attributes:
        epsilon: requested from the mod for one round.
        clipping_norm: largest Euclidean norm of the change.
        sensitivity: that the noise is made for.
        delta: the probability with which it may fail.
        scale: factor from a mean gradient to the change of weights that the bound is of. Left out: in FedAvg the local
            learning rate times the local steps (``point: steps``: the learning rate); in FedSGD 1.

    Raises:
        UsageError: a value out of range.

    Needs:
        * The unit is the client: the update as a whole is protected, in every round anew.
        * Its formula for the noise holds for epsilon up to 1; sensitivity is taken from the user and not compared with
          the norm.
        * It guarantees nothing where statistics of a batch leave the client, as BatchNorm's running ones do.
    """

    name: ClassVar[str] = "flower_local_dp"
    citation: ClassVar[str] = "Beutel et al., Flower, 2020: LocalDpMod"
    words: ClassVar[str] = "Flower local DP, epsilon {epsilon:g} a round, norm {clipping_norm:g}"
    varies: ClassVar[str | None] = "epsilon"
    known_to: ClassVar[KnownTo] = {"exact_joint": {}, "exact_fedavg": {}}

    epsilon: float = bounded(1.0, gt=0)
    clipping_norm: float = bounded(1.0, gt=0)
    sensitivity: float = bounded(1.0, gt=0)
    delta: float = bounded(1e-5, gt=0, lt=1)
    scale: float | None = bounded(None, gt=0)

    def mod(self, mods: Any) -> Any:
        """See `FlowerMod.mod`."""
        return mods.LocalDpMod(self.clipping_norm, self.sensitivity, self.epsilon, self.delta)

    def release_privacy(self, n_parameters: int, releases: int = 1) -> dict[str, Any]:
        """See `FrameworkFilter.release_privacy`.

        Local differential privacy is about any two updates, which clipping leaves ``2 * clipping_norm`` apart at most.
        The epsilon is that of the noise which the mod adds, whatever ``epsilon`` it was configured with; the noise of
        several releases counts as that of one divided by the root of their number (Dong et al. 2019, Corollary 3.3).

        >>> round(FlowerLocalDP(epsilon=1.0).release_privacy(21_000)["release_epsilon"], 2)
        1.61
        """
        deviation = self.sensitivity * math.sqrt(2 * math.log(1.25 / self.delta)) / self.epsilon
        epsilon = gaussian_epsilon(deviation / (2 * self.clipping_norm * math.sqrt(releases)), self.delta)
        return {"release_epsilon": epsilon, "delta": self.delta, "privacy_unit": "client"}
