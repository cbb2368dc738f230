"""Row matching: a batch gradient does not tell the order of its rows, so they are paired before they are compared."""

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor


def match_rows(similarity: Tensor) -> Tensor:
    """Pair the rows of two batches so that their total similarity is largest (Kuhn 1955; TabLeak Sec. 3.1.2).

    Args:
        similarity: ``[..., n, n]``; entry ``[i, j]`` compares reference row ``i`` with candidate row ``j``.

    Returns:
        LongTensor ``[..., n]``: for each reference row the index of its candidate row, a permutation.

    >>> match_rows(torch.tensor([[0.1, 0.9], [0.8, 0.2]]))
    tensor([1, 0])
    """
    flat = similarity.detach().reshape(-1, *similarity.shape[-2:]).cpu().double().numpy()
    pairs = [torch.as_tensor(linear_sum_assignment(one, maximize=True)[1]) for one in flat]
    return torch.stack(pairs).reshape(similarity.shape[:-1]).to(similarity.device)
