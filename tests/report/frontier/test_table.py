from lightleak.report.frontier.comparison import compare
from lightleak.report.frontier.run_folder import load_frontier_run
from lightleak.report.frontier.table import table_rows


def rows_of(folder):
    (frontier,) = compare(load_frontier_run(folder).results)
    return table_rows(frontier)


def test_a_line_for_every_point_in_order(make_frontier) -> None:
    rows = rows_of(make_frontier(curves=("none", "gaussian_noise", "dp_sgd", "sign")))
    assert [(row.title, row.strength, row.epsilon) for row in rows] == [
        ("no defence", "", "–"),
        ("Gaussian noise", "scale 0.001", "–"),
        ("Gaussian noise", "scale 0.01", "–"),
        ("Gaussian noise", "scale 0.1", "–"),
        ("DP-SGD", "noise multiplier 0.5", "9.83"),
        ("DP-SGD", "noise multiplier 1", "2.94"),
        ("DP-SGD", "noise multiplier 2", "1.02"),
        ("Sign", "", "–"),
    ]
    assert rows[0].cost is None and all(row.cost is not None for row in rows[1:])


def test_verdicts_name_their_rivals(make_frontier) -> None:
    changed = {"none": (0.79, 0.84), "sign": (0.6, 0.84), "dp_sgd": (0.7, 0.8)}
    rows = {row.title: row for row in rows_of(make_frontier(curves=tuple(changed), changed=changed))}
    assert rows["DP-SGD"].comparison == "beaten by Sign" and not rows["DP-SGD"].is_best
    assert rows["Sign"].is_best


def test_points_without_a_training_or_an_attack_are_listed_as_such(make_frontier) -> None:
    assert {row.comparison for row in rows_of(make_frontier(clients=0))} == {"not measured yet"}
