"""The report of a study in a real browser, on a desk and on a phone."""

from lightleak.report import build_report


def test_a_report_fits_a_desk_and_a_phone(make_study, browser) -> None:
    for width, found in browser.measure(build_report(make_study()), unfold=True).items():
        assert found["client"] == int(width)
        assert found["scroll"] <= found["client"], width
        assert found["outside"] == [], width
        assert (found["scripts"], found["sections"]) == (0, 9)
        assert len(found["drawn"]) == 1 + 1 + 6  # history, importance, slices
        assert all(100 < drawn < int(width) for drawn in found["drawn"])


def test_several_objectives_and_long_names_fit_too(make_study, browser) -> None:
    long = "a_name_without_any_space_" * 8
    key = f"{long}.{long}"

    def rename(rows) -> None:
        for row in rows:
            row |= {"worker": long, "error": long}
            row["parameters"][key] = long

    words = dict.fromkeys(("sampler", "setting", "budget", "validation"), long)
    parameters = [{"key": key, "kind": "choice", "of": [long, "b"], "default": long, "when": long}]
    study = {**words, "parameters": parameters, "importance": {"leakage": {key: 1.0}}}
    report = build_report(make_study(several=True, change=rename, study=study, config={"title": long}))
    for width, found in browser.measure(report, unfold=True).items():
        assert found["scroll"] <= found["client"], width
