"""What a client sends and how it defends itself: what goes together, and what is refused with its name."""

from typing import Any

import pytest

from lightleak.core.errors import UsageError
from lightleak.defenses.horizontal import TRAINING_DEFENSES, UPDATE_DEFENSES
from lightleak.experiments.attack_settings import label_sharing, with_label_setting
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.federation_config import DefenseConfig, ProtocolConfig, defense_of
from lightleak.experiments.load import parse_config
from lightleak.protocols.client_training import LocalTraining

FEDAVG: dict[str, Any] = {"data": {"name": "fair"}, "protocol": {"name": "fedavg"}, "attacks": ["tableak_fedavg"]}
FEDSGD: dict[str, Any] = {"data": {"name": "fair"}}


def test_defaults_are_fedsgd_without_a_defense() -> None:
    config = parse_config(FEDSGD)
    assert config.protocol == ProtocolConfig() and config.protocol.name == "fedsgd"
    assert config.defense.is_none and defense_of(config.defense) is None
    assert config.rounds == config.training.epochs == 2


@pytest.mark.parametrize(
    ("settings", "batches"),
    [({}, 1), ({"local_batches": 4}, 4), ({"local_batch_size": 10}, 4), ({"local_batches": 3}, 3)],
)
def test_rows_are_cut_into_batches(settings: dict[str, Any], batches: int) -> None:
    training = ProtocolConfig("fedavg", local_epochs=5, **settings).local_training(32)
    assert training.steps(32) == 5 * batches
    assert ProtocolConfig("fedavg").local_training(7) == LocalTraining(1, 7, 0.01)


def test_rows_that_the_batches_do_not_divide_are_refused() -> None:
    with pytest.raises(UsageError, match="6 rows cannot be cut into 4 batches"):
        ProtocolConfig("fedavg", local_batches=4).local_batch_of(6)


def test_round_trip_and_rounds() -> None:
    config = parse_config(
        FEDAVG, {"protocol.rounds": 7, "defense.name": "gaussian_noise", "defense.options.scale": 0.1}
    )
    assert config.rounds == 7 and config.defense.options == {"scale": 0.1}
    assert parse_config(config.to_dict()) == config


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"protocol.name": "fedprox"}, "protocol.name"),
        ({"protocol.local_epochs": 0}, "protocol.local_epochs must be at least 1, got 0"),
        ({"protocol.local_batch_size": 0}, "protocol.local_batch_size must be at least 1, got 0"),
        ({"protocol.local_batch_size": 4, "protocol.local_batches": 2}, "local_batch_size or local_batches, got both"),
        ({"protocol.learning_rate": 0.0}, "protocol.learning_rate must be above 0, got 0.0"),
        ({"protocol.momentum": 1.0}, "protocol.momentum must be at least 0 and below 1, got 1.0"),
        ({"protocol.clients": 0}, "protocol.clients must be at least 1, got 0"),
        ({"protocol.client_rows": 0}, "protocol.client_rows must be at least 1, got 0"),
        (
            {"protocol.clients_per_round": 51},
            "protocol.clients_per_round must be at most 50 (protocol.clients), got 51",
        ),
        ({"protocol.rounds": -1}, "protocol.rounds must be at least 0, got -1"),
        ({"protocol.rounds": 0, "initial.batches": 0}, "nothing to attack: protocol.rounds is 0"),
        ({"protocol.aggregate": 0}, "protocol.aggregate must be at least 1, got 0"),
        ({"protocol.aggregate": 3}, "protocol.aggregate must divide the clients of a round, 50; got 3"),
        ({"protocol.local_batches": 5, "initial.batch_sizes": [8]}, "8 rows cannot be cut into 5 batches"),
        ({"protocol.label_order": "batches", "labels": "restored"}, "label_order 'batches' reveals the labels"),
        ({"training.epochs": 9}, "training.epochs is a setting of FedSGD; FedAvg has protocol.rounds"),
        (
            {"training.batch_size": 9},
            "training.batch_size is a setting of FedSGD; FedAvg has protocol.local_batch_size",
        ),
        ({"training.optimizer.name": "adam"}, "training.optimizer is a setting of FedSGD"),
        ({"training.trainer.gradient_clip_val": 1.0}, "training.trainer.gradient_clip_val is a setting of FedSGD"),
        ({"training.trainer.precision": "16-mixed"}, "training.trainer.precision is a setting of FedSGD"),
        ({"capture.at": "clipped"}, "capture.at 'clipped' is about FedSGD gradients"),
        ({"capture.per_epoch": 51}, "capture.per_epoch must be at most 50 (updates of one round), got 51"),
        (
            {"protocol.aggregate": 25, "capture.per_epoch": 3},
            "capture.per_epoch must be at most 2 (updates of one round), got 3",
        ),
        ({"label_method": "geng"}, "label_method must be one of interpolated, geng_server, geng_client under fedavg"),
        (
            {"defense.name": "dp_sgd", "defense.options.noise_multiplier": 1.0},
            "dp_sgd acts on the rows of every local step: set defense.point to steps",
        ),
    ],
)
def test_wrong_settings_of_fedavg_are_refused_by_name(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_config(FEDAVG, overrides)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"protocol.local_epochs": 5}, "protocol.local_epochs is a setting of FedAvg (protocol.name fedavg)"),
        ({"protocol.aggregate": 2}, "protocol.aggregate is a setting of FedAvg"),
        ({"label_method": "interpolated"}, "label_method must be one of geng, bias under fedsgd, got interpolated"),
        ({"defense.options.scale": 0.1}, "defense.options need defense.name"),
        ({"defense.name": "gausian_noise"}, "unknown defense 'gausian_noise' (did you mean 'gaussian_noise'?)"),
        (
            {"defense.name": "gaussian_noise", "defense.options.sigma": 1},
            "gaussian_noise has no setting sigma; settings: scale",
        ),
        ({"defense.name": "gaussian_noise", "defense.options.scale": -1}, "defense.options: gaussian_noise: scale"),
        ({"defense.name": "gaussian_noise", "defense.point": "steps"}, "defense.point 'steps' is about local steps"),
        ({"defense.point": "steps"}, "defense.point 'steps' is about local steps of a FedAvg client with a defense"),
        ({"defense.point": "sideways"}, "defense.point"),
        (
            {"defense.name": "gaussian_noise", "capture.at": "clipped"},
            "capture.at 'clipped' leaves out what gaussian_noise",
        ),
        ({"capture.at": "noised"}, "capture.at 'noised' needs a defense (defense.name)"),
    ],
)
def test_wrong_settings_of_fedsgd_and_defenses_are_refused_by_name(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_config(FEDSGD, overrides)
    assert message in str(error.value)


def test_every_defense_of_the_registries_can_be_named() -> None:
    needed = {"dp_sgd": {"noise_multiplier": 1.0}}
    for name in (*UPDATE_DEFENSES, *TRAINING_DEFENSES):
        made = defense_of(DefenseConfig(name, needed.get(name, {})))
        assert made is None if name == "none" else made is not None and made.name == name


def sharing(attacks: dict[str, Any], **overrides: Any) -> tuple[AuditConfig, str]:
    config = parse_config(FEDAVG, {"attacks": attacks, **{k.replace("__", "."): v for k, v in overrides.items()}})
    return config, label_sharing(config)


def test_updates_share_no_more_of_their_labels_than_attacks_are_given() -> None:
    assert sharing({"random": {}})[1] == "none"
    assert sharing({"tableak_fedavg": {}})[1] == "counts"
    assert sharing({"tableak_fedavg": {}}, labels="restored")[1] == "none"
    assert sharing({"tableak_fedavg": {}}, protocol__label_order="batches")[1] == "batches"
    assert sharing({"tableak_fedavg": {"label_order": "batches"}, "fedavg_prior": {}})[1] == "batches"
    assert sharing({"random": {}}, monitor__attack="tableak_fedavg")[1] == "counts"


def test_label_settings_reach_attacks_on_fedavg() -> None:
    given, _ = sharing({"tableak_fedavg": {}}, protocol__label_order="batches")
    assert with_label_setting(given, "tableak_fedavg", {}) == {"labels": "true", "label_order": "batches"}
    assert with_label_setting(given, "tableak_fedavg", {"labels": "geng_server"}) == {"labels": "geng_server"}
    assert with_label_setting(given, "tableak", {}) == {"labels": "true"}
    restored, _ = sharing({"tableak_fedavg": {}}, labels="restored")
    assert with_label_setting(restored, "tableak_fedavg", {}) == {"labels": "interpolated"}
    client, _ = sharing({"tableak_fedavg": {}}, labels="restored", label_method="geng_client")
    assert with_label_setting(client, "tableak_fedavg", {}) == {"labels": "geng_client"}
