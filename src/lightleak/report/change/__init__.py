"""What a change of settings, such as a defence, did to what an attack recovers, and what it cost."""
