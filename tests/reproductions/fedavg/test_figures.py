"""The picture grids, on four digits with attacks of three steps."""

import base64
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.fedavg.simulate.attack import FedAvgInversion
from lightleak.core.errors import UsageError
from lightleak.reproductions.fedavg import figures
from lightleak.reproductions.fedavg.clients import ImageClients
from lightleak.reproductions.fedavg.figures import (
    EpochInversion,
    PictureGrid,
    epochs_of,
    kept_pictures,
    order_of,
    pictures_file,
    to_bytes,
    write_figure,
)
from lightleak.reproductions.fedavg.setting import ClientSetting, FedAvgPreset
from lightleak.reproductions.paper.values import load_paper_table
from lightleak.reproductions.reproduction import Outcome, run_stages
from lightleak.reproductions.settings import Selection


def run(name: str, folder: Path, options: dict[str, Any] | None = None, **chosen: Any) -> Outcome:
    """A figure of clients with two local epochs in batches of two."""
    table = load_paper_table(name)
    drawn = tuple(replace(cell, local_epochs=2, local_batch_size=2) for cell in table.drawn)
    small = replace(table, drawn=drawn, options=table.options | (options or {}))
    return run_stages(PictureGrid(small, Selection(**chosen)), folder, quiet=True)


def lines(page: str) -> list[list[np.ndarray]]:
    """The pictures of a page by line, ``[h, w]`` or ``[h, w, 3]`` each."""
    found = [re.findall(r"data:image/png;base64,([^\"]+)", line) for line in page.split("<tr>")]
    return [[np.asarray(Image.open(io.BytesIO(base64.b64decode(one)))) for one in line] for line in found if line]


@pytest.fixture(autouse=True)
def short(study: FedAvgPreset) -> None:
    """Attacks of three steps on four images."""


def test_methods_below_the_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, study: FedAvgPreset) -> None:
    compared, rows, notes = run("fedavg-fig4", tmp_path)
    assert [one.cell.attack for one in compared] == list(figures.TITLES) and len(rows) == 5
    assert [one.ours.mean for one in compared] == [row["psnr"] for row in rows]
    page = (tmp_path / "figure.html").read_text()
    pictures = lines(page)
    assert [len(line) for line in pictures] == [4] * 6 and "stand-in" in page
    images = ImageClients(study, 0).dataset.train.take(ImageClients(study, 0).positions(0)).pixels
    for shown, image in zip(pictures[0], images, strict=True):
        assert np.array_equal(shown[::8, ::8], image.squeeze(0).numpy())  # each pixel is repeated eight times
    for name, row in zip(figures.TITLES.values(), rows, strict=True):
        assert f"{name}, mean PSNR {row['psnr']:.1f} dB" in page
    assert any("One client" in note for note in notes)
    monkeypatch.setattr(figures, "attack_with_pictures", lambda *_: pytest.fail("attacked again"))
    assert run("fedavg-fig4", tmp_path)[1] == rows


def test_epochs_and_their_mean(tmp_path: Path) -> None:
    compared, rows, _ = run("fedavg-fig9", tmp_path)
    assert [one.cell.attack for one in compared] == ["fedavg_prior"]
    assert rows[0]["options"]["labels"] == "interpolated" and rows[0]["setting"].endswith("by-epoch")
    page = (tmp_path / "figure.html").read_text()
    captions = re.findall(r"<h3>([^<]+)</h3>", page)
    assert [caption.split(",")[0] for caption in captions] == [
        "the client&#39;s images",
        "epoch 1",
        "epoch 2",
        "mean over the epochs",
    ]
    usual = run("fedavg-fig5", tmp_path / "methods", attacks=("fedavg_prior",))
    assert rows[0]["psnr"] == pytest.approx(usual[1][0]["psnr"], abs=1e-4)


def test_some_figures_show_a_few_images(tmp_path: Path) -> None:
    for number in (2, 3):  # as printed; the tiny client has no more
        assert load_paper_table(f"fedavg-fig{number}").options["shown"] == 4
    run("fedavg-fig2", tmp_path, {"shown": 3}, attacks=("fedavg_fedsgd",))
    assert [len(line) for line in lines((tmp_path / "figure.html").read_text())] == [3, 3]


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fedavg-fig4 shows femnist, got --dataset cifar100"):
        run("fedavg-fig4", tmp_path, dataset="cifar100")
    with pytest.raises(UsageError, match="nothing of fedavg-fig4 is left to run with attacks tableak"):
        run("fedavg-fig4", tmp_path, attacks=("tableak",))
    assert not list(tmp_path.iterdir())


def test_a_page_has_lines_of_ten_and_colors(tmp_path: Path) -> None:
    pixels = torch.randint(0, 256, (12, 3, 64, 64), dtype=torch.uint8)
    file = pictures_file(tmp_path, "one")
    file.parent.mkdir()
    file.write_text(json.dumps([kept_pictures("c & d", pixels / 255)]))
    write_figure(tmp_path, "a < b", ["a note"], ["one"], None)
    page = (tmp_path / "figure.html").read_text()
    shown = lines(page)
    assert [len(line) for line in shown] == [10, 2]
    assert np.array_equal(shown[1][1], pixels[11].permute(1, 2, 0).numpy())
    assert "a &lt; b" in page and "c &amp; d" in page and "a note" in page


def test_images_are_put_in_the_order_of_the_true_ones() -> None:
    true = torch.rand(5, 1, 3, 3)
    shuffled = torch.tensor([3, 1, 4, 0, 2])
    assert torch.equal(true[shuffled][order_of(true, true[shuffled])], true)
    assert to_bytes(torch.tensor([2.0, 1 / 255])).tolist() == [255, 1]


def test_mean_of_the_epochs_is_what_the_attack_returns(clients: ImageClients) -> None:
    update, _ = clients.observe(ClientSetting(3, 2), 0)
    attack = ATTACKS.get("fedavg_prior")(**clients.preset.attack_options("fedavg_prior", 3, 2))
    assert isinstance(attack, FedAvgInversion)
    usual = attack.run(update, seed=1)
    apart = EpochInversion(attack.name, attack.citation, attack.config).run(update, seed=1)
    assert apart.encoded.shape == (3 * 4, 64)
    epochs = epochs_of(attack.codec(update, torch.device("cpu")), apart, 4)
    assert epochs.shape == (3, 4, 64) and not torch.allclose(epochs[0], epochs[1])
    assert torch.allclose(epochs.mean(0), usual.encoded, atol=1e-6)
    assert torch.equal(apart.labels[:4], usual.labels)
