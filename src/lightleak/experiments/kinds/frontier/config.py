"""One audit of a defense frontier as typed data (``kind: defense-frontier``)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from lightleak.attacks import ATTACKS
from lightleak.core.bounds import Bounds, Section, bounded, require_within
from lightleak.core.errors import UsageError, placed
from lightleak.core.former_names import note_once
from lightleak.core.seeds import derive_seed
from lightleak.defenses.horizontal import DPSGD
from lightleak.experiments.config import AuditConfig, FederatedConfig, InitialConfig, TrainingConfig
from lightleak.experiments.federation_config import NO_DEFENSE, DefenseConfig, defense_class, defense_of, make_defense
from lightleak.experiments.settings import MOST_SEEDS
from lightleak.experiments.unit import file_name

ActsOn = Literal["update", "steps"]

UNDEFENDED: Mapping[str, Mapping[str, Any]] = {"audit_max": {}}
"""What an update without a defense is attacked by where attacks know the defenses."""


@dataclass(frozen=True)
class Point:
    """One defense at one strength, or no defense.

    Attributes:
        label: name of its curve.
        name: the defense, or ``none``.
        option: the setting that the curve varies; None where it varies none.
        strength: that setting's value.
        settings: all settings of the defense.
        words: one line that says them.
        acts_on: under FedAvg, the ``update`` that a client sends or the gradients of its local ``steps``.
    """

    label: str = NO_DEFENSE
    name: str = NO_DEFENSE
    option: str | None = None
    strength: int | float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    words: str = "no defense"
    acts_on: ActsOn = "update"

    @property
    def id(self) -> str:
        """Unique among the points of a config, and part of a file name.

        >>> Point("gaussian_noise", "gaussian_noise", "scale", 0.01).id
        'gaussian_noise-0.01'
        """
        return file_name(self.label if self.strength is None else f"{self.label}-{self.strength}")

    @property
    def config(self) -> DefenseConfig:
        """The defense as a config names it.

        >>> Point().config.is_none
        True
        """
        return DefenseConfig(self.name, dict(self.settings), self.acts_on)

    @property
    def known_to(self) -> Mapping[str, Mapping[str, Any]]:
        """Attacks that know the defense, with their settings; without one, the strongest attack there is."""
        made = defense_of(self.config)
        return UNDEFENDED if made is None else made.knowledge

    def _knowledge(self) -> dict[str, Any]:
        """What a row says of attacks that need values which depend on this defense's settings."""
        made = defense_of(self.config)
        return {} if made is None or made.knowledge == made.known_to else {"defense_knowledge": made.knowledge}

    def facts(self) -> dict[str, Any]:
        """What a row of results.json says of it; of epsilon and delta the training says."""
        return {
            "defense": self.name,
            "defense_label": self.label,
            "defense_option": self.option,
            "defense_strength": self.strength,
            "defense_words": self.words,
            "defense_settings": asdict(self.config),
            **self._knowledge(),
            "epsilon": None,
            "release_epsilon": None,
            "delta": None,
        }


@dataclass(frozen=True)
class Curve:
    """One defense at several strengths.

    Attributes:
        name: the defense.
        strengths: values of the setting that is varied; none for a defense without settings, or to use its defaults.
        options: its other settings.
        option: the setting that is varied; the defense's first where it is left out.
        label: name of the curve, where a defense has several; the defense's name where it is left out.
        acts_on: under FedAvg, whether a client defends the ``update`` it sends or the gradient of every local step
            (``steps``).
    """

    name: str
    strengths: tuple[int | float, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    option: str | None = None
    label: str | None = None
    acts_on: ActsOn = "update"

    @property
    def title(self) -> str:
        """Name of the curve."""
        return self.label or self.name

    def points(self) -> tuple[Point, ...]:
        """One point per strength.

        >>> [point.words for point in Curve("gaussian_noise", (0.1, 1)).points()]
        ['Gaussian noise of scale 0.1', 'Gaussian noise of scale 1']

        Raises:
            UsageError: an unknown defense or setting, a strength out of range or given twice.
        """
        where = f"defenses.{self.title}"
        if NO_DEFENSE in (self.name, self.title):
            raise UsageError(f"{where}: no defense is always measured; leave it out")
        if len(set(self.strengths)) < len(self.strengths):
            raise UsageError(f"{where}: strengths must be distinct, got {', '.join(map(str, self.strengths))}")
        option, found = self._varied(where), []
        for strength in self.strengths or (None,):
            settings = self.options if option is None else {**self.options, option: strength}
            words = self._words(where, settings)
            found.append(Point(self.title, self.name, option, strength, settings, words, self.acts_on))
        return tuple(found)

    def _varied(self, where: str) -> str | None:
        """The setting that the strengths are values of; None where there are no strengths."""
        with placed(where):
            known = [one.name for one in fields(defense_class(self.name))]
        if not self.strengths:
            if self.option is not None:
                raise UsageError(f"{where}: option {self.option!r} needs strengths, the values it takes")
            return None
        if not known:
            raise UsageError(f"{where}: {self.name} has no settings, so it takes no strengths; got {self.strengths}")
        option = self.option or known[0]
        if option not in known:
            raise UsageError(f"{where}: {self.name} has no setting {option!r}; settings: {', '.join(known)}")
        if option in self.options:
            raise UsageError(f"{where}: {option!r} is what the strengths vary; leave it out of options")
        return option

    def _words(self, where: str, settings: Mapping[str, Any]) -> str:
        with placed(where):
            made = make_defense(self.name, settings)
        return made.describe() + (" on the gradient of every local step" if self.acts_on == "steps" else "")


BASELINE = "random"
"""What leakage is measured against; it is always run."""

USUAL_TRAINING = TrainingConfig(epochs=10, validation_fraction=0.0)
"""TabLeak's training under noise (App. B): 10 epochs, batches of 32, SGD at 0.01, on all training rows."""

USUAL_CURVES = (
    Curve("gaussian_noise", (0.001, 0.01, 0.1)),
    Curve("laplacian_noise", (0.001, 0.01, 0.1)),
    Curve("random_pruning", (0.5, 0.9, 0.99)),
    Curve("clipping", (0.1, 1.0)),
    Curve("sign"),
    Curve("quantization", (2, 4)),
    Curve("gradient_compression", (0.01, 0.1)),
    Curve("dp_sgd", (0.5, 1.0, 2.0)),
)


@dataclass(frozen=True)
class GamesConfig(Section, section="games"):
    """Guessing games against the releases of DP-SGD, where it is among the defenses.

    Attributes:
        sets: sets of candidates, each with a network of its own; 0 plays none.
        trials: releases of each set at each noise multiplier.
    """

    sets: int = bounded(0, ge=0)
    trials: int = bounded(200, ge=1)


@dataclass(frozen=True)
class FrontierConfig(FederatedConfig):
    """What every defense keeps from being read, and what it costs.

    Attributes:
        training: how the target is trained under each defense (FedSGD; FedAvg's is in ``protocol``).
        defenses: the curves; no defense is always measured as well.
        attacks: attack names and the settings to change; ``random``, guessing, is always among them.
        adaptive: attack every defense also by the attack that knows it, where there is one; takes far longer.
        initial: the clients that are attacked, the same under every defense; of one size, through one update each,
            while noise averages out over rounds (``initial.releases`` of ``kind: updates``).
        games: how often the best attack on one DP-SGD release guesses a row or a value, next to the guarantee.
        seeds: trainings of each point, over which intervals of accuracy are taken; ``[0, 1, 2]`` is the same as 3.
        kind: what is audited.
        title: heading of the report.
    """

    training: TrainingConfig = field(default_factory=lambda: USUAL_TRAINING)
    defenses: tuple[Curve, ...] = USUAL_CURVES
    attacks: dict[str, dict[str, Any]] = field(default_factory=lambda: {"tableak": {}, BASELINE: {}})
    adaptive: bool = False
    initial: InitialConfig = field(default_factory=lambda: InitialConfig((32,), batches=5))
    games: GamesConfig = field(default_factory=GamesConfig)
    seeds: int = bounded(5, ge=1, le=MOST_SEEDS)
    kind: Literal["defense-frontier"] = "defense-frontier"
    title: str = "What defenses buy and what they cost"

    def check(self) -> None:
        """Refuse a defense that cannot be made, and a training without epochs."""
        for name, value in ((self.rounds_setting, self.rounds), ("initial.batches", self.initial.batches)):
            require_within(Bounds(ge=1), name, value)
        if len(self.initial.batch_sizes) != 1:  # leakage at several is several frontiers
            sizes = list(self.initial.batch_sizes)
            raise UsageError(f"initial.batch_sizes of a frontier must be one number, got {sizes}")
        if self.initial.releases > 1:
            raise UsageError(
                "initial.releases of a frontier must be 1: every point is attacked through one "
                f"update of each client (`kind: updates` combines several); got {self.initial.releases}"
            )
        if not set(self.attacks) - {BASELINE}:
            raise UsageError(f"attacks must name at least one besides {BASELINE}, which reads nothing")
        if self.games.sets and (self.protocol.is_fedavg or all(curve.name != "dp_sgd" for curve in self.defenses)):
            raise UsageError("games.sets needs the protocol fedsgd and dp_sgd among the defenses, or 0")
        titles = [curve.title for curve in self.defenses]
        if twice := sorted({title for title in titles if titles.count(title) > 1}):
            raise UsageError(f"defenses must have distinct names, got {twice[0]!r} twice; give one of them a label")
        for point in self.points:
            self.audit_at(point)  # refuses what the protocol cannot be defended by

    @property
    def points(self) -> tuple[Point, ...]:
        """No defense, and every defense at every strength."""
        return (Point(), *(point for curve in self.defenses for point in curve.points()))

    def training_seed(self, training: int) -> int:
        """Root seed of training number ``training``."""
        return derive_seed(self.seed, "training", training)

    def audit_at(self, point: Point, training: int | None = None) -> AuditConfig:
        """The audit of updates that measures one point.

        Args:
            point: the defense and its strength.
            training: number of the training; None for the attacks. Trainings of the same number share first weights
                and order of rows; attacks share their clients.

        Raises:
            UsageError: a defense that the protocol cannot have.
        """
        shared: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(FederatedConfig)}
        shared |= {"training": self._training, "attacks": self._attacks_of(point)}
        shared |= {} if training is None else {"seed": self.training_seed(training)}
        return AuditConfig(**shared, defense=self._decided(point.config))

    def _decided(self, defense: DefenseConfig) -> DefenseConfig:
        """The defense with the noise that a target epsilon needs under FedAvg, where trainings draw other clients.

        It is that of the training with most rounds of a client, for all trainings and attacks of the point.
        """
        made = defense_of(defense)
        if not self.protocol.is_fedavg or not isinstance(made, DPSGD) or made.target_epsilon is None:
            return defense
        steps = max(self.protocol.steps_of_a_row(self.training_seed(training)) for training in range(self.seeds))
        settings = {name: value for name, value in defense.options.items() if name != "target_epsilon"}
        return replace(defense, options=settings | {"noise_multiplier": made.resolved_for(steps).noise()})

    def _attacks_of(self, point: Point) -> dict[str, dict[str, Any]]:
        """Attacks of the config, guessing, and what knows the defense; what the config sets goes before."""
        known = {name: options for name, options in point.known_to.items() if self.adaptive and self._reads(name)}
        names = (*self.attacks, *known, BASELINE)
        return {name: {**known.get(name, {}), **self.attacks.get(name, {})} for name in names}

    def _reads(self, attack: str) -> bool:
        """Whether an attack is of this protocol: some read gradients, some weight updates, `audit_max` both."""
        reads_weights: bool = ATTACKS.get(attack)().threat_model.local_training
        return attack in UNDEFENDED or reads_weights == self.protocol.is_fedavg

    @property
    def _training(self) -> TrainingConfig:
        """FedAvg has its own epochs, batches and SGD: of ``training`` it takes what else was set."""
        of_clients = {"epochs", "batch_size", "optimizer"}
        if not self.protocol.is_fedavg or any(
            getattr(self.training, name) != getattr(USUAL_TRAINING, name) for name in of_clients
        ):
            return self.training
        usual = TrainingConfig()
        return replace(self.training, **{name: getattr(usual, name) for name in of_clients})

    @classmethod
    def write_out(cls, tree: dict[str, Any]) -> None:
        """See `RunConfig.write_out`; ``- sign`` is short for ``- {name: sign}``."""
        super().write_out(tree)
        if isinstance(initial := tree.get("initial"), dict) and "batch_size" in initial:
            note_once("initial.batch_size", "initial.batch_sizes")
            initial["batch_sizes"] = initial.pop("batch_size")
        if isinstance(seeds := tree.get("seeds"), list):
            if seeds != list(range(len(seeds))):
                raise UsageError(f"seeds of a frontier are a number of trainings, or all from 0 on; got {seeds}")
            tree["seeds"] = len(seeds)
        if isinstance(tree.get("defenses"), list):
            tree["defenses"] = [{"name": one} if isinstance(one, str) else one for one in tree["defenses"]]
