"""Up to how many rows the shared weights of TabM test a row, which its members read in as many ways.

    python benchmarks/tabm_limit.py

Needs `pip install tabm`. TabM (Gorishniy et al. 2025, arXiv 2410.24210) as its package makes it, without dropout:
k = 32 members share the weights of three layers of 512 units, and every row enters such a layer k times, scaled by each
member's factors. The gradient of the weights is a sum of n k products, so their row space tests a row where n k is
below the layer's inputs. Printed are, per layer, the largest distance of a batch's rows from that space and the least
distance of other rows of the table; of a row's k vectors the farthest counts. German Credit, initial weights, one batch
per line.
"""

import argparse

import torch
from exact import setting
from tabm import TabM
from torch import Tensor, nn

from lightleak.core.seeds import derive_seed, generator

SEED, OTHERS = 62_000, 400
REACHED = 1e-6
"""Part of the first singular value below which those of float32 gradients are rounding."""


def inputs_of(model: nn.Module, numbers: Tensor, codes: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Logits ``[n, classes]``, the members' mean, and what each layer's shared weights see ``[n, k, in]``."""
    seen: list[Tensor] = []
    layers = [block[0] for block in model.backbone.blocks]
    handles = [layer.register_forward_pre_hook(lambda own, x: seen.append((x[0] * own.r).detach())) for layer in layers]
    logits = model(numbers, codes).mean(1)
    for handle in handles:
        handle.remove()
    return logits, seen


def distances(seen: Tensor, space: Tensor) -> Tensor:
    """Largest distance of a row's k vectors from a space ``[r, in]``, as part of their norm ``[n]``."""
    left = seen.double() - seen.double() @ space.T @ space
    return (left.norm(dim=-1) / seen.double().norm(dim=-1)).amax(-1)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 2, 4, 8, 12, 15, 16])
    options = parser.parse_args()
    torch.set_num_threads(1)
    _, people = setting("german", (100, 100))
    encoder = people.encoder
    print("| rows | layer: inputs, rank (n k) | true rows, at most | other rows, at least |\n|" + 4 * " --- |")
    for n in options.rows:
        torch.manual_seed(derive_seed(SEED, "network", n))
        widths = [column.width for column in encoder.schema.categorical]
        model = TabM.make(
            n_num_features=len(encoder.schema.numerical), cat_cardinalities=widths, d_out=2, n_blocks=3, dropout=0.0
        )
        order = torch.randperm(len(people.inputs), generator=generator(SEED, "rows", n))[: n + OTHERS]
        codes, _ = encoder.project(people.inputs[order])
        numbers = people.inputs[order][:, encoder.numerical_positions].float()
        logits, _ = inputs_of(model, numbers[:n], codes[:n])
        nn.functional.cross_entropy(logits, people.labels[order[:n]]).backward()
        with torch.no_grad():
            _, seen = inputs_of(model, numbers, codes)
        for index, (block, layer) in enumerate(zip(model.backbone.blocks, seen, strict=True)):
            values, space = torch.linalg.svd(block[0].weight.grad.double(), full_matrices=False)[1:]
            rank = int((values > REACHED * values[0]).sum())
            found = distances(layer, space[:rank])
            facts = f"{index + 1}: {layer.shape[-1]}, {rank} ({n * layer.shape[1]})"
            print(f"| {n} | {facts} | {found[:n].max():.0e} | {found[n:].min():.0e} |", flush=True)


if __name__ == "__main__":
    main()
