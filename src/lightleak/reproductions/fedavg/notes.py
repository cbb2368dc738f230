"""What a reader of a comparison with the FedAvg paper must know of how ours was made."""

from lightleak.reproductions.fedavg.preset import PRESETS, PUBLISHED_STEPS, FedAvgPreset


def attack_note(preset: FedAvgPreset) -> str:
    """Where the attack is not the text's, or not the paper's."""
    printed = PRESETS[preset.dataset].steps
    changed = "" if preset.steps == printed else f" (App. B.2: {printed})"
    return (
        f"Attacks make {preset.steps} steps of Adam{changed}; --as-published makes {PUBLISHED_STEPS}, as the published "
        "code. As there, and unlike in the text, the distance of updates is their squared difference, each layer "
        "counting 1/e of the one before: the printed weights of the regularisers mean something beside it, not beside "
        "a cosine. So, too, the second convolution's kernel is 3 x 3, and networks are initialised as flax does."
    )


def stand_in(preset: FedAvgPreset) -> str:
    """That these are not the paper's images."""
    height, width = preset.shape[1:]
    images = "scikit-learn's digits" if preset.dataset == "digits" else preset.dataset.upper()
    told = (
        f"Ours is a stand-in: {images}, {height} x {width} pixels in {preset.n_classes} classes. The paper's column is "
        f"its own {preset.stands_for}: the two show whether the picture is the same, and nothing is judged. Network "
        "and hyperparameters are FEMNIST's (Table 5, App. B.2). --dataset femnist runs the paper's own from a folder "
        "of LEAF's files."
    )
    if preset.dataset != "digits":
        return told
    return told + (
        " The attack's learning rate and the weight of the epoch prior were searched for on one client that is not "
        "reported; it was dealt from the same images, so about nine of its 50 are those of reported clients, too. "
        "Digits fill their image, FEMNIST's are mostly white: the mean of all digits has 11 dB with one of them, and "
        "few reconstructions pass the threshold of 20 dB."
    )


def defense_note(preset: FedAvgPreset, each_image: bool) -> str:
    """Where the noise acts."""
    where = (
        "the gradient of every image of every local step, as in the published code (for pruning the mean of as many "
        "masks of the mean gradient)"
        if each_image
        else "the mean gradient of every local step; --as-published puts it on that of every image, as the published "
        "code does"
    )
    return (
        f"The defence acts on {where}. Accuracy is that on the test images after {preset.rounds} rounds of "
        f"{preset.clients_per_round} clients each, all of whom defend themselves; n counts trainings."
    )
