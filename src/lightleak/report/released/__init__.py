"""The report of model inversion audits."""
