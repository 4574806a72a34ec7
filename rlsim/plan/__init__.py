"""Planning: what to run, and how sure that is."""
