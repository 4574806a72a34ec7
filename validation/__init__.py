"""Predictions against published measurements: not part of the installed package."""
