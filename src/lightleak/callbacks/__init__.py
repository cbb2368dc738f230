"""Lightning callbacks that record what a client sends while it trains, and change nothing."""
