"""What survival costs, measured on real processes; prints one line a figure. Meant for an idle machine.

  cost       step time with two copies of every shard against one, alternating pairs
  gpt2       recovery of GPT-2 124M from a killed rank, beside its step time; survivors keep their processes
  joins      step time while a node joins, against as long a time before
  supervisor steps while the supervisor is gone for five seconds, against as long a time before
  changes    growth of memory and descriptors over 200 generation changes
  load       ten minutes beside eight computing threads: no incident
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))

from campaign import Cluster, Shape, wait_until  # noqa: E402
from cluster import command_of, wait_for  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONG = 1_000_000  # steps; the job is cancelled when all is measured


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def say(what, **figures):
    print(f"{what}: " + ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                                  for name, value in figures.items()), flush=True)


class Running:
    """A cluster whose job has begun; afterwards the job is cancelled and its report read."""

    def __init__(self, shape):
        self.run = Cluster(shape, False)
        self.report = None

    def __enter__(self):
        self.run.open()
        wait_for(self.run.settled, "the job trains with all its ranks")
        return self

    def cancel(self):
        self.run.run_command("cancel", "--state", "state")
        self.run.client.wait()
        self.report = json.loads(self.run.report_file.read_text())
        return self.report

    def __exit__(self, *_):
        self.run.close()

    def step(self):
        return self.run.job_view()["step"]

    def after_steps(self, count):
        goal = self.step() + count
        wait_for(lambda: self.step() >= goal, f"{count} steps are done")


def step_times(report, first, last):
    """Seconds between one step and the next, of those that became final between two moments of CLOCK_MONOTONIC."""
    final = [s["final_s"] + report["began_s"] for s in report["steps"]]
    return [b - a for a, b in zip(final, final[1:]) if first <= b <= last]


def cost(options):
    """The job of examples/tiny.yaml on two nodes; a pair is one run with two copies and one with a single one."""
    shape = Shape("cost", [2, 2], 4, options.steps, [])
    tiny = {"layers: 2, width: 32, heads: 2, context: 16": "layers: 4, width: 256, heads: 4, context: 256",
            "sequences: 8, microbatch: 1": "sequences: 32, microbatch: 4"}
    ratios = []
    for pair in range(options.events):
        medians = {}
        for replicas in ([1, 2] if pair % 2 else [2, 1]):
            run = Cluster(shape, False)
            try:
                shape.replace = {**tiny, "precision:": f"resilience: {{ replicas: {replicas} }}\nprecision:"}
                run.open()
                assert run.client.wait(600) == 0, run.client.stderr
                report = json.loads(run.report_file.read_text())
                medians[replicas] = statistics.median(s["seconds"] for s in report["steps"][3:])
                assert report["steps"][-1]["failure_domains"] == replicas
            finally:
                run.close()
        ratios.append(medians[2] / medians[1])
    say("cost of a second copy, tiny job", pairs=len(ratios), median_ratio=statistics.median(ratios), least=min(ratios),
        most=max(ratios))


def gpt2(options):
    import struct
    text = (ROOT / "examples" / "gpt2-124m.yaml").read_text()
    recoveries, steps = [], []
    shape = Shape("gpt2", [1, 1, 1], 2, LONG, [])

    class Large(Cluster):
        def write_job(self, name="job.yaml", steps=3, **_):
            path = self.folder / name
            (self.folder / "words.bin").write_bytes(struct.pack("<65536H", *(n * 7919 % 50257 for n in range(65536))))
            lines = [line for line in text.splitlines() if not line.startswith(("data:", "steps:", "resilience:"))]
            lines += ["data: { train: words.bin, tokens: uint16, seed: 7 }", f"steps: {steps}"]
            path.write_text("\n".join(lines) + "\n")
            return path

    with Running(shape) as running:
        running.run.close()
        running.run = Large(shape, False)
        running.run.open()
        wait_for(running.run.settled, "the job trains with all its ranks", 300)
        killed = []
        for event in range(options.events):
            running.after_steps(2)
            view = wait_for(running.run.settled, "the job trains with all its ranks", 300)
            before = {rank["pid"] for rank in view["ranks"]}
            victim = view["ranks"][event % len(view["ranks"])]["pid"]
            wait_until(time.monotonic() + 0.1 * (event % 7))
            killed.append(time.monotonic())
            os.kill(victim, 9)
            running.run.struck_pids.add(victim)
            wait_for(lambda: not os.path.exists(f"/proc/{victim}") or victim not in
                     {rank["pid"] for rank in running.run.job_view()["ranks"]}, "its loss is known", 60)
            after = {rank["pid"] for rank in running.run.job_view()["ranks"]}
            assert before - {victim} <= after, "a survivor was replaced"
        running.after_steps(2)
        report = running.cancel()
    steps = [s["seconds"] for s in report["steps"]]
    normal = statistics.median(steps)
    for at in killed:
        incident = next(i for i in report["incidents"]
                        if i["kind"] != "planned" and i["detected_s"] + report["began_s"] >= at and i["first_commit_s"])
        recoveries.append(incident["first_commit_s"] + report["began_s"] - at)
    say("GPT-2 124M, kill of a rank", events=len(recoveries), median_s=statistics.median(recoveries),
        longest_s=max(recoveries), median_step_s=normal,
        bytes_moved=statistics.median(i["bytes_moved"] for i in report["incidents"]))


def joins(options):
    """The third of three nodes comes and is drained again. A window: from the start of `join` to half a second after the
    joiner's first step."""
    shape = Shape("joins", [2, 2], 4, LONG, [], **{"parallel:": "parallel:"})
    with Running(shape) as running:
        run = running.run
        windows, first_steps = [], []
        for _ in range(options.events):
            wait_until(time.monotonic() + 1.5)
            began = time.monotonic()
            run.add_node(2)
            node = run.nodes[-1]
            victim = run.nodes.pop(0)
            number = next(n["node"] for n in run.status()["nodes"] if n["pid"] == victim.pid)
            wait_for(lambda: any(n["pid"] == node.pid for n in run.status()["nodes"]), "the node is there")
            run.run_command("drain", number, "--state", "state")
            wait_for(lambda: (v := run.job_view()) and len(v["ranks"]) == 4 and number not in {r["node"] for r in v["ranks"]},
                     "the joiner works")
            windows.append((began, time.monotonic()))
        report = running.cancel()
    ratios = []
    for began, ended in windows:
        inside = step_times(report, began, ended)
        control = step_times(report, began - (ended - began), began)
        if inside and control:
            ratios.append((percentile(inside, 0.95) / percentile(control, 0.95), statistics.median(inside) /
                           statistics.median(control)))
    say("joins", events=len(ratios), p95_ratio_median=statistics.median(r[0] for r in ratios),
        median_ratio_median=statistics.median(r[1] for r in ratios))


def supervisor(options):
    """Steps are counted from outside, by the root rank's own word to whoever leads it afterwards."""
    shape = Shape("supervisor", [2, 2], 4, LONG, [])
    with Running(shape) as running:
        run = running.run
        windows = []
        for _ in range(options.events):
            wait_for(run.settled, "the job trains with all its ranks")
            control = time.monotonic(), running.step()
            wait_until(control[0] + 5.0)
            began = time.monotonic(), running.step()
            run.supervisor.popen.kill()
            run.supervisor.popen.wait()
            wait_until(began[0] + 5.0)
            run.supervisor, _ = run.supervise()
            after = wait_for(run.trains, "the supervisor has found its job")
            windows.append(((began[1] - control[1]) / (began[0] - control[0]),
                            (after["step"] - began[1]) / (time.monotonic() - began[0])))
        running.cancel()
    ratios = [control / alone for control, alone in windows]
    say("supervisor gone for 5 s", events=len(ratios), median_ratio_of_mean_step=statistics.median(ratios), most=max(ratios))


def memory_of(pid):
    """(resident bytes, descriptors)"""
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd"))


def changes(options):
    """A pause and its end are one generation change."""
    shape = Shape("changes", [2, 2], 4, LONG, [])
    with Running(shape) as running:
        run = running.run
        pids = [run.supervisor.pid, *(node.pid for node in run.nodes), *(r["pid"] for r in run.job_view()["ranks"])]
        seen = []
        names = {pid: b" ".join(command_of(pid)[1:2]).decode() for pid in pids}
        for change in range(options.changes):
            run.run_command("pause", "--state", "state")
            wait_for(lambda: run.job_view()["phase"] == "paused", "the job is paused")
            run.run_command("resume", "--state", "state")
            wait_for(run.settled, "the job goes on")
            if (change + 1) % (options.changes // 5) == 0:
                seen.append({pid: memory_of(pid) for pid in pids})
        generation = run.job_view()["generation"]
        running.cancel()
    for pid in pids:
        say(f"{options.changes} generation changes (to {generation}), {names[pid]} {pid}",
            mib_after_each_fifth=[round(at[pid][0] / 2**20, 2) for at in seen], descriptors=[at[pid][1] for at in seen])


def burn(until):
    while time.monotonic() < until:
        pass


def load(options):
    shape = Shape("load", [2, 2], 4, LONG, [])
    with Running(shape) as running:
        until = time.monotonic() + options.seconds
        crew = [multiprocessing.Process(target=burn, args=(until,)) for _ in range(8)]
        for one in crew:
            one.start()
        for one in crew:
            one.join()
        report = running.cancel()
    say(f"{options.seconds} s beside eight computing threads", steps=len(report["steps"]), incidents=len(report["incidents"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    figures = {"cost": cost, "gpt2": gpt2, "joins": joins, "supervisor": supervisor, "changes": changes, "load": load}
    parser.add_argument("what", choices=figures)
    parser.add_argument("--events", type=int, default=20)
    parser.add_argument("--steps", type=int, default=20, help="of a run of `cost`")
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=600, help="of `load`")
    options = parser.parse_args()
    figures[options.what](options)


if __name__ == "__main__":
    main()
