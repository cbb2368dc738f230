"""Notes on how our runs of the FedAvg paper's tables differ from the paper's."""

from lightleak.reproductions.fedavg.preset import PRESETS, PUBLISHED_STEPS, FedAvgPreset
from lightleak.reproductions.paper.settings import note


def attack_note(preset: FedAvgPreset) -> str:
    """Say where the attack departs from the paper's text."""
    printed = PRESETS[preset.dataset].steps
    changed = "" if preset.steps == printed else f" (App. B.2: {printed})"
    return note("fedavg", "attack", steps=preset.steps, changed=changed, published=PUBLISHED_STEPS)


def stand_in(preset: FedAvgPreset) -> list[str]:
    """Say that the images are not the paper's, where they are not."""
    if not preset.is_stand_in:
        return []
    height, width = preset.shape[1:]
    images = "scikit-learn's digits" if preset.dataset == "digits" else preset.dataset.upper()
    size = {"height": height, "width": width, "classes": preset.n_classes}
    text = note("fedavg", "stand_in", images=images, original=preset.stands_for, **size)
    return [f"{text} {note('fedavg', 'digits')}" if preset.dataset == "digits" else text]


def defense_note(preset: FedAvgPreset, each_image: bool) -> str:
    """Say which gradients the defense acts on."""
    where = note("fedavg", "defense_on_images" if each_image else "defense_on_steps")
    return note("fedavg", "defense", where=where, rounds=preset.rounds, clients=preset.clients_per_round)
