"""Random faults against a small cluster of real processes, struck from outside; the trained bits must be those of a run
without faults.

A run is a schedule of one to five faults, drawn from a seed. Each is aimed at a pair: a phase of the step or of a generation
change (phases.py) and the role of who is struck. A rank is let run in slices until the phase is there, and the fault struck
while it is stopped; what a fault struck is counted in a table. For a phase of a change, one is made first: a rank is killed
while it computes, or a node is drained.

Every schedule leaves a holder of each shard alive: copies lie on two nodes, one node is lost at a time, and the next fault
waits until the job trains with all its ranks again. A supervisor that is killed is started again at once. With --hosts (root)
every node is a host of its own, whose cable may be cut.

With --lose a run takes all nodes at once instead: the job must stop and name the shards, never go on with other bits.
"""
import argparse
import json
import pathlib
import random
import signal
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))

import cluster  # noqa: E402
import phases  # noqa: E402
from cluster import ClusterTest, command_of, parent_of, processes_with, wait_for  # noqa: E402
from hosts import Hosts  # noqa: E402
from phases import signalled  # noqa: E402

RECOVERY_LIMIT = 30.0  # seconds from a fault to training again; past it, it is a hang
AIM_LIMIT = 3.0  # seconds until a fault is struck in whatever phase there is


class Shape:
    def __init__(self, name, slots, ranks, steps, roles, **replace):
        self.name, self.slots, self.ranks, self.steps, self.roles, self.replace = name, slots, ranks, steps, roles, replace


# In a small job every rank is primary of some shard. With more ranks than copies, there are some that hold replicas only, and
# some that hold nothing.
SHAPES = [
    Shape("four ranks", [2, 2, 2], 4, 3000, ["primary", "node supervisor", "cluster supervisor"]),
    Shape("twelve ranks", [6, 4, 2], 12, 1200, ["replica holder", "neither"],
          **{"layers: 2": "layers: 1", "stages: 2": "stages: 1", "sequences: 8": "sequences: 16", "lanes: 8": "lanes: 16"}),
]


# Short phases are often missed: they are aimed at more often.
RARE = {"fence": 4, "report": 3, "prepare": 2, "switch": 2}


class Fault:
    """What is wanted; the same for the same seed."""

    def __init__(self, dice, shape, hosts):
        self.delay = dice.uniform(0.0, 0.2)  # seconds
        self.joins = dice.random() < 0.1  # a node comes first
        self.phase = dice.choices(phases.PHASES, [RARE.get(phase, 1) for phase in phases.PHASES])[0]
        self.role = dice.choice(shape.roles)
        self.trigger = "kill" if self.phase == "suspect" else dice.choice(["kill", "drain"])
        self.pick = dice.randrange(1 << 16)
        if self.role == "cluster supervisor":
            self.kind = "kill"
        elif self.role == "node supervisor":
            self.kind = dice.choice(["kill", "stop", "cut"] if hosts else ["kill", "stop"])
        else:
            self.kind = dice.choice(["kill", "kill", "stop", "kill all of the node"])


def draw_schedule(seed, hosts):
    """(shape, [Fault])"""
    dice = random.Random(seed)
    shape = SHAPES[0] if dice.random() < 0.6 else SHAPES[1]
    return shape, [Fault(dice, shape, hosts) for _ in range(dice.choice([1, 2, 3, 3, 4, 4, 4, 5, 5, 5]))]


class Cluster(ClusterTest):
    """The harness of the end-to-end tests, used as a library: one cluster, one job."""

    def __init__(self, shape, hosts):
        super().__init__()
        self.shape = shape
        self.hosts = Hosts() if hosts else None
        self.host_of = {}  # process id of a node -> name of its host

    def runTest(self):
        pass

    def open(self):
        self.setUp()
        if self.hosts:
            self.addCleanup(self.hosts.close)
            self.hosts.open()
        self.job = self.write_job(steps=self.shape.steps, **self.shape.replace)
        self.supervisor, self.join_arguments = self.supervise()
        self.nodes, self.struck_pids, self.stopped, self.supervisors_lost = [], set(), [], 0
        for slots in self.shape.slots:
            self.add_node(slots)
        self.wait_for_nodes(len(self.shape.slots))
        self.report_file = self.folder / "report.json"
        self.client = self.start("submit", self.job, "--state", "state", "--ranks", self.shape.ranks, "--threads", 1,
                                 "--report", self.report_file)

    def start(self, *arguments):
        return self.start_on("s", *arguments)

    def start_on(self, host, *arguments):
        prefix = self.hosts.prefix_of(host) if self.hosts else ()
        process = cluster.Process(arguments, self.folder, self.env, prefix)
        self.started.append(process)
        return process

    def supervise(self):
        address = f"{Hosts.SUPERVISOR}:7700" if self.hosts else "127.0.0.1:0"
        process = self.start("supervise", "--listen", address, "--state", self.folder / "state")
        wait_for(lambda: "--token" in process.stdout or not process.running(), "the join command is printed")
        line = next((line for line in process.stdout.splitlines() if "kintsugi join" in line), None)
        self.assertIsNotNone(line, process.stderr)
        return process, line.split()[2:]

    def add_node(self, slots):
        name = f"n{len(self.started)}"
        arguments = ["join", *self.join_arguments, "--slots", slots, "--labels", f"rack={name}"]
        if self.hosts:
            self.hosts.add(name)
            arguments += ["--interface", "eth0"]
        node = self.start_on(name, *arguments)
        node.slots = slots
        self.host_of[node.pid] = name
        self.nodes.append(node)

    def living_nodes(self):
        return [node for node in self.nodes if node.running()]

    def ranks_of(self, node):
        ranks = []
        for pid in processes_with(self.marker):
            words = command_of(pid)
            if len(words) > 1 and words[1] == b"rank" and parent_of(pid) == node.pid:
                ranks.append(pid)
        return sorted(ranks)

    def job_view(self):
        jobs = self.status()["jobs"]
        return jobs[0] if jobs else None

    def trains(self):
        """The job's view while it is running."""
        if not self.client.running():
            return {"phase": "over", "ranks": []}
        view = self.job_view()
        return view if view and view["phase"] in ("running", "saving", "stopping") else None

    def settled(self):
        """The job's view once it trains with all its ranks, on two nodes, and with nobody who was struck; or once it is over."""
        view = self.trains()
        if not view:
            return None
        pids = {rank["pid"] for rank in view["ranks"]}
        whole = (len(pids) == self.shape.ranks and len({rank["node"] for rank in view["ranks"]}) > 1
                 and not pids & self.struck_pids)
        return view if view["phase"] == "over" or whole else None

    def close(self):
        for node in self.stopped:
            node.popen.kill()
        self.doCleanups()


def wait_until(moment):
    wait_for(lambda: time.monotonic() >= moment, "the moment has come")


def role_of(rank):
    return "primary" if rank["primaries"] else "replica holder" if rank["replicas"] else "neither"


class Strike:
    """One fault: whom it is aimed at, and what came of it."""

    def __init__(self, run, fault, view):
        self.run, self.fault = run, fault
        self.roles = {rank["pid"]: role_of(rank) for rank in view["ranks"]}
        self.node_of = {pid: node for node in run.living_nodes() for pid in run.ranks_of(node)}
        known = [pid for pid in sorted(self.node_of) if pid in self.roles]
        of_role = [pid for pid in known if self.roles[pid] == fault.role]
        candidates = of_role or known
        self.watched = candidates[fault.pick % len(candidates)] if candidates else None
        self.of_rank = fault.role not in ("node supervisor", "cluster supervisor")
        # Nobody may have the role that was drawn.
        self.role = self.roles[self.watched] if self.of_rank and candidates else fault.role
        self.phase, self.at, self.triggered = None, None, None

    def strike(self):
        """What was struck, in words; None: there was nothing to strike."""
        if self.watched is None:
            return None
        watch = phases.Watch(self.watched, lambda: self.triggered == "kill")
        if self.fault.phase in phases.CHANGE:
            self.trigger(watch)
        self.phase = watch.until(self.fault.phase, AIM_LIMIT)
        if self.phase is None:
            watch.release()
            return None
        self.at = time.monotonic()
        words = self.hit()
        if not (self.fault.kind == "stop" and self.of_rank):
            watch.release()
        aim = "" if self.phase == self.fault.phase else f" (aimed at {self.fault.phase})"
        return words and f"{words} in phase {self.phase}{aim}" + (f" after a {self.triggered}" if self.triggered else "")

    def trigger(self, watch):
        """Begins a generation change. The watched rank is stopped first, so that it sees the change from its start."""
        others = [pid for pid in sorted(self.node_of) if pid != self.watched and pid in self.roles]
        if self.fault.trigger == "kill" and others:
            victim = others[(self.fault.pick >> 4) % len(others)]
            first = phases.Watch(victim, lambda: False)
            # One that computes: its copies are whole, so that what it held is held by its node.
            computes = first.until("execute", AIM_LIMIT) == "execute"
            if computes and watch.stop(time.monotonic() + 1.0) is not None:
                self.run.struck_pids.add(victim)
                signalled(victim, signal.SIGKILL)
                self.triggered = "kill"
            first.release()
        elif self.fault.trigger == "drain":
            nodes = sorted({node.pid: node for node in self.node_of.values()}.items())
            node = nodes[(self.fault.pick >> 4) % len(nodes)][1]
            number = next((n["node"] for n in self.run.status()["nodes"] if n["pid"] == node.pid), None)
            if number is None or len(nodes) < 2:
                return
            self.run.struck_pids.update(pid for pid, of in self.node_of.items() if of is node)
            self.run.nodes.remove(node)
            self.run.add_node(node.slots)
            self.run.start("drain", number, "--state", "state")
            self.triggered = "drain"

    def hit(self):
        run, fault = self.run, self.fault
        node = self.node_of[self.watched]
        if fault.role == "cluster supervisor":
            run.supervisor.popen.kill()
            run.supervisor.popen.wait()
            run.supervisor, _ = run.supervise()
            run.supervisors_lost += 1
            return "kill of the supervisor"
        ranks = [pid for pid, of in self.node_of.items() if of is node]
        if fault.role == "node supervisor":
            if not node.running():
                return None
            run.struck_pids.update(ranks)
            if fault.kind == "cut":
                run.hosts.cut(run.host_of[node.pid])
            else:
                node.popen.send_signal(signal.SIGKILL if fault.kind == "kill" else signal.SIGSTOP)
            if fault.kind == "stop":
                run.stopped.append(node)
            if node in run.nodes:  # else it was drained, and has been replaced
                run.nodes.remove(node)
                run.add_node(node.slots)
            return f"{fault.kind} of node process {node.pid}"
        if fault.kind != "kill all of the node":
            ranks = [self.watched]
        number = signal.SIGSTOP if fault.kind == "stop" else signal.SIGKILL
        ranks = [pid for pid in ranks if signalled(pid, number)]
        run.struck_pids.update(ranks)
        return f"{fault.kind} of {self.role} {ranks}" if ranks else None


def one_run(seed, expected, hosts, table):
    """(problems, report or None, strikes)"""
    shape, schedule = draw_schedule(seed, hosts)
    run = Cluster(shape, hosts)
    strikes, words = [], []
    try:
        run.open()
        for fault in schedule:
            view = wait_for(run.settled, "the job trains with all its ranks", RECOVERY_LIMIT)
            if fault.joins:
                run.add_node(2)
            wait_until(time.monotonic() + fault.delay)
            if view["phase"] == "over" or not run.client.running():
                break
            strike = Strike(run, fault, view)
            said = strike.strike()
            if said:
                table.add(strike.phase, strike.role)
                strikes.append(strike)
                words.append(said)
        code = run.client.wait(RECOVERY_LIMIT + 60)
        problems, report = problems_of(run, code, expected[shape.name])
        return problems, report, strikes, words, run.supervisors_lost
    except AssertionError as hang:
        return [f"hang: {hang}; {run.client.stderr[-300:] if hasattr(run, 'client') else ''}"], None, strikes, words, 0
    finally:
        run.close()


def losing_run(seed, expected, hosts):
    """Every node at once, some steps after the first."""
    run = Cluster(SHAPES[0], hosts)
    try:
        run.open()
        view = wait_for(run.settled, "the job trains with all its ranks", RECOVERY_LIMIT)
        wait_until(time.monotonic() + random.Random(seed).uniform(0.0, 1.0))
        for node in run.nodes:
            node.popen.send_signal(signal.SIGKILL)
        for slots in run.shape.slots:  # so that it could go on, if it had anything to go on from
            run.add_node(slots)
        code = run.client.wait(RECOVERY_LIMIT)
        if code == 0:
            return problems_of(run, code, expected[run.shape.name])[0], None, [], ["all nodes, too late"], 0
        named = "shards are lost" in run.client.stderr
        problems = [] if code == 1 and named else [f"ended with code {code}: {run.client.stderr[-300:]}"]
        return problems, None, [], [f"all nodes, some time after step {view['step']}"], 0
    except AssertionError as hang:
        return [f"hang: {hang}; {run.client.stderr[-300:] if hasattr(run, 'client') else ''}"], None, [], [], 0
    finally:
        run.close()


def problems_of(run, code, expected):
    """(problems, report or None)"""
    if code == 0 and run.supervisors_lost and "its report was lost" in run.client.stderr:
        return [], None
    if not run.report_file.exists():
        return [f"the job ended with code {code} and no report: {run.client.stderr[-500:]}"], None
    report = json.loads(run.report_file.read_text())
    problems = [f"incident {i['id']} lost {i['steps_lost']} steps" for i in report["incidents"] if i["steps_lost"]]
    if code != 0:
        return problems + [f"the job ended with code {code}: {run.client.stderr[-500:]}"], report
    if report["final_digest"] != expected["final_digest"]:
        problems.append(f"digest {report['final_digest']}, without faults {expected['final_digest']}")
    steps = [s["step"] for s in report["steps"]]
    missing = sorted(set(range(1, run.shape.steps + 1)) - set(steps))
    # What only a lost supervisor had heard, and a node that is lost as well, is in no later one's report.
    complete = not missing or run.supervisors_lost > 0
    if not complete or len(set(steps)) != len(steps):
        problems.append(f"{len(steps)} steps reported, missing {missing[:5]}...")
    if not missing:
        audit = run.run_command("data", "audit", run.job, "--report", run.report_file)
        if audit.popen.returncode != 0:
            problems.append(f"data audit: {audit.stdout[-300:]}{audit.stderr[-300:]}")
    digests = {s["step"]: s["digest"] for s in expected["steps"]}
    # The digest of a step comes with the record of the next.
    wrong = [s["step"] for s in report["steps"]
             if s["digest"] != digests[s["step"]] and not (s["digest"] is None and s["step"] + 1 in missing)]
    if wrong:
        problems.append(f"digests of steps {wrong[:5]}... differ")
    return problems, report


class Timings:
    """Of strikes whose incident the report tells: those in no other change, in runs whose supervisor lived. Seconds."""

    def __init__(self):
        self.found = {}  # (kind, "detection" | "recovery" | "replicas restored") -> [seconds]

    def add(self, report, strikes):
        domains = max(step["failure_domains"] for step in report["steps"])
        for strike in strikes:
            if strike.triggered:
                continue
            at = strike.at - report["began_s"]
            incident = next((i for i in report["incidents"] if i["detected_s"] >= at and i["kind"] != "planned"), None)
            if incident is None or incident["first_commit_s"] is None:
                continue
            kind = "silent" if strike.fault.kind in ("stop", "cut") else "death"
            whole = next((s["final_s"] for s in report["steps"]
                          if s["final_s"] >= incident["first_commit_s"] and s["failure_domains"] == domains), None)
            for what, moment in [("detection", incident["detected_s"]), ("recovery", incident["first_commit_s"]),
                                 ("replicas restored", whole)]:
                if moment is not None:
                    self.found.setdefault(f"{what}, {kind}", []).append(moment - at)

    def lines(self):
        return [f"{what}: {len(values)} events, median {statistics.median(values):.3f} s, 99 of 100 "
                f"{sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]:.3f} s, longest {max(values):.3f} s"
                for what, values in sorted(self.found.items())]


def fault_free(shape, hosts):
    run = Cluster(shape, hosts)
    try:
        run.open()
        code = run.client.wait()
        assert code == 0, run.client.stderr
        return json.loads(run.report_file.read_text())
    finally:
        run.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lose", action="store_true", help="take every copy")
    parser.add_argument("--hosts", action="store_true", help="every node on a host of its own, with cables to cut; needs root")
    parser.add_argument("--report", type=pathlib.Path, help="write a JSON summary here")
    options = parser.parse_args()
    expected = {shape.name: fault_free(shape, options.hosts) for shape in SHAPES}
    for name, report in expected.items():
        print(f"without faults, {name}: {report['final_digest']}", flush=True)
    failed, count, table, timings = 0, 0, phases.Table(), Timings()
    for seed in range(options.seed, options.seed + options.runs):
        began = time.monotonic()
        problems, report, strikes, words, supervisors_lost = (
            losing_run(seed, expected, options.hosts) if options.lose else one_run(seed, expected, options.hosts, table))
        count += len(words)
        if report and not supervisors_lost:
            timings.add(report, strikes)
        failed += bool(problems)
        print(f"seed {seed}: {'FAILED' if problems else 'ok'} in {time.monotonic() - began:.1f} s; struck: {'; '.join(words)}",
              flush=True)
        for problem in problems:
            print(f"  {problem}\n  replay: scripts/campaign --runs 1 --seed {seed}{' --hosts' if options.hosts else ''}",
                  flush=True)
    print(f"{options.runs} runs, {failed} failed, {count} faults struck")
    if not options.lose:
        print(f"what they struck (least: {table.least()}):\n{table.text()}")
        print("\n".join(timings.lines()))
    if options.report:
        options.report.write_text(json.dumps({"runs": options.runs, "seed": options.seed, "failed": failed, "struck": count,
                                              "table": table.json(), "seconds": timings.found}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
