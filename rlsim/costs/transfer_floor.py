"""The seconds below which no weight synchronisation can go, whatever its software."""

from __future__ import annotations

from rlsim.costs.transfer_case import Receiver, SyncCase
from rlsim.costs.transfer_links import crossing_floor


def floor_seconds(case: SyncCase) -> float:
    """Physical floor of one synchronisation, at datasheet rates (efficiency 1), multicast allowed.

    Disaggregated: max of
      - ingress: distinct bytes that a node needs / all NICs of the node (they may be split over its NICs and
        shared over NVLink once inside). 70B in bf16, TP=8 in one node, 50 GB/s NICs:
        141.1 / (8*50) = 17.6 / 50 = 0.35 s
      - egress: the model leaves the trainer at least once: model / all trainer NICs
      - the cut between the roles: model / (NICs of the smaller role / oversubscription), model / rate of a link
      - the last hop: bytes into one GPU / (its NIC + its NVLink)
    Co-located: bytes that the node, or the GPU, does not hold already, over the same links.
    """
    if case.colocated:
        return max(missing_floor(receiver) for receiver in case.receivers)
    return max(egress_floor(case), cut_floor(case), *(ingress_floor(receiver) for receiver in case.receivers))


def ingress_floor(receiver: Receiver) -> float:
    """Seconds to bring a node what it needs over all its NICs, a GPU its slice over NIC and NVLink."""
    side = receiver.side
    links = side.nic + (side.nvlink if side.rails > 1 else 0.0)
    return max(receiver.recv_node / (side.rails * side.nic), receiver.recv_gpu / links)


def egress_floor(case: SyncCase) -> float:
    """Seconds for one copy of the model to leave through all trainer NICs."""
    side = case.source.side
    return case.model_bytes / (side.gpus * side.nic)


def cut_floor(case: SyncCase) -> float:
    """Seconds for one copy to cross the fabric between the roles, and the link to each pool."""
    sending = case.source.side.gpus * case.source.side.nic
    receiving = sum(r.side.gpus * r.side.nic for r in case.receivers)
    fabric = case.model_bytes * case.oversubscription / min(sending, receiving)
    return max(fabric, crossing_floor(case, case.model_bytes))


def missing_floor(receiver: Receiver) -> float:
    """Co-located: seconds for what the node, and the GPU, does not hold already.

    Where the NVLink domain is larger than a node, the node's share may come over NVLink too.
    """
    side = receiver.side
    into_node = receiver.missing_node if side.nodes > 1 else 0.0
    links = side.nic + (side.nvlink if side.rails > 1 else 0.0)
    node_link = links if side.node > side.host_gpus else side.nic
    return max(into_node / (side.rails * node_link), receiver.missing_gpu / links)
