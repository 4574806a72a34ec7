"""Counterfactuals: what each cost of a step is worth, found by simulating the step without it."""
