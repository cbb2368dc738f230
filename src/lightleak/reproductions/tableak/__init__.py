"""TabLeak (Vero et al. 2023): the experiments behind its tables and figures."""
