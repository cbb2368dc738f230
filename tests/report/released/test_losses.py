"""Training curves."""

from lightleak.report.released.entries import Entry
from lightleak.report.released.losses import loss_sections
from lightleak.report.released.topics import Topic


def entry(seed: int = 0, **losses: list[float | None]) -> Entry:
    return Entry("run", "plgmi", "plgmi", seed=seed, losses={name: tuple(values) for name, values in losses.items()})


FULL = {
    "iteration": [0, 10, 20],
    "generator": [1.0, -1.0, -2.0],
    "discriminator": [-5.0, 0.5, 0.1],
    "inversion": [9.0, None, 2.0],
    "conditioning": [3.0, 0.1, 0.01],
}


def test_four_panels_two_of_them_logarithmic() -> None:
    (section,) = loss_sections([Topic("a · search", "a", False, (entry(7, **FULL),))])
    assert (section.title, section.seed) == ("a", "7")
    assert [panel.title for panel in section.panels] == [
        "Generator loss", "Discriminator loss", "Inversion loss", "Conditioning loss",
    ]  # fmt: skip
    logarithmic = ["logarithmic" in panel.note for panel in section.panels]
    assert logarithmic == [False, True, False, True]
    assert ["linear around 0" in panel.note for panel in section.panels] == [False, True, False, False]
    assert "Inversion loss of a by iteration" in section.panels[2].drawing


def test_one_training_is_drawn_once_and_short_curves_are_not() -> None:
    first, search = (
        Topic("a · x", "a", False, (entry(1), entry(2, **FULL))),
        Topic("a · y", "a", False, (entry(3, **FULL),)),
    )
    other = Topic("b", "b", True, (entry(4, generator=[1.0, 2.0], inversion=[1.0, None], conditioning=[]),))
    found = loss_sections([first, search, other, Topic("c", "c", True, (entry(),))])
    assert [(section.title, section.seed, len(section.panels)) for section in found] == [("a", "2", 4), ("b", "4", 1)]


def test_without_iterations_steps_are_counted() -> None:
    (section,) = loss_sections([Topic("a", "a", False, (entry(generator=[1.0, 2.0, 3.0, 4.0]),))])
    assert ">3<" in section.panels[0].drawing
