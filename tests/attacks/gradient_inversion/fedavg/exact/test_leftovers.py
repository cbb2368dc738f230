"""Rows that no exact test finds, fitted to all layers."""

import torch

from lightleak.attacks.gradient_inversion.fedavg.exact.leftovers import Known, fit_layers, problem_of


def known_of(client, some):
    codes, numbers = client.coordinates
    yes = torch.ones(len(some), dtype=torch.bool)
    return Known(codes[some], numbers[some], client.truth.labels[some], yes, yes)


def test_missing_rows_are_found_beside_the_known_ones_which_stay(make_client, rows_right, generator_of):
    client = make_client(6, 2, 2)
    draws = generator_of(0)
    problem = problem_of(client.observed, client.equations.space, 6, draws)
    known = known_of(client, [0, 1, 2, 3])
    rows, value = fit_layers(problem, known, 6, 300, draws)
    assert torch.equal(rows.codes[:4], known.codes)
    assert torch.equal(rows.numbers[:4], known.numbers)
    assert torch.equal(rows.labels[:4], known.labels)
    true_codes, _ = client.coordinates
    assert sorted(rows.codes.tolist()) == sorted(true_codes.tolist())
    assert value < 1e-2


def test_a_fit_depends_on_its_generator_alone(make_client, generator_of):
    client = make_client(4)
    results = []
    for _ in range(2):
        draws = generator_of(1)
        problem = problem_of(client.observed, client.equations.space, 4, draws)
        results.append(fit_layers(problem, known_of(client, [0, 1]), 4, 20, draws))
    assert torch.equal(results[0][0].numbers, results[1][0].numbers)
    assert results[0][1] == results[1][1]
