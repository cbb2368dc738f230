"""Guessing games in a frontier: sets are played on their own, summed up, and drawn next to the bound."""

import json
from statistics import NormalDist

import pytest
import torch

from lightleak.core.errors import UsageError
from lightleak.core.seeds import derive_seed, generator
from lightleak.defenses.horizontal.dp_sgd import DPSGD
from lightleak.experiments.experiment import Experiment, prepare_experiment
from lightleak.experiments.kinds.frontier import games as module
from lightleak.experiments.kinds.frontier.config import Point
from lightleak.experiments.kinds.frontier.games import candidates, clipped, game_packs, play_set, write_games
from lightleak.report.read import load_run
from lightleak.report.sections.bound_gap import FILE_NAME, SCHEMA_VERSION, Game, gap_page, gap_section
from lightleak.targets.spec import build_network

CPU = torch.device("cpu")
ROWS = 30


@pytest.fixture(scope="module")
def experiment(small) -> Experiment:
    return prepare_experiment(small().audit_at(Point()))


def test_a_near_row_wins_the_whole_row_and_a_known_rows_candidates_differ_in_one_column(experiment) -> None:
    people = experiment.population
    found = {one.game: one for one in candidates(people, generator(0), ROWS)}
    whole = found[f"whole row of {ROWS}"]
    assert whole.hits.diagonal().all() and torch.equal(whole.hits, whole.hits.T)
    assert not whole.hits[whole.labels[:, None] != whole.labels].any()
    codes = people.encoder.project(whole.inputs)[0]
    assert not whole.hits[(codes[:, None] != codes).any(-1)].any()
    (name, column), *_ = [(name, one) for name, one in found.items() if name.endswith("of a known row")]
    codes, numbers = people.encoder.project(column.inputs)
    assert int((codes != codes[0]).any(0).sum()) == 1 and (numbers == numbers[0]).all()
    assert (column.labels == column.labels[0]).all() and float(column.prior.sum()) == pytest.approx(1)
    share = people.encoder.project(people.inputs)[0][:, 0].bincount(minlength=len(column.prior)) / len(people.inputs)
    assert name.startswith(people.encoder.layout.categorical[0].name)
    torch.testing.assert_close(column.prior, share.double())


def test_gradients_of_candidates_are_clipped_as_dp_sgd_clips_them(experiment) -> None:
    people, network = experiment.population, build_network(experiment.spec, 0)
    inputs, labels = people.inputs[:4], people.labels[:4]
    defense = DPSGD(noise_multiplier=0.0, max_grad_norm=0.05)
    sent = defense.client_gradient(network, dict(network.named_parameters()), {}, inputs, labels, generator(0))
    mean = torch.cat([part.flatten() for part in sent.values()]).detach()
    rows = clipped(network, inputs, labels, 0.05)
    torch.testing.assert_close(rows.mean(0).float() * 0.05, mean)
    assert rows.norm(dim=1).max() <= 1


def test_without_noise_every_game_is_won_and_with_much_only_the_prior_is_left(experiment) -> None:
    people = experiment.population
    network = build_network(experiment.spec, derive_seed(0, "network", 0))
    played = play_set(people, network, 0, 0, [(1e-3, 1.0), (1e4, 1.0)], 400)
    for one in played:
        if one["noise"] > 1:
            assert one["won"] / 400 == pytest.approx(one["prior"], abs=0.1)
        elif one["game"].endswith("rows"):
            assert one["won"] == 400


def test_a_frontier_writes_its_games_and_its_report_draws_them(
    experiment, small, finished, tmp_path, monkeypatch
) -> None:
    config = small(games__sets=3, games__trials=40)
    monkeypatch.setattr(module, "WHOLE", ROWS)
    packs = game_packs(config, experiment)
    assert [pack.ids for pack in packs] == [["game-000"], ["game-001"], ["game-002"]]
    assert game_packs(small(), experiment) == []
    write_games(config, experiment, tmp_path)
    assert not (tmp_path / FILE_NAME).exists()
    (tmp_path / "units").mkdir()
    for pack in packs[:2]:  # the third was interrupted
        pack.run(tmp_path, CPU, lambda _: None)
    write_games(config, experiment, tmp_path)
    (tmp_path / "results.json").write_bytes((finished / "results.json").read_bytes())
    games = load_run(tmp_path).entries(FILE_NAME, Game, SCHEMA_VERSION)
    assert {(one.noise, one.sets, one.trials) for one in games} == {(1.0, 2, 80)}
    assert [one.game for one in games][:3] == ["which of 2 rows", "which of 10 rows", f"whole row of {ROWS}"]
    coin = games[0]
    assert (coin.prior, coin.bound) == (0.5, pytest.approx(NormalDist().cdf(1.0)))
    assert coin.low <= coin.won <= coin.high and coin.nearer_bound <= coin.bound and not coin.exceeds_bound
    defense = DPSGD(noise_multiplier=1.0)
    assert coin.release_epsilon == pytest.approx(defense.release_epsilon())
    assert coin.epsilon_rdp == pytest.approx(defense.epsilon(16 / 96, 6))  # one epoch of 96 rows
    assert coin.epsilon_prv < coin.epsilon_rdp
    section = gap_section(games)
    assert section.id == "bound" and gap_section([]) is None
    page = gap_page(games)
    assert "what the guarantee allows: 84.1%" in page and f"what the best attack does: {100 * coin.won:.1f}%" in page


def test_a_bound_that_is_exceeded_is_reported(experiment) -> None:
    one = {"game": "which of 2 rows", "noise": 8.0, "max_norm": 1.0, "prior": 0.5, "reach": 1.0, "won": 90}
    granted = {"delta": 1e-5, "release_epsilon": 0.4, "epsilon_rdp": 0.1, "epsilon_prv": 0.02}
    (game,) = module.summarize_games([one, one], 100, lambda noise, norm: granted)
    assert game.exceeds_bound and game.won == 0.9 and "more often than the bound explains" in gap_page([game])
    (game,) = module.summarize_games([one | {"won": 52}], 100, lambda noise, norm: granted)
    assert not game.exceeds_bound and "more often than the bound explains" not in gap_page([game])


def test_games_need_dp_sgd_on_gradients(small) -> None:
    with pytest.raises(UsageError, match=r"games\.sets"):
        small(games__sets=1, defenses=["sign"])
    with pytest.raises(UsageError, match=r"games\.sets"):
        small(games__sets=1, protocol__name="fedavg")


def test_the_played_sets_are_written_as_json(experiment, small, tmp_path) -> None:
    (tmp_path / "units").mkdir()
    config = small(games__sets=1, games__trials=5)
    first, again = (tmp_path / name for name in ("a", "b"))
    for folder in (first, again):
        (folder / "units").mkdir(parents=True)
        game_packs(config, experiment)[0].run(folder, CPU, lambda _: None)
    read = [json.loads((folder / "units" / "game-000.json").read_text()) for folder in (first, again)]
    assert read[0] == read[1] and all(0 <= one["won"] <= 5 for one in read[0])
