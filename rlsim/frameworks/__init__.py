"""One module per framework: its configs and logs."""
