"""The FedAvg paper's tables and figures (Dimitrov et al. 2022): presets, clients, jobs and tables."""
