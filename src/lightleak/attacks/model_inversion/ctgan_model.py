"""A fitted ``ctgan.CTGAN`` as the start of an attack, and an attack's generator as a ``ctgan.CTGAN``.

ctgan keeps a fitted model in private attributes, so this module is written for ctgan 0.12.
"""

from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lightleak.attacks.model_inversion.mode_normalizer import Modes
from lightleak.attacks.model_inversion.table_transform import ModeTransform
from lightleak.attacks.model_inversion.tabular_generator import LABEL, TabularGenerator
from lightleak.core.errors import DataError, UsageError
from lightleak.data.schema import Column, ColumnKind, TableSchema

UNSEEN = -10.0
"""Logit of a category that the CTGAN was not fitted on: drawn about once in 20,000 times, and still trainable."""

_LEAST_SHARE = 1e-9  # ctgan's sampler confuses categories where one has a frequency of 0


def load_ctgan(path: str) -> Any:
    """Read a model that ``ctgan.CTGAN.save`` has written. It is a pickle: reading one runs the code in it.

    Raises:
        UsageError: no such file, or the file holds something else.
    """
    from ctgan import CTGAN

    try:
        model = CTGAN.load(path)
    except Exception as error:  # whatever unpickling raises
        raise UsageError(f"start_from must be a file written by ctgan.CTGAN.save; {path}: {error}") from error
    return require_fitted(model)


def require_fitted(model: Any) -> Any:
    """Return ``model`` if it is a fitted CTGAN.

    Raises:
        UsageError: it is not.
    """
    from ctgan import CTGAN

    if not isinstance(model, CTGAN) or model._generator is None:
        raise UsageError(f"start_from must be a fitted ctgan.CTGAN or a file that holds one, got {model!r}")
    return model


def transform_of(model: Any, public: pd.DataFrame, schema: TableSchema) -> ModeTransform:
    """Return the transform with the modes that a CTGAN was fitted with, and the bounds of ``public``.

    Raises:
        DataError: the CTGAN lacks a column of the schema or treats it as another kind, or ``public`` does not fit.
    """
    frame = schema.validate(public, require_label=False)
    modes = {}
    for column in schema.columns:
        info = _info(model, column)
        if column.is_numerical:
            mixture, kept = info.transform._bgm_transformer, info.transform.valid_component_indicator
            deviations = np.sqrt(mixture.covariances_[kept, 0, 0])
            modes[column.name] = Modes(mixture.means_[kept, 0], deviations, np.log(mixture.weights_[kept] / deviations))
    numbers = frame[[column.name for column in schema.numerical]].to_numpy("float64").reshape(len(frame), -1)
    return ModeTransform(schema, modes, torch.from_numpy(numbers.min(0)), torch.from_numpy(numbers.max(0)))


@torch.no_grad()
def start_from(player: TabularGenerator, model: Any, schema: TableSchema) -> None:
    """Copy a CTGAN's weights into a generator of the same widths.

    If the CTGAN has the label among its discrete columns, its conditions on it are kept. Otherwise the generator starts
    as the CTGAN under its mean condition, the same for every class. Categories that it has not seen start at `UNSEEN`.

    Args:
        player: generator in the space of `transform_of`.
        model: fitted CTGAN.
        schema: table schema; classes are the categories of its label.
    """
    found, conditions = model._generator, _conditions(model)
    n_conditions = model._data_sampler.dim_cond_vec()
    label = next((name for name in (schema.label.name, LABEL) if name in conditions), None)
    state = {name: value.clone() for name, value in found.state_dict().items()}
    for name, weight in found.state_dict().items():
        if weight.ndim != 2:
            continue
        own, by_condition = weight.split([weight.shape[1] - n_conditions, n_conditions], 1)
        by_class = weight.new_zeros(len(weight), player.n_classes)
        if label:
            known = [(i, conditions[label][c]) for i, c in enumerate(schema.label.categories) if c in conditions[label]]
            for index, at in known:
                by_class[:, index] = by_condition[:, at]
        else:
            state[name.removesuffix("weight") + "bias"] += by_condition @ _mean_condition(model).to(weight)
        state[name] = torch.cat([own, by_class], 1)
    last = f"seq.{len(found.seq) - 1}."
    rows = torch.tensor(_output_rows(player, model, schema, label))
    unseen = (rows < 0) & (torch.arange(len(rows)) < len(rows) - player.n_classes)
    state[last + "weight"] = torch.where(rows.unsqueeze(1) >= 0, state[last + "weight"][rows.clamp_min(0)], 0.0)
    state[last + "bias"] = torch.where(rows >= 0, state[last + "bias"][rows.clamp_min(0)], 0.0) + UNSEEN * unseen
    player.network.load_state_dict(state)


def as_ctgan(player: TabularGenerator, transform: ModeTransform, share: Tensor) -> Any:
    """Return a ``ctgan.CTGAN`` that samples from a trained generator: the label first, then the schema's columns.

    Its ``sample(n, label, value)`` conditions on the label; no other column can be conditioned on. Unlike LightLeak, it
    does not bound numbers by those of the public rows.

    Args:
        player: trained generator.
        transform: its space.
        share: ``[C]`` how often each class is drawn.
    """
    from ctgan import CTGAN
    from ctgan.data_sampler import DataSampler
    from ctgan.data_transformer import DataTransformer
    from ctgan.synthesizers.ctgan import Generator, Residual

    schema = transform.schema
    hidden = tuple(layer.fc.out_features for layer in player.network.modules() if isinstance(layer, Residual))
    model = CTGAN(embedding_dim=player.latent_dim, generator_dim=hidden, enable_gpu=False)
    transformer = DataTransformer()
    discrete = [schema.label.name, *(column.name for column in schema.categorical)]
    transformer.fit(_example_rows(transform), discrete)
    for at, info in enumerate(transformer._column_transform_info_list):
        if info.column_type == "continuous":
            transformer._column_transform_info_list[at] = _with_modes(info, transform.modes[info.column_name])
    transformer.output_info_list = [info.output_info for info in transformer._column_transform_info_list]
    transformer.output_dimensions = sum(info.output_dimensions for info in transformer._column_transform_info_list)
    model._transformer = transformer
    frequencies = share.double().clamp_min(_LEAST_SHARE).unsqueeze(0).cpu().numpy()
    model._data_sampler = DataSampler(frequencies, transformer.output_info_list[:1], log_frequency=False)
    state = {name: value.detach().cpu().clone() for name, value in player.network.state_dict().items()}
    last = f"seq.{len(hidden)}."
    for name in (last + "weight", last + "bias"):
        state[name] = state[name].roll(player.n_classes, 0)  # the label block comes first
    model._generator = Generator(player.latent_dim + player.n_classes, hidden, player.segments.width)
    model._generator.load_state_dict(state)
    model._generator.eval()
    return model


def _info(model: Any, column: Column) -> Any:
    infos = {info.column_name: info for info in model._transformer._column_transform_info_list}
    if column.name not in infos:
        raise DataError(f"{column}: the CTGAN of start_from was not fitted on it; its columns are {list(infos)}")
    kind = "continuous" if column.is_numerical else "discrete"
    if infos[column.name].column_type != kind:
        raise DataError(f"{column}: the CTGAN of start_from must treat it as {kind}")
    return infos[column.name]


def _conditions(model: Any) -> dict[str, dict[str, int]]:
    """Position of each category of each discrete column in the condition vector."""
    if not model._data_sampler.dim_cond_vec():
        return {}
    positions: dict[str, dict[str, int]] = {}
    at = 0
    for info in model._transformer._column_transform_info_list:
        if info.column_type == "discrete" and at < model._data_sampler.dim_cond_vec():
            positions[info.column_name] = {str(name): at + i for i, name in enumerate(info.transform.dummies)}
            at += info.output_dimensions
    return positions


def _mean_condition(model: Any) -> Tensor:
    """The mean of the condition vectors that the CTGAN samples with."""
    sampler = model._data_sampler
    pairs = zip(sampler._discrete_column_category_prob, sampler._discrete_column_n_category, strict=True)
    shares = np.concatenate([row[:width] for row, width in pairs]) if sampler._n_discrete_columns else np.zeros(0)
    return torch.from_numpy(shares / max(shares.sum(), 1e-300))


def _output_rows(player: TabularGenerator, model: Any, schema: TableSchema, label: str | None) -> list[int]:
    """For each output of the generator the CTGAN's; -1 where it has none."""
    starts, at = {}, 0
    for info in model._transformer._column_transform_info_list:
        starts[info.column_name] = (at, info)
        at += info.output_dimensions

    def positions(name: str, categories: tuple[str, ...]) -> list[int]:
        start, info = starts[name]
        if info.column_type == "continuous":
            return list(range(start, start + info.output_dimensions))
        known = {str(category): start + i for i, category in enumerate(info.transform.dummies)}
        return [known.get(category, -1) for category in categories]

    rows = [row for column in schema.columns for row in positions(column.name, column.categories)]
    return rows + (positions(label, schema.label.categories) if label else [-1] * player.n_classes)


def _example_rows(transform: ModeTransform) -> pd.DataFrame:
    """Rows in which every category of every column occurs, in the schema's order, the label first."""
    schema = transform.schema
    columns = (schema.label, *schema.columns)
    n = max(10, *(len(column.categories) for column in columns))
    bounds = dict(zip(transform.modes, torch.stack([transform.lower, transform.upper], 1).tolist(), strict=True))
    cells: dict[str, Any] = {}
    for column in columns:
        if column.is_numerical:
            low, high = bounds[column.name]
            numbers = np.linspace(low, high, n)
            cells[column.name] = numbers.round().astype("int64") if column.kind is ColumnKind.INTEGER else numbers
        else:
            cells[column.name] = [column.categories[i % len(column.categories)] for i in range(n)]
    return pd.DataFrame(cells)


def _with_modes(info: Any, modes: Modes) -> Any:
    """A column of ctgan's transformer with other modes."""
    from ctgan.data_transformer import SpanInfo

    n, mixture = len(modes.means), info.transform._bgm_transformer
    mixture.means_ = modes.means.reshape(n, 1)
    mixture.covariances_ = (modes.deviations**2).reshape(n, 1, 1)
    weights = np.exp(modes.log_weights) * modes.deviations
    mixture.weights_ = weights / weights.sum()
    info.transform.max_clusters, info.transform.valid_component_indicator = n, np.ones(n, dtype=bool)
    return info._replace(output_info=[SpanInfo(1, "tanh"), SpanInfo(n, "softmax")], output_dimensions=1 + n)
