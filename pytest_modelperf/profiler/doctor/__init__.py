"""How noisy a machine is and whether a model keeps memory, and how that is shown."""
