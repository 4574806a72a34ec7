"""What happened when: the trainer's clock, the rollout pool's account of the same seconds, the timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field

from rlsim.sim.lost import SyncLoss

PHASES = (
    "rollout",
    "reward",
    "logprob",
    "reference",
    "train",
    "weight_sync",
    "offload",
    "onload",
    "wait_rollout",
    "wait_trainer",
    "other",
)
UPKEEP = ("checkpoint", "evaluation", "restart", "lost")  # of the label other; the rest of it is the controller's
POOL = ("generate", "prefill", "weight_sync", "reprefill", "wait_trainer", "idle")
WAITING = frozenset({"rollout", "reward", "wait_rollout"})  # trainer labels under which the pool waits for nobody
Segment = tuple[str, float, float]


@dataclass(frozen=True)
class PoolCounts:
    """Cumulative figures of the rollout engines at one moment.

    busy, prefill, reprefill   engine-seconds with work; of those, spent on first and on repeated prefill
    batch_seconds              integral of running sequences over time, summed over engines
    swap                       engine-seconds by which swaps with the host lengthened iterations; `swapped` tokens left
    reused, evicted            prompt tokens of later turns whose KV was still kept, or was to be and was not
    occupied                   busy, each engine weighted by its GPUs over those of the mean engine
    lent                       busy GPU-seconds of engines on the trainer's GPUs (not in `occupied`)
    """

    busy: float = 0.0
    prefill: float = 0.0
    reprefill: float = 0.0
    batch_seconds: float = 0.0
    generated: int = 0
    reprefilled: int = 0
    preemptions: int = 0
    swap: float = 0.0
    swapped: int = 0
    reused: int = 0
    evicted: int = 0
    occupied: float = 0.0
    lent: float = 0.0

    def plus(self, other: PoolCounts, sign: int = 1) -> PoolCounts:
        both = zip(astuple(self), astuple(other), strict=True)
        return PoolCounts(*(mine + sign * theirs for mine, theirs in both))


@dataclass
class Step:
    """One step of the trainer: from the end of the last update to the end of its own.

    segments  the trainer group's clock in order: label, track (None: nothing drawn), start, end
    exposed   of a label's seconds, those in which the trainer's GPUs wait for a model on GPUs of its own
    beside    busy GPU-seconds of such models, by role
    upkeep    of the label `other`, seconds by UPKEEP
    begun     when its account begins: after the steps that a crash lost, whose seconds it carries
    evaluated, evaluating   response tokens of evaluations, and their engine-seconds
    lost      what its weight syncs took from generation
    """

    index: int
    start: float
    end: float = 0.0
    phases: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    pool: dict[str, float] = field(default_factory=lambda: dict.fromkeys(POOL, 0.0))
    counts: PoolCounts = field(default_factory=PoolCounts)
    sources: dict[str, float] = field(default_factory=dict)
    flops: float = 0.0
    tail: float | None = None
    version: int = 0
    samples: int = 0
    tokens: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    aborted: int = 0
    wasted: int = 0
    lent: float = 0.0  # seconds that the trainer's GPUs served as engines
    lendings: int = 0
    early: float = 0.0  # seconds of the log-prob pass done beside the rollout
    exposed: dict[str, float] = field(default_factory=dict)
    segments: list[tuple[str, str | None, float, float]] = field(default_factory=list)
    beside: dict[str, float] = field(default_factory=dict)
    upkeep: dict[str, float] = field(default_factory=lambda: dict.fromkeys(UPKEEP, 0.0))
    begun: float = 0.0
    evaluated: int = 0
    evaluating: float = 0.0
    lost: SyncLoss = field(default_factory=SyncLoss)

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def drop(self, reason: str, samples: int, wasted: int) -> None:
        """Count samples given up, and the tokens generated for them."""
        self.dropped[reason] = self.dropped.get(reason, 0) + samples
        self.wasted += wasted

    def carry(self, lost: Step) -> None:
        """Take over the account of an earlier step that a crash lost: its seconds are `other` from now on."""
        self.start = lost.start
        self.phases["other"] += lost.seconds
        self.upkeep["restart"] += lost.upkeep["restart"]
        self.upkeep["lost"] += lost.seconds - lost.upkeep["restart"]
        for name in POOL:
            self.pool[name] += lost.pool[name]
        self.counts = self.counts.plus(lost.counts)
        for reason, samples in lost.dropped.items():
            self.drop(reason, samples, 0)
        self.aborted += lost.aborted
        self.wasted += lost.wasted
        self.evaluated += lost.evaluated
        self.evaluating += lost.evaluating


@dataclass
class Spans:
    """Columns of the timeline. Spans of one `group` of GPUs never overlap."""

    name: list[str] = field(default_factory=list)
    track: list[str] = field(default_factory=list)
    group: list[str] = field(default_factory=list)
    phase: list[str] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    step: list[int] = field(default_factory=list)


class Recorder:
    """Collects; knows no rules of any regime."""

    def __init__(self, colocated: bool) -> None:
        shared = "shared" if colocated else None
        self.groups = {"trainer": shared or "trainer", "rollout": shared or "rollout"}
        self.colocated = colocated
        self.steps: list[Step] = []
        self.step = Step(0, 0.0)
        self.spans = Spans()
        self._trainer: list[Segment] = []
        self._pool: list[Segment] = []
        self._counts = PoolCounts()

    def phase(self, label: str, start: float, end: float, track: str | None = "trainer") -> None:
        """The trainer group's clock carries `label` from start to end; `track` None: nothing to draw."""
        if end <= start:
            return
        self.step.phases[label] += end - start
        self.step.segments.append((label, track, start, end))
        self._trainer.append((label, start, end))
        if track is not None:
            self.span(label, track, start, end)

    def span(self, name: str, track: str, start: float, end: float, phase: str | None = None) -> None:
        """One bar of the timeline."""
        if end <= start:
            return
        spans = self.spans
        spans.name.append(name)
        spans.track.append(track)
        spans.group.append(self.groups.get(track, track))
        spans.phase.append(phase or name)
        spans.start.append(start)
        spans.end.append(end)
        spans.step.append(self.step.index)

    def pool(self, label: str, start: float, end: float) -> None:
        """The rollout pool generates (`busy`) or takes weights (`weight_sync`) from start to end."""
        if end <= start:
            return
        self._pool.append((label, start, end))
        if label == "busy":
            self.span("generate", "rollout", start, end, "rollout")
        elif not self.colocated:
            self.span(label, "rollout", start, end)

    def exposed(self, label: str, start: float, end: float) -> None:
        """The trainer waits under `label` for a model on other GPUs."""
        if end > start:
            self.phase(label, start, end, None)
            self.step.exposed[label] = self.step.exposed.get(label, 0.0) + end - start

    def beside(self, role: str, gpu_seconds: float) -> None:
        """A model on GPUs of its own was busy for this step."""
        self.step.beside[role] = self.step.beside.get(role, 0.0) + gpu_seconds

    def price(self, sources: Mapping[str, float]) -> None:
        """Provenance of seconds of this step, by source."""
        for source, seconds in sources.items():
            self.step.sources[source] = self.step.sources.get(source, 0.0) + seconds

    def upkeep(self, kind: str, start: float, end: float, drawn: bool = True) -> None:
        """The trainer group saves, evaluates, restarts, or did what turned out to be lost: one of UPKEEP."""
        if end <= start:
            return
        self.phase("other", start, end, None)
        self.step.upkeep[kind] += end - start
        if drawn:
            self.span(kind, "trainer", start, end)

    def end_step(self, now: float, counts: PoolCounts) -> None:
        """Close the step at the end of its last update and open the next."""
        self._close(now, counts)
        self.steps.append(self.step)
        self.step = Step(self.step.index + 1, now, begun=now)

    def roll_back(self, done: int, now: float, counts: PoolCounts | None) -> None:
        """A crash: only the first `done` steps count. The step under way becomes the next; with `counts` it is lost.

        It carries what the lost ones took: steps that count and their seconds stay without gaps.
        """
        lost, self.steps = self.steps[done:], self.steps[:done]
        if counts is not None:
            self._close(now, counts)
            lost.append(self.step)
            self.step = Step(done, now, begun=now)
        self.step.index = done
        for step in reversed(lost):
            self.step.carry(step)

    def _close(self, now: float, counts: PoolCounts) -> None:
        step = self.step
        step.end = now
        mine = counts.plus(self._counts, -1)
        self._counts = counts
        for name, seconds in self._pool_account(step, mine).items():
            step.pool[name] += seconds
        step.counts = step.counts.plus(mine)

    def _pool_account(self, step: Step, counts: PoolCounts) -> dict[str, float]:
        """Split the step's seconds, those carried left out, over what the rollout pool did. Evaluation is generation.

        Seconds with work are split into generation, prefill and re-prefill by their shares of engine time.
        Seconds without: idle while the trainer waits too, else waiting for the trainer.
        """
        busy = _overlap(self._pool, "busy", step.begun, step.end)
        sync = _overlap(self._pool, "weight_sync", step.begun, step.end)
        evaluation = _overlap(self._pool, "evaluation", step.begun, step.end)
        idle = _uncovered(self._trainer, self._pool, step.begun, step.end)
        engine = counts.busy
        prefill = busy * max(0.0, counts.prefill) / engine if engine > 0 else 0.0  # a difference of sums
        reprefill = busy * counts.reprefill / engine if engine > 0 else 0.0
        wait = max(0.0, step.end - step.begun - busy - sync - evaluation - idle)
        self._pool = [s for s in self._pool if s[2] > step.end]
        self._trainer = [s for s in self._trainer if s[2] > step.end]
        return {
            "generate": max(0.0, busy - prefill - reprefill) + evaluation,
            "prefill": prefill,
            "weight_sync": sync,
            "reprefill": reprefill,
            "wait_trainer": wait,
            "idle": idle,
        }


def _overlap(segments: list[Segment], label: str, start: float, end: float) -> float:
    """Seconds of [start, end] that segments with this label cover."""
    return sum(max(0.0, min(b, end) - max(a, start)) for name, a, b in segments if name == label)


def _uncovered(trainer: list[Segment], pool: list[Segment], start: float, end: float) -> float:
    """Seconds of [start, end] in which the trainer waits and the pool has nothing to do."""
    total = 0.0
    covers = sorted((a, b) for _, a, b in pool)
    for label, a, b in trainer:
        a, b = max(a, start), min(b, end)
        if label not in WAITING or b <= a:
            continue
        at = a
        for c, d in covers:
            if d <= at or c >= b:
                continue
            total += max(0.0, c - at)
            at = max(at, d)
        total += max(0.0, b - at)
    return total
