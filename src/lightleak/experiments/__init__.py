"""From a config to results: campaigns of attacks, runs, monitoring during training, reproductions."""
