"""rlsim: simulate one GRPO training step of a large language model, cluster and all."""

__version__ = "0.1.0"
