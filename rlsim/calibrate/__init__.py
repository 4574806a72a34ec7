"""Profiles from measurements and run logs, and how sure they are."""
