from hypothesis import example, given
from hypothesis import strategies as st

from lightleak.report.plot.labels import BEYOND, MARK, NARROW, WIDE, label_box, place_labels

MARKS = st.lists(
    st.tuples(st.floats(0.2, 0.8), st.floats(150, 230), st.sampled_from(["0.1", "0.001", "no defense", "2", ""])),
    max_size=20,
)
HEIGHT = 400.0


def overlap(first, second) -> bool:
    return first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]


CROWDED = [(0.35, 216.0, "no defense"), (0.53, 219.0, "0.1"), (0.32, 229.0, "0.001"), (0.32, 198.0, "0.001")]
"""A label that fits a desk alone stands where a later one, which fits a phone, would go."""


@given(MARKS)
@example(CROWDED)
def test_no_label_covers_a_mark_or_another_label_at_any_width_it_is_shown_at(marks) -> None:
    places = place_labels(marks, HEIGHT)
    assert len(places) == len(marks)
    for widths, on_phone in ((NARROW, True), (WIDE, False)):
        shown = [
            (mark, place)
            for mark, place in zip(marks, places, strict=True)
            if place is not None and not (on_phone and place.wide_only)
        ]
        for width in widths:
            boxes = [label_box(mark, place, width) for mark, place in shown]
            for i, box in enumerate(boxes):
                assert not any(overlap(box, other) for other in boxes[i + 1 :])
                assert box[0] >= -BEYOND and box[2] <= width + BEYOND and box[3] <= HEIGHT
                for x, y, _ in marks:
                    around = (x * width - MARK, y - MARK, x * width + MARK, y + MARK)
                    assert not overlap(box, around)


@given(MARKS)
def test_an_empty_label_has_no_place(marks) -> None:
    places = place_labels(marks, HEIGHT)
    assert all(place is None for (_, _, label), place in zip(marks, places, strict=True) if not label)


def test_lonely_labels_all_find_a_place_and_a_crowd_does_not() -> None:
    apart = [(0.2 * i + 0.1, 60.0 * i + 50, "0.01") for i in range(5)]
    assert all(place is not None and not place.wide_only for place in place_labels(apart, HEIGHT))
    crowd = place_labels([(0.5, 200.0, "0.001")] * 30, HEIGHT)
    assert 0 < sum(place is not None for place in crowd) < 10


def test_the_first_marks_come_first() -> None:
    crowd = [(0.5, 200.0, "0.001")] * 30
    places = place_labels(crowd, HEIGHT)
    assert places[0] is not None and places[-1] is None


def test_what_fits_a_desk_alone_is_marked_so() -> None:
    (first, second) = place_labels([(0.45, 200.0, "no defense at all"), (0.6, 200.0, "a long name")], HEIGHT)
    assert not first.wide_only
    row = [(0.1 * i + 0.05, 200.0, "0.0001") for i in range(10)]
    assert any(place is not None and place.wide_only for place in place_labels(row, HEIGHT))
    assert second is not None
