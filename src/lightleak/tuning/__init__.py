"""Studies: an experiment whose YAML names search spaces in place of values, run as many trials by Optuna."""
