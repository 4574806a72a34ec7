"""Hosts as Linux network namespaces, joined by a bridge, every NIC shaped to a rate in both directions.

    host0: eth0 ══ port0 ┐
    host1: eth0 ══ port1 ┼ bridge, in a namespace of its own: the switch
    host2: eth0 ══ port2 ┘

`tc tbf` shapes what leaves a device, so a host's egress is shaped at its eth0 and its ingress at the switch's port.
tbf counts Ethernet frames: at an MTU of 1500 a frame of 1514 bytes carries 1448 of a TCP stream (`GOODPUT`). Segments
of many frames, as TSO makes them, are counted with the headers that they stand for, so offloads may stay on.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from rlsim.errors import UserError

MTU = 1500
GOODPUT = (MTU - 20 - 20 - 12) / (MTU + 14)
"""Share of a NIC's bytes that a TCP stream has: less IPv4 20, TCP 20, its time stamps 12, of frames with 14 more."""
BURST = 128 * 1024
"""Bytes that a NIC may send at once after a pause: two segments of TSO; 1% of a message of 13 MB."""
QUEUE = 8 << 20
"""Bytes that may wait at a NIC: more than all windows (`WINDOW`) of a few senders, so that nothing is dropped."""
WINDOW = 1 << 20
"""Bytes of a TCP send buffer: many times what is under way, few enough that the other streams do not wait long."""
PREFIX = "rlsim"
_numbers = itertools.count()


@dataclass(frozen=True)
class Host:
    """namespace: its name; address: of its NIC, eth0, known inside the cluster alone."""

    namespace: str
    address: str


@dataclass(frozen=True)
class Cluster:
    """hosts: in the order of ranks; switch: namespace of the bridge."""

    hosts: tuple[Host, ...]
    switch: str

    def inside(self, host: int, *command: str) -> list[str]:
        """The command, to be run on a host."""
        return ["ip", "netns", "exec", self.hosts[host].namespace, *command]


@contextmanager
def cluster(hosts: int, nic: float) -> Iterator[Cluster]:
    """A cluster that is there within the block, and gone after it, however the block ends.

    hosts  how many, from 2
    nic    bytes/s of each host's NIC, one direction, headers counted; both directions at once
    """
    if hosts < 2:
        raise UserError(f"{hosts} hosts", key="--hosts", fix="2 or more")
    check_rate(nic)
    refuse()
    sweep()
    name = f"{PREFIX}-{os.getpid()}-{next(_numbers)}"
    made = Cluster(tuple(Host(f"{name}-host{i}", f"10.77.0.{i + 1}") for i in range(hosts)), f"{name}-switch")
    try:
        _build(made)
        shape(made, nic)
        yield made
    finally:
        _remove(made.switch, *(host.namespace for host in made.hosts))


def refuse() -> None:
    """`UserError` where no cluster can be built here, with the reason."""
    what = "a cluster of network namespaces"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise UserError(f"{what} needs `{tool}`", fix="install iproute2 (Linux)")
    if os.geteuid() != 0:
        raise UserError(f"{what} needs root", fix="run it as root, for instance with sudo")
    probe = f"{PREFIX}-{os.getpid()}-probe"
    try:
        _run("ip", "netns", "add", probe)
        _run("ip", "-n", probe, "link", "add", "port0", "type", "veth", "peer", "name", "eth0")
        _run("tc", "-n", probe, *_tbf("eth0", 1e6))
    except UserError as error:
        fix = "a machine or container that may make namespaces (CAP_SYS_ADMIN, CAP_NET_ADMIN) with sch_tbf"
        raise UserError(f"{what} cannot be built here: {error.message}", fix=fix) from None
    finally:
        _remove(probe)


def sweep() -> None:
    """Removes what processes left behind that were killed outright."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    for namespace in re.findall(rf"^({PREFIX}-\d+-\S+)", listed, re.MULTILINE):
        if not os.path.exists(f"/proc/{namespace.split('-')[1]}"):
            _remove(namespace)


def shape(built: Cluster, nic: float) -> None:
    """Gives every NIC this rate, in both directions: bytes/s, headers counted."""
    check_rate(nic)
    for number, host in enumerate(built.hosts):
        _run("tc", "-n", host.namespace, *_tbf("eth0", nic))
        _run("tc", "-n", built.switch, *_tbf(f"port{number}", nic))


def check_rate(nic: float) -> None:
    """`UserError` for a NIC that is slower than one burst in a second."""
    if nic < BURST:
        raise UserError(f"a NIC of {nic:.3g} bytes/s", key="--nic", fix=f"{BURST / 1e6:.1f} MB/s or more")


def _tbf(device: str, rate: float) -> list[str]:
    """Arguments of tc; its `bps` are bytes per second."""
    shaping = ["rate", f"{rate:.0f}bps", "burst", str(BURST), "limit", str(QUEUE)]
    return ["qdisc", "replace", "dev", device, "root", "tbf", *shaping]


def _build(made: Cluster) -> None:
    _run("ip", "netns", "add", made.switch)
    _run("ip", "-n", made.switch, "link", "add", "bridge", "type", "bridge")
    _run("ip", "-n", made.switch, "link", "set", "bridge", "up")
    for number, host in enumerate(made.hosts):
        space, port = host.namespace, f"port{number}"
        _run("ip", "netns", "add", space)
        _run("ip", "-n", space, "link", "add", "eth0", "mtu", str(MTU), "type", "veth",
             "peer", "name", port, "mtu", str(MTU), "netns", made.switch)  # fmt: skip
        _run("ip", "-n", made.switch, "link", "set", port, "master", "bridge", "up")
        _run("ip", "-n", space, "addr", "add", f"{host.address}/24", "dev", "eth0")
        _run("ip", "-n", space, "link", "set", "eth0", "up")
        _run("ip", "-n", space, "link", "set", "lo", "up")
        _run(*made.inside(number, "sh", "-c", _SETTINGS))


# Reno: nothing is lost here, and BBR's probing would show in the times. After a pause the window stays what it was.
_SETTINGS = f"""cd /proc/sys/net/ipv4 && echo 0 > tcp_slow_start_after_idle && echo reno > tcp_congestion_control &&
echo 4096 {WINDOW // 4} {WINDOW} > tcp_wmem"""


def _remove(*namespaces: str) -> None:
    """Ends the processes inside, then the namespaces, with all devices in them."""
    for namespace in namespaces:
        inside = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
        for pid in inside.stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        raise UserError(f"`{' '.join(command[:7])}`: {reason}", key="iproute2")
