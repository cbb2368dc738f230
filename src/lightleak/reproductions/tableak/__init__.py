"""TabLeak (Vero et al. 2023): what stands behind its tables and figures."""
