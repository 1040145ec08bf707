"""Random faults against a small cluster of real processes, struck from outside; the trained bits must be those of a run
without faults.

A run is a schedule of one to five faults, drawn from a seed. Every schedule leaves a holder of each shard alive: copies lie
on two nodes, so a second node is struck only when the job trains again without the first, all its ranks there. A fault
drawn as `early` comes while the job still recovers, on the node that was struck before: on what is left of it. A supervisor
that is killed is started again at once.

With --lose a run takes all nodes at once instead: the job must stop and name the shards, never go on with other bits.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))

import cluster  # noqa: E402
from cluster import ClusterTest, command_of, processes_with, wait_for  # noqa: E402

NODES, SLOTS, RANKS, STEPS = 3, 2, 4, 1200
RECOVERY_LIMIT = 30.0  # seconds from a fault to training again; past it, it is a hang
KINDS = ["kill_rank", "stop_rank", "kill_node", "stop_node", "join", "kill_ranks_of_a_node", "kill_supervisor", "drain"]


def draw_schedule(seed):
    """[(seconds to wait, early, kind, a number that picks the target)]"""
    dice = random.Random(seed)
    return [(dice.uniform(0.0, 0.25), dice.random() < 0.3, dice.choice(KINDS), dice.randrange(1 << 16))
            for _ in range(dice.randint(1, 5))]


class Cluster(ClusterTest):
    """The harness of the end-to-end tests, used as a library: one cluster, one job."""

    def runTest(self):
        pass

    def open(self):
        self.setUp()
        self.job = self.write_job(steps=STEPS)
        self.supervisor, self.join_arguments = self.supervise()
        self.nodes = []
        for number in range(NODES):
            self.add_node(number)
        self.wait_for_nodes(NODES)
        self.report_file = self.folder / "report.json"
        self.client = self.start("submit", self.job, "--state", "state", "--ranks", RANKS, "--threads", 1, "--report",
                                 self.report_file)

    def add_node(self, number):
        self.nodes.append(self.start("join", *self.join_arguments, "--slots", SLOTS, "--labels", f"rack=r{number}"))

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
        """The job's view while it is running; False once it is over."""
        if not self.client.running():
            return {"phase": "over", "step": STEPS, "generation": "", "ranks": []}
        view = self.job_view()
        return view if view and view["phase"] in ("running", "saving", "stopping") else None

    def close(self):
        self.doCleanups()


def parent_of(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def kill(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def strike(run, kind, pick, early):
    """Strikes one fault; what was struck, or None when there was nothing to strike."""
    if kind == "join":
        run.add_node(len(run.started))
        return "a node joins"
    if kind == "kill_supervisor":
        run.supervisor.popen.kill()
        run.supervisor.popen.wait()
        run.supervisor, _ = run.supervise()
        run.supervisors_lost += 1
        return "kill_supervisor"
    nodes = [node for node in run.living_nodes() if run.ranks_of(node)]
    if early:
        nodes = [node for node in nodes if node is run.last_struck]
    if not nodes:
        return None
    node = nodes[pick % len(nodes)]
    ranks = run.ranks_of(node)
    if kind == "drain":
        number = next((n["node"] for n in run.status()["nodes"] if n["pid"] == node.pid), None)
        if early or number is None or run.run_command("drain", number, "--state", "state").popen.returncode != 0:
            return None
        run.struck_pids.update(ranks)
        run.nodes.remove(node)
        run.add_node(len(run.started))
        return f"drain (node process {node.pid}, ranks {ranks})"
    if kind in ("kill_node", "stop_node"):
        run.struck_pids.update(ranks)
        node.popen.send_signal(signal.SIGKILL if kind == "kill_node" else signal.SIGSTOP)
        if kind == "stop_node":
            run.stopped.append(node)
        run.nodes.remove(node)
        run.add_node(len(run.started))
        run.last_struck = None  # nothing is left of it
    else:
        run.last_struck = node
        if kind != "kill_ranks_of_a_node":
            ranks = [ranks[(pick >> 8) % len(ranks)]]
        number = signal.SIGSTOP if kind == "stop_rank" else signal.SIGKILL
        ranks = [pid for pid in ranks if kill(pid, number)]
        run.struck_pids.update(ranks)
    return f"{kind} (node process {node.pid}, ranks {ranks})"


def settled(run):
    """The job's view once it trains with all its ranks, on two nodes, and with nobody who was struck; or once it is over."""
    view = run.trains()
    if not view:
        return None
    pids = {rank["pid"] for rank in view["ranks"]}
    whole = len(pids) == RANKS and len({rank["node"] for rank in view["ranks"]}) > 1 and not pids & run.struck_pids
    return view if view["phase"] == "over" or whole else None


def one_run(seed, expected):
    """(problems, incidents, what was struck)"""
    run = Cluster()
    run.stopped, run.struck_pids, run.last_struck, run.supervisors_lost = [], set(), None, 0
    struck = []
    try:
        run.open()
        for delay, early, kind, pick in draw_schedule(seed):
            early = early and run.last_struck is not None
            if not early:
                wait_for(lambda: settled(run), "the job trains with all its ranks", RECOVERY_LIMIT)
            until = time.monotonic() + delay
            wait_for(lambda: time.monotonic() >= until, "the moment has come")
            if not run.client.running():
                break
            what = strike(run, kind, pick, early)
            if what:
                struck.append(("early " if early else "") + what)
        code = run.client.wait(RECOVERY_LIMIT + 60)
        return problems_of(run, code, expected), run.incidents, struck
    except AssertionError as hang:
        return [f"hang: {hang}; {run.client.stderr[-300:] if hasattr(run, 'client') else ''}"], [], struck
    finally:
        for node in run.stopped:
            node.popen.kill()
        run.close()


def losing_run(seed, expected):
    """Every node at once, some steps after the first."""
    run = Cluster()
    run.stopped, run.struck_pids, run.incidents, run.supervisors_lost = [], set(), [], 0
    try:
        run.open()
        wait_for(lambda: settled(run), "the job trains with all its ranks", RECOVERY_LIMIT)
        until = time.monotonic() + random.Random(seed).uniform(0.0, 1.0)
        wait_for(lambda: time.monotonic() >= until, "the moment has come")
        began = run.job_view()
        for node in run.nodes:
            node.popen.send_signal(signal.SIGKILL)
        for number in range(NODES):  # so that it could go on, if it had anything to go on from
            run.add_node(number)
        code = run.client.wait(RECOVERY_LIMIT)
        if code == 0:
            return problems_of(run, code, expected), [], ["all nodes, too late"]
        named = "shards are lost" in run.client.stderr
        problems = [] if code == 1 and named else [f"ended with code {code}: {run.client.stderr[-300:]}"]
        return problems, [], [f"all nodes after step {began['step'] if began else '?'}"]
    except AssertionError as hang:
        return [f"hang: {hang}; {run.client.stderr[-300:] if hasattr(run, 'client') else ''}"], [], []
    finally:
        run.close()


def problems_of(run, code, expected):
    run.incidents = []
    if code == 0 and run.supervisors_lost and "its report was lost" in run.client.stderr:
        return []
    if not run.report_file.exists():
        return [f"the job ended with code {code} and no report: {run.client.stderr[-500:]}"]
    report = json.loads(run.report_file.read_text())
    run.incidents = report["incidents"]
    problems = [f"incident {i['id']} lost {i['steps_lost']} steps" for i in run.incidents if i["steps_lost"]]
    if code != 0:
        return problems + [f"the job ended with code {code}: {run.client.stderr[-500:]}"]
    if report["final_digest"] != expected["final_digest"]:
        problems.append(f"digest {report['final_digest']}, without faults {expected['final_digest']}")
    steps = [s["step"] for s in report["steps"]]
    missing = sorted(set(range(1, STEPS + 1)) - set(steps))
    # What only a lost supervisor had heard, and a node that is lost as well, is in no later one's report.
    complete = not missing or run.supervisors_lost > 0
    if not complete or len(set(steps)) != len(steps):
        problems.append(f"{len(steps)} steps reported, missing {missing[:5]}...")
    if not missing:
        audit = run.run_command("data", "audit", run.job, "--report", run.report_file)
        if audit.popen.returncode != 0:
            problems.append(f"data audit: {audit.stdout[-300:]}{audit.stderr[-300:]}")
    digests = {s["step"]: s["digest"] for s in expected["steps"]}
    wrong = [s["step"] for s in report["steps"] if s["digest"] != digests[s["step"]]]
    if wrong:
        problems.append(f"digests of steps {wrong[:5]}... differ")
    return problems


def fault_free():
    run = Cluster()
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
    parser.add_argument("--report", type=pathlib.Path, help="write a JSON summary here")
    options = parser.parse_args()
    expected = fault_free()
    print(f"without faults: {expected['final_digest']}", flush=True)
    failed, recoveries, count = 0, [], 0
    for seed in range(options.seed, options.seed + options.runs):
        began = time.monotonic()
        problems, incidents, struck = (losing_run if options.lose else one_run)(seed, expected)
        count += len(struck)
        recoveries += [i["first_commit_s"] - i["detected_s"] for i in incidents
                       if i["first_commit_s"] is not None and i["kind"] != "planned"]
        failed += bool(problems)
        print(f"seed {seed}: {'FAILED' if problems else 'ok'} in {time.monotonic() - began:.1f} s; "
              f"{len(incidents)} incidents; struck: {'; '.join(struck)}", flush=True)
        for problem in problems:
            print(f"  {problem}\n  replay: scripts/campaign --runs 1 --seed {seed}", flush=True)
    recoveries.sort()

    def at(share):
        return round(recoveries[min(len(recoveries) - 1, int(share * len(recoveries)))], 3) if recoveries else None

    print(f"{options.runs} runs, {failed} failed, {count} faults struck, {len(recoveries)} recoveries: median {at(0.5)} s, "
          f"99 of 100 {at(0.99)} s, longest {at(1)} s from evidence to the next committed step")
    if options.report:
        options.report.write_text(json.dumps({"runs": options.runs, "seed": options.seed, "failed": failed, "struck": count,
                                              "recovery_s": recoveries}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
