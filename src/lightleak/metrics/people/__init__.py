"""How many people an attack proves or recovers over a whole training, and the three risks of WP216 for them."""
