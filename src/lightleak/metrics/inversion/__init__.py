"""How good and how private reconstructed class rows are: accuracy, statistics, nearest rows."""
