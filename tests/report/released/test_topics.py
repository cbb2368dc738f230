"""Entries beside the attacks they are about."""

from lightleak.report.released.comparison import compare
from lightleak.report.released.entries import Entry
from lightleak.report.released.result import parse_result
from lightleak.report.released.topics import topics


def test_entries_find_their_attack_and_the_main_one_comes_first() -> None:
    rows = [
        {"attack": attack, "latent_search": search, "setting": setting, "dataset": "t", "attack_accuracy": 0.5}
        for attack, search, setting in (
            ("public_random", "random", "2"), ("plgmi", "random", "2"), ("plgmi", "tpe", "2"), ("plgmi", "random", "3"),
        )
    ]  # fmt: skip
    scenarios = compare([parse_result(row, "run", "row") for row in rows])
    main = next(one for one in scenarios[0].groups if one.search == "tpe")

    def entry(attack: str, search: str | None, setting: str | None, seed: int = 0) -> Entry:
        return Entry("run", attack, attack, "t", setting, seed, search)

    entries = [
        entry("public_random", "random", "2"), entry("plgmi", "random", "2"), entry("plgmi", "random", "3"),
        entry("plgmi", "tpe", "2"), entry("plgmi", "tpe", "2", 1), entry("plgmi", None, "2"),
        entry("unfinished", "gradient", "2"),
    ]  # fmt: skip
    found = topics(entries, scenarios, main)
    assert [(one.title, one.is_baseline, len(one.entries)) for one in found] == [
        ("PLG-MI · Bayesian search (TPE) · setting 2", False, 3),  # that without a search is about every search
        ("PLG-MI · random\u00a0z · setting 2", False, 1),
        ("PLG-MI · setting 3", False, 1),
        ("unfinished · gradient search", False, 1),
        ("Public rows at random · setting 2", True, 1),
    ]
    assert found[0].fit_title == found[1].fit_title == "PLG-MI · setting 2"
    assert topics([], scenarios, main) == ()


def test_entries_of_equal_attacks_in_two_runs_stay_apart() -> None:
    row = {"attack": "plgmi", "seed": 0, "evaluation_index": 0, "attack_accuracy": 0.5}
    scenarios = compare([parse_result(row, name, "row") for name in ("a", "b")])
    found = topics([Entry("b", "plgmi", "plgmi"), Entry("a", "plgmi", "plgmi")], scenarios, None)
    assert {one.title: one.entries[0].run for one in found} == {"PLG-MI · run a": "a", "PLG-MI · run b": "b"}
