"""A miniature GRPO system on CPUs: real engines, a real FSDP2 trainer, real weight sync; then predicted by rlsim."""
