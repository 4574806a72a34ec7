"""Search for the best way to run a model and workload on a number of GPUs."""
