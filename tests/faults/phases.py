"""What a rank is at, read from outside: its threads are named after the phases (engine/pipeline/phase.hpp)."""
import collections
import contextlib
import os
import pathlib
import signal
import time

STEP = ["execute", "partial sums", "reduce", "vote", "record", "apply"]
CHANGE = ["suspect", "fence", "report", "plan", "prepare", "switch", "resume"]
PHASES = STEP + CHANGE
ROLES = ["primary", "replica holder", "neither", "node supervisor", "cluster supervisor"]
# A process runs for so long between two looks, seconds: shorter than most phases of a tiny job's step. A change comes once, and
# its phases are short: there the time it takes to look is the slice.
SLICE = 0.0002


def signalled(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def stopped(pid):
    """Whether the process is stopped with all its threads, once SIGSTOP was sent; None: it is gone."""
    try:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            if (task / "stat").read_bytes().rsplit(b")", 1)[1].split()[0] not in (b"T", b"t"):
                return False
        return True
    except OSError:
        return None


def phase_of(pid):
    """Of a stopped process; None: none yet, or it is gone."""
    names = []
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            names.append((task / "comm").read_text().strip())
    change = [name for name in names if name in CHANGE]
    if change:
        return change[0]
    step = [name for name in names if name in STEP]
    return step[0] if step and "train" in names else None


class Watch:
    """Lets a rank run in slices until it is in a wanted phase. It is stopped afterwards: strike, or `release`."""

    def __init__(self, pid, fault_is_known):
        self.pid = pid
        # () -> a process was lost and this rank has not heard of it: its step phase is then `suspect`.
        self.fault_is_known = fault_is_known
        self.generation_begun = False

    def stop(self, deadline):
        if not signalled(self.pid, signal.SIGSTOP):
            return None
        while time.monotonic() < deadline:
            state = stopped(self.pid)
            if state is None:
                return None
            if state:
                phase = phase_of(self.pid)
                if phase in CHANGE:
                    self.generation_begun = True
                elif phase in STEP and self.fault_is_known() and not self.generation_begun:
                    phase = "suspect"
                return phase
        return None

    def until(self, wanted, seconds):
        """The phase it is stopped in: `wanted`, or any other when time is up; None: it is gone."""
        deadline = time.monotonic() + seconds
        while True:
            phase = self.stop(deadline + 1.0)
            if phase == wanted or time.monotonic() > deadline or not os.path.exists(f"/proc/{self.pid}"):
                return phase
            if wanted in CHANGE and self.generation_begun and phase in STEP:
                return phase  # the change is over
            self.release()
            pause = time.monotonic() + (SLICE if wanted in STEP else 0)
            while time.monotonic() < pause:
                os.sched_yield()

    def release(self):
        signalled(self.pid, signal.SIGCONT)


class Table:
    """How often each pair of a phase and a role was struck."""

    def __init__(self):
        self.hits = collections.Counter()

    def add(self, phase, role):
        self.hits[phase, role] += 1

    def least(self):
        return min(self.hits[phase, role] for phase in PHASES for role in ROLES)

    def text(self):
        lines = [" " * 14 + "".join(f"{role:>20}" for role in ROLES)]
        lines += [f"{phase:14}" + "".join(f"{self.hits[phase, role]:20}" for role in ROLES) for phase in PHASES]
        return "\n".join(lines)

    def json(self):
        return {phase: {role: self.hits[phase, role] for role in ROLES} for phase in PHASES}
