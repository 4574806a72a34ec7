"""Where co-located and disaggregated trade places, over two inputs."""
