"""Microbenchmarks in real torch and torch.distributed: CPUs with gloo, GPUs with NCCL, the same code.

`python -m rlsim calibrate run` starts them; every module measures one thing and yields one row per repetition.
"""
