import re

from lightleak.report.intervals import Estimate
from lightleak.report.sections.bound import bound_page


def test_page_draws_bounds_and_what_was_measured():
    page = bound_page({"ProVFL-B": [(0.1, Estimate(0.85, 20, 0.64, 0.95)), (0.2, Estimate(0.97))]})
    labels = re.findall(r"<li><svg.*?</svg>([^<]+)</li>", page)
    assert labels == [
        "bound, 1 record seen",
        "bound, 10 records seen",
        "bound, 100 records seen",
        "measured, ProVFL-B",
    ]
    assert "measured, ProVFL-B: 85.0% (95% interval 64.0 to 95.0)" in page
    # One record at a gap of 0.5: (1 + sqrt(1 - 1 / (1 + 0.5 * 0.1 / (0.5 * 0.4)))) / 2 = 0.7236.
    assert "bound, 1 record seen: 72.4%" in page
    assert not re.search(r"https?://|src=", page)


def test_names_are_escaped():
    assert "<b>" not in bound_page({"<b>": [(0.1, Estimate(0.5))]})
