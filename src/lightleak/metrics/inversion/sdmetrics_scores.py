"""SDMetrics' quality report of generated rows (extra ``scores``)."""

import warnings

import pandas as pd

from lightleak.core.optional import import_optional
from lightleak.data.schema import TableSchema

PROPERTIES = {"Column Shapes": "sdmetrics_column_shapes", "Column Pair Trends": "sdmetrics_column_pair_trends"}


def require_sdmetrics() -> None:
    """Check that sdmetrics is installed.

    Raises:
        UnsupportedError: it is not.
    """
    import_optional("sdmetrics", "samples.sdmetrics needs SDMetrics", "scores")


def sdmetrics_scores(real: pd.DataFrame, synthetic: pd.DataFrame, schema: TableSchema) -> dict[str, float]:
    """Return SDMetrics' single-table quality score and its two properties, each from 0 to 1 (the same distribution).

    Args:
        real: private training rows; columns that the schema lacks are ignored.
        synthetic: generated rows.
        schema: feature columns.

    Raises:
        UnsupportedError: sdmetrics is not installed.
    """
    require_sdmetrics()
    from sdmetrics.reports import QualityReport

    names = list(schema.names)
    kinds = {
        column.name: {"sdtype": "numerical" if column.is_numerical else "categorical"} for column in schema.columns
    }
    metadata = {"tables": {"rows": {"columns": kinds}}, "relationships": []}
    report = QualityReport()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant columns, and p-values that nobody reads
        report.generate({"rows": real[names]}, {"rows": synthetic[names]}, metadata, verbose=False)
    found = report.get_properties().set_index("Property")["Score"]
    parts = {key: float(found[name]) for name, key in PROPERTIES.items()}
    return {"sdmetrics_quality": float(report.get_score()), **parts}
