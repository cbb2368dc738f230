"""What a reader of a comparison with the FedAvg paper must know of how ours was made."""

from lightleak.reproductions.fedavg_study.preset import PRESETS, PUBLISHED_STEPS, FedAvgPreset
from lightleak.reproductions.fedavg_study.study import LONG_STEPS, Study

TABLE_NOTES = {
    "fedavg-table2": (
        "Statistics are means over 3,000 images of Gaussian noise, the same ones for all three methods of a client.",
    ),
    "fedavg-table4": (
        "lambda_inv of every prior is that of the published scripts, where it gives all priors the same weight at the "
        "first step.",
    ),
    "fedavg-table7": (
        "One training per seed; a client attacked in a round is sent that round's weights, drawn for it or not. In "
        "round 1 all clients have one network, that of the training.",
    ),
    "fedavg-table8": (
        "To FedSGD-Epoch and FedSGD, which know no batches, the labels of a batch say nothing: both rows show one run.",
    ),
    "fedavg-table9": (
        "The update tells the number of images and of local steps, not epochs and batch size; every attack assumes the "
        "epochs of the row.",
    ),
    "fedavg-table10": ("n counts aggregates; all clients of one have the same network.",),
    "fedavg-table11": (
        "Ours are the seconds of one attack times 100, the paper's clients; another machine's hours are not judged.",
    ),
}


def notes_of(study: Study) -> list[str]:
    """Notes on a study, the most important first."""
    preset = study.preset
    found = [stand_in(preset)] if preset.is_stand_in else []
    network = "" if study.table.name == "fedavg-table7" else "Each update has an untrained network of its own. "
    found.append(
        f"{network}Ours are {study.updates} updates a cell and seed (the paper: 100), with {preset.rows} images of "
        "each client; n counts them, and the interval is over them."
    )
    if study.attack_settings:
        found += ["All attacks see the same updates and begin with the same split of the labels.", attack_note(preset)]
    if study.table.name == "fedavg-table6":
        found.append(defence_note(study))
    found += TABLE_NOTES.get(study.table.name, ())
    if study.left_out:
        names = list(dict.fromkeys(f"{cell.local_epochs}x{cell.local_batch_size}" for cell in study.left_out))
        found.append(
            f"Not run here: {', '.join(names)} (epochs x batch size), whose clients make {LONG_STEPS} steps; it is run "
            f"on a GPU, or where --settings {','.join(names)} asks for it."
        )
    if other := {str(cell.dataset) for cell in study.table.cells} - {preset.stands_for}:
        found.append(f"Cells of {', '.join(sorted(other))} are run with --dataset, from a folder of its files.")
    return found


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


def defence_note(study: Study) -> str:
    """Where the noise acts."""
    rounds, per_round = study.preset.rounds, study.preset.clients_per_round
    where = (
        "the gradient of every image of every local step, as in the published code (for pruning the mean of as many "
        "masks of the mean gradient)"
        if study.each_image
        else "the mean gradient of every local step; --as-published puts it on that of every image, as the published "
        "code does"
    )
    return (
        f"The defence acts on {where}. Accuracy is that on the test images after {rounds} rounds of {per_round} "
        "clients each, all of whom defend themselves; n counts trainings."
    )
