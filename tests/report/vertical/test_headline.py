"""The words of the headline follow from the numbers."""

from typing import Any

from lightleak.report.vertical.comparison import compare, properties
from lightleak.report.vertical.headline import Headline, headline
from lightleak.report.vertical.result import PropertyResult, Setting


def rows(errors: tuple[float, ...], **changes: Any) -> list[PropertyResult]:
    """One row per error of seeds 0, 1, ...; the truth is .66, and guessing is .16 off."""
    values: dict[str, Any] = {
        "run": "run", "setting": Setting("adult"), "attack": "provfl_b", "variant": "passive", "adversary": "C1",
        "property_name": "sex=Male", "true": 0.66, "prior": 0.5,
    }  # fmt: skip
    values |= changes
    return [
        PropertyResult(seed=seed, estimated=0.66 + error, **values) for seed, error in enumerate(errors)
    ]  # fmt: skip


def opening(found: list[PropertyResult], redact: bool = False) -> Headline:
    measured = tuple(one for one in properties(compare(found)) if one.groups)
    return headline(measured, len(found), redact)


GOOD = (0.01, -0.02, 0.03)


def test_both_adversaries_are_named_with_their_errors() -> None:
    found = opening(rows(GOOD) + rows((0.04, 0.05, 0.06), adversary="C2"))
    assert found.sentence == (
        "From what companies exchange while they train one model together, the company that holds the labels (C1) "
        "could tell what share of the other's records has sex=Male to within 2.0 points on average (95% interval 0.0 "
        "to 4.5); a company without the labels (C2) could tell it to within 5.0 points on average (95% interval 2.5 "
        "to 7.5). The true share is 66.0%; C1 estimated 66.7%."
    )
    assert found.verdict[0] == (
        "C1 came 14.0 points (95% interval 11.5 to 16.5) closer to the truth than guessing the auxiliary share, which "
        "is 16.0 points off."
    )
    assert [tile.value for tile in found.tiles] == ["2.0", "5.0", "16.0"]
    assert found.selection.startswith("Measured with 3 seeds; no defence. C1 used ProVFL-B, which follows the protocol")
    assert "among 2 combinations measured" in found.selection


def test_what_is_no_better_than_guessing_is_said_to_be() -> None:
    found = opening(rows((0.1, -0.15, 0.2)))
    assert "(C1) was not shown to tell what share of the other's records has sex=Male better than by" in found.sentence
    assert "was not measurably better than guessing" in found.verdict[0] and "may be chance" in found.verdict[0]
    worse = opening(rows((0.3, 0.31, 0.32)))
    assert worse.verdict[0] == (
        "C1 came 15.0 points further from the truth than guessing the auxiliary share, which is 16.0 points off."
    )


def test_one_seed_claims_nothing() -> None:
    found = opening(rows((0.01,)))
    assert "(C1) estimated what share of the other's records has sex=Male to within 1.0 points." in found.sentence
    assert "on average" not in found.sentence and "interval" not in found.sentence
    assert "C1 came closer than guessing" in found.verdict[0] and "one seed is too few" in found.verdict[0]
    assert "could tell" not in found.sentence
    assert found.tiles[0].detail == "ProVFL-B, one seed, no interval"


def test_manipulation_is_said_and_what_comes_without_it() -> None:
    found = opening(rows((0.001, -0.002, 0.003), attack="provfl_m", variant="LR+MR") + rows(GOOD))
    assert "(C1), if it manipulates the training, could tell" in found.sentence
    assert "Without manipulating the training, C1 came to within 2.0 points (95% interval 0.0 to 4.5) by ProVFL-B." in (
        found.verdict
    )
    assert "ProVFL-M, LR+MR, which departs from the protocol" in found.selection
    assert not any("Without manipulating" in line for line in opening(rows(GOOD)).verdict)


def test_what_could_not_be_inferred_is_listed() -> None:
    found = opening(
        rows(GOOD)
        + rows((0.16, -0.2, 0.3), property_name="race=White")
        + rows((0.16, -0.2, 0.3), property_name="a=b")
        + rows((0.001,), property_name="single=seed")
    )
    assert found.verdict[-2:] == (
        "Of 4 properties, some attack was measurably closer than guessing on 1.",
        "No attack was shown to do better than guessing on race=White and a=b.",
    )
    assert found.tiles[-1].value == "1 of 4"


def test_without_truth_only_the_estimate_is_told() -> None:
    found = opening(rows((0.01,), true=None, low=0.61, high=0.7))
    assert found.sentence == (
        "The true shares are not part of this run, so how far off the estimates are is unknown. By ProVFL-B, the "
        "company that holds the labels (C1) estimated that 67.0% of the other's records have sex=Male (its own 95% "
        "interval 61.0 to 70.0)."
    )
    assert not found.tiles and not found.verdict


def test_without_results_nothing_is_claimed() -> None:
    assert opening([]).sentence == "No attack has finished yet: this run holds no results."
    assert opening(rows(GOOD, attack="prior")).sentence.startswith("Only guessing has finished")
    assert "the auxiliary share is not known" in opening(rows(GOOD, prior=None)).verdict[0]


def test_redaction_leaves_no_share() -> None:
    open_, closed = opening(rows(GOOD)), opening(rows(GOOD), redact=True)
    for share in ("66.0%", "66.7%", "16.0", "14.0"):
        assert any(share in text for text in (open_.sentence, *open_.verdict))
        assert not any(share in text for text in (closed.sentence, *closed.verdict, *(t.value for t in closed.tiles)))
    assert "to within 2.0 points" in closed.sentence
    assert "66" not in opening(rows(GOOD, true=None), redact=True).sentence
