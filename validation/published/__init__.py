"""Published measurements, and one converter per source from a record to what rlsim prices."""
