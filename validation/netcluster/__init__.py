"""A cluster on one machine: hosts in network namespaces of their own, each behind a NIC of a chosen bandwidth.

    python -m validation.netcluster --hosts 5 --nic "50 MB/s"

`cluster` builds and removes it (iproute2, root), `launch` runs one process per host, `worker` is that process: it
carries real weight syncs out over torch.distributed and times them. `predict` says what rlsim's formulas expect of
them; `grid` measures what `validation/measurements/netcluster/` holds, `results` compares.
"""
