"""Faults struck from outside at real processes: training goes on, with the bits of a run without faults."""
import json
import os
import resource
import shutil
import signal
import time
import unittest

from cluster import PROMPT, ClusterTest, parent_of, wait_for

STEPS = 400


class Survival(ClusterTest):
    def setUp(self):
        super().setUp()
        self.job = self.write_job(steps=STEPS)
        self.report = self.folder / "survived.json"

    def start_run(self, *arguments):
        run = self.start("run", self.job, "--threads", 1, "--report", self.report, *arguments)
        self.wait_for_step(run)
        return run

    def expect_the_bits_of_a_quiet_run(self, run):
        self.assertEqual(run.wait(), 0, run.stderr)
        self.assert_nothing_left()
        report = json.loads(self.report.read_text())
        quiet = self.train("--ranks", 1, "--threads", 2)
        self.assertEqual([s["step"] for s in report["steps"]], list(range(1, STEPS + 1)))
        self.assertEqual([s["digest"] for s in report["steps"]], [s["digest"] for s in quiet["steps"]])
        self.assertEqual(report["final_digest"], quiet["final_digest"])
        self.assertEqual(sum(i["steps_lost"] for i in report["incidents"]), 0)
        return report

    def first_incident(self, report):
        self.assertGreaterEqual(len(report["incidents"]), 1)
        first = report["incidents"][0]
        for earlier, later in [("detected_s", "fenced_s"), ("fenced_s", "resumed_s"), ("resumed_s", "first_commit_s")]:
            self.assertLessEqual(first[earlier], first[later])
        return first

    def test_a_killed_rank_is_survived_by_processes_that_go_on(self):
        run = self.start_run("--ranks", 4, "--nodes", 2)
        ranks = self.kinds()["rank"]
        os.kill(ranks[1], signal.SIGKILL)
        wait_for(lambda: ranks[1] not in self.kinds().get("rank", []), "the killed process is gone")
        report = self.expect_the_bits_of_a_quiet_run(run)
        incident = self.first_incident(report)
        self.assertEqual(incident["kind"], "rank lost")
        self.assertIn("killed by signal 9", incident["why"])
        self.assertLess(incident["first_commit_s"] - incident["detected_s"], 2.0)

    def test_a_killed_rank_costs_its_lanes_and_what_the_others_had_half_done(self):
        self.job = self.write_job(steps=STEPS, **{"stages: 2": "stages: 1"})
        run = self.start_run("--ranks", 4, "--nodes", 2)
        os.kill(self.kinds()["rank"][1], signal.SIGKILL)
        report = self.expect_the_bits_of_a_quiet_run(run)
        recomputed = [i["lanes_recomputed"] for i in report["incidents"] if i["kind"] != "planned"]
        self.assertLessEqual(max(recomputed), 2 + 3)  # of 8: two were the dead rank's, the others had one each in hand
        for direction in ("forward_again", "backward_again"):
            self.assertEqual(sum(rank[direction] for rank in report["per_rank"]), sum(recomputed))

    def test_a_killed_node_is_survived(self):
        run = self.start_run("--ranks", 4, "--nodes", 2)
        os.kill(self.kinds()["join"][0], signal.SIGKILL)
        report = self.expect_the_bits_of_a_quiet_run(run)
        incident = self.first_incident(report)
        self.assertEqual(incident["kind"], "node lost")
        self.assertEqual(report["steps"][-1]["ranks"], 2)

    def test_a_killed_node_leaves_no_rank_behind_not_even_a_stopped_one(self):
        run = self.start_run("--ranks", 4, "--nodes", 2)
        node = self.kinds()["join"][0]
        ranks = [pid for pid in self.kinds()["rank"] if parent_of(pid) == node]
        self.assertEqual(len(ranks), 2)
        os.kill(ranks[0], signal.SIGSTOP)
        os.kill(node, signal.SIGKILL)
        wait_for(lambda: not set(ranks) & set(self.kinds().get("rank", [])), "its ranks are gone", PROMPT)
        self.expect_the_bits_of_a_quiet_run(run)

    def test_a_stopped_rank_is_found_and_succeeded(self):
        run = self.start_run("--ranks", 4, "--nodes", 2)
        since = time.monotonic()
        os.kill(self.kinds()["rank"][0], signal.SIGSTOP)
        report = self.expect_the_bits_of_a_quiet_run(run)
        self.assertGreater(time.monotonic() - since, 0)
        self.first_incident(report)
        self.assertEqual(report["steps"][-1]["ranks"], 4)

    def test_a_dead_rank_is_succeeded_until_all_are_there_again(self):
        run = self.start_run("--ranks", 3)
        for deaths in range(3):
            # Let in, not only started: with a rank fewer, the next death might take the last copy of a shard.
            wait_for(lambda: not run.running() or run.stderr.count("preparing: 3 ranks") > deaths, "three ranks train")
            ranks = self.kinds().get("rank", [])
            if not ranks:
                break
            os.kill(ranks[0], signal.SIGKILL)
            wait_for(lambda: not run.running() or ranks[0] not in self.kinds().get("rank", []), "the process is gone")
        self.expect_the_bits_of_a_quiet_run(run)

    def test_memory_of_the_only_rank_outlives_it(self):
        run = self.start_run("--ranks", 1)
        os.kill(self.kinds()["rank"][0], signal.SIGKILL)
        if run.wait() == 0:
            self.expect_the_bits_of_a_quiet_run(run)
        else:  # it died while it wrote: of such a shard there is no other copy
            self.assertRegex(run.stderr, r"shard.* no copy")

    def test_a_fault_while_recovering_starts_the_recovery_over(self):
        run = self.start_run("--ranks", 6, "--nodes", 3)
        ranks = self.kinds()["rank"]
        by_node = {}
        for pid in ranks:
            by_node.setdefault(parent_of(pid), []).append(pid)
        for pid in by_node[min(by_node)]:  # both on one node: their shards' other copies are elsewhere
            os.kill(pid, signal.SIGKILL)
        self.expect_the_bits_of_a_quiet_run(run)

    def test_the_loss_of_every_copy_is_told_and_nothing_is_made_up(self):
        run = self.start_run("--ranks", 4, "--nodes", 2)
        for node in self.kinds()["join"]:
            os.kill(node, signal.SIGKILL)
        self.assertEqual(run.wait(), 1, run.stderr)
        self.assertRegex(run.stderr, r"shard|no node")
        self.assert_nothing_left()


class Membership(ClusterTest):
    def setUp(self):
        super().setUp()
        self.job = self.write_job(steps=3000)
        self.report = self.folder / "joined.json"

    def test_a_node_that_joins_takes_part(self):
        self.job = self.write_job(steps=10_000_000)
        _, join = self.supervise()
        self.start("join", *join, "--slots", 2)
        client = self.start("submit", self.job, "--state", "state", "--threads", 1, "--report", self.report)
        self.wait_for_step(client)
        self.start("join", *join, "--slots", 2)
        wait_for(lambda: len(self.status()["jobs"][0]["ranks"]) == 4, "the newcomer's slots are used")
        before = self.status()["jobs"][0]["step"]
        wait_for(lambda: self.status()["jobs"][0]["step"] > before, "training goes on")
        self.assertEqual(self.run_command("cancel", "--state", "state").popen.returncode, 0)
        self.assertEqual(client.wait(), 130, client.stderr)
        report = json.loads(self.report.read_text())
        planned = [i for i in report["incidents"] if i["kind"] == "planned"]
        self.assertEqual(len(planned), 1)
        self.assertEqual(planned[0]["lanes_recomputed"], 0)
        digests = {s["step"]: s["digest"] for s in report["steps"] if s["digest"]}
        self.assertGreater(max(digests), before - 1)
        quiet = self.train("--ranks", 1, "--threads", 2, "--steps", max(digests))
        self.assertEqual(digests, {s["step"]: s["digest"] for s in quiet["steps"] if s["step"] in digests})

    def test_a_drained_node_leaves_without_loss(self):
        _, join = self.supervise()
        nodes = [self.start("join", *join, "--slots", 2) for _ in range(2)]
        client = self.start("submit", self.job, "--state", "state", "--nodes", 2, "--threads", 1, "--report", self.report)
        self.wait_for_step(client)
        self.expect_refused("drain", 77)
        leaving = next(n for n in self.status()["nodes"] if n["pid"] == nodes[0].pid)
        drained = self.run_command("drain", leaving["node"], "--state", "state")
        self.assertEqual(drained.popen.returncode, 0, drained.stderr)
        self.assertEqual(nodes[0].wait(), 0, nodes[0].stderr)
        self.assertTrue(client.running())
        self.assertEqual(client.wait(), 0, client.stderr)
        report = json.loads(self.report.read_text())
        self.assertEqual(report["final_digest"], self.train("--ranks", 1, "--threads", 2)["final_digest"])
        self.assertEqual({i["kind"] for i in report["incidents"]}, {"planned"})
        self.assertEqual(sum(i["lanes_recomputed"] for i in report["incidents"]), 0)
        self.assertEqual(report["steps"][-1]["ranks"], 2)

    def test_a_paused_job_keeps_its_processes_and_goes_on_where_it_was(self):
        _, join = self.supervise()
        self.start("join", *join, "--slots", 2)
        client = self.start("submit", self.job, "--state", "state", "--threads", 1, "--report", self.report)
        self.wait_for_step(client)
        self.assertEqual(self.run_command("pause", "--state", "state").popen.returncode, 0)
        wait_for(lambda: self.status()["jobs"][0]["phase"] == "paused", "the job is paused")
        step, ranks = self.status()["jobs"][0]["step"], self.kinds()["rank"]
        self.assertEqual(self.status()["jobs"][0]["step"], step)
        self.assertEqual(self.run_command("resume", "--state", "state").popen.returncode, 0)
        self.assertEqual(client.wait(), 0, client.stderr)
        report = json.loads(self.report.read_text())
        self.assertEqual(report["final_digest"], self.train("--ranks", 1, "--threads", 2)["final_digest"])
        self.assertEqual(len(ranks), 2)
        self.assertEqual({i["kind"] for i in report["incidents"]}, {"planned"})

    def expect_refused(self, *arguments):
        refused = self.run_command(*arguments, "--state", "state")
        self.assertEqual(refused.popen.returncode, 3, refused.stderr)
        self.assertIn("kintsugi status", refused.stderr)


class SupervisorStall(ClusterTest):
    """A supervisor that is stopped for longer than nodes wait for it: they leave it, and it must not think they are lost."""

    def stalled(self, said):
        self.job = self.write_job(steps=1500)
        supervisor, join = self.supervise()
        for _ in range(2):
            self.start("join", *join, "--slots", 2)
        self.wait_for_nodes(2)
        report = self.folder / "report.json"
        client = self.start("submit", self.job, "--state", "state", "--ranks", 4, "--threads", 1, "--report", report)
        wait_for(lambda: said in client.stderr or not client.running(), said)
        ranks = set(self.kinds().get("rank", []))
        os.kill(supervisor.pid, signal.SIGSTOP)
        wait_for(lambda: "the supervisor is lost" in client.stderr, "it is given up")
        nodes = [p for p in self.started if p.popen.args[1] == "join"]
        wait_for(lambda: all("the supervisor is lost" in node.stderr for node in nodes), "nodes have given it up")
        os.kill(supervisor.pid, signal.SIGCONT)
        self.assertEqual(client.wait(), 0, client.stderr)
        self.assertTrue(supervisor.running())
        self.assertIn("starts again", supervisor.stderr)
        quiet = self.train("--ranks", 1, "--threads", 2)
        self.assertEqual(json.loads(report.read_text())["final_digest"], quiet["final_digest"])
        return ranks

    def test_of_a_run_that_a_shell_suspends(self):
        self.job = self.write_job(steps=600)
        report = self.folder / "report.json"
        run = self.start("run", self.job, "--ranks", 2, "--nodes", 2, "--threads", 1, "--report", report)
        self.wait_for_step(run)
        os.kill(run.pid, signal.SIGSTOP)
        until = time.monotonic() + 2.5  # longer than any ping may take
        wait_for(lambda: time.monotonic() > until, "the time has passed")
        os.kill(run.pid, signal.SIGCONT)
        self.assertEqual(run.wait(), 0, run.stderr)
        quiet = self.train("--ranks", 1, "--threads", 2)
        self.assertEqual(json.loads(report.read_text())["final_digest"], quiet["final_digest"])

    def test_while_ranks_train(self):
        ranks = self.stalled("step ")
        self.assertEqual(len(ranks), 4)

    def test_while_ranks_start(self):
        self.stalled("starting 4 ranks")


class SupervisorLoss(ClusterTest):
    """The supervisor is killed: nodes train on without it, and the next one finds the job."""

    STEPS = 2000

    def setUp(self):
        super().setUp()
        self.job = self.write_job(steps=self.STEPS)
        self.report = self.folder / "adopted.json"

    def begin(self, *arguments):
        self.supervisor, self.join = self.supervise()
        self.nodes = [self.start("join", *self.join, "--slots", 2) for _ in range(2)]
        self.wait_for_nodes(2)
        self.client = self.start("submit", self.job, "--state", "state", "--ranks", 4, "--threads", 1, "--report",
                                 self.report, *arguments)
        self.wait_for_step(self.client)
        self.ranks = sorted(self.kinds()["rank"])

    def test_whoever_comes_back_after_the_end_hears_of_it(self):
        self.begin()
        os.kill(self.client.pid, signal.SIGSTOP)  # for longer than its supervisor waits for it
        wait_for(lambda: not self.status()["jobs"], "the job is over")
        self.supervisor.popen.kill()
        self.supervisor.wait()
        self.restart_supervisor()
        os.kill(self.client.pid, signal.SIGCONT)
        self.assertEqual(self.client.wait(), 0, self.client.stderr)
        self.assertIn("its report was lost with the supervisor", self.client.stderr)

    def kill_supervisor(self):
        self.supervisor.popen.kill()
        self.supervisor.wait()
        for node in self.nodes:
            if node.running():
                wait_for(lambda: node.stderr.count("is lost") > node.stderr.count("is back"), "the node has noticed")

    def restart_supervisor(self, state="state"):
        self.supervisor, _ = self.supervise(state)

    def wait_until_ranks_have_worked(self):
        """For a while: it shows in the CPU time of those that live."""
        before = cpu_ticks(self.ranks)
        wait_for(lambda: cpu_ticks(self.ranks) > before + 20, "the ranks work")

    def wait_until_adopted(self):
        """The job as its supervisor shows it."""
        return wait_for(lambda: next((j for j in self.status()["jobs"] if j["phase"] == "running"), None),
                        "the job is adopted")

    def expect_the_bits_of_a_quiet_run(self):
        self.assertEqual(self.client.wait(), 0, self.client.stderr)
        report = json.loads(self.report.read_text())
        quiet = self.train("--ranks", 1, "--threads", 2)
        self.assertEqual([s["step"] for s in report["steps"]], list(range(1, self.STEPS + 1)))
        self.assertEqual([s["digest"] for s in report["steps"]], [s["digest"] for s in quiet["steps"]])
        self.assertEqual(report["final_digest"], quiet["final_digest"])
        return report

    def test_training_goes_on_without_one_and_the_next_disturbs_nobody(self):
        self.begin("--save", "model")
        at = self.status()["jobs"][0]["step"]
        self.kill_supervisor()
        self.wait_until_ranks_have_worked()
        self.restart_supervisor()
        job = self.wait_until_adopted()
        self.assertGreater(job["step"], at)
        self.assertEqual(job["generation"], "1.1")
        self.assertEqual(sorted(rank["pid"] for rank in job["ranks"]), self.ranks)
        report = self.expect_the_bits_of_a_quiet_run()
        self.assertEqual(report["incidents"], [])
        self.assertTrue((self.folder / "model" / "model.safetensors").exists())
        for node in self.nodes:
            self.assertIn("the supervisor is back (epoch 2)", node.stderr)

    def test_a_rank_that_dies_without_one_is_succeeded_by_the_next(self):
        self.begin()
        self.kill_supervisor()
        os.kill(self.ranks[1], signal.SIGKILL)
        wait_for(lambda: self.ranks[1] not in self.kinds().get("rank", []), "the killed process is gone")
        self.restart_supervisor()
        report = self.expect_the_bits_of_a_quiet_run()
        self.assertEqual(report["incidents"][0]["kind"], "rank lost")
        self.assertIn("while there was no supervisor", report["incidents"][0]["why"])
        self.assertEqual(report["steps"][-1]["generation"].split(".")[0], "2")

    def test_incidents_of_the_former_one_are_in_the_report(self):
        self.begin()
        os.kill(self.ranks[0], signal.SIGKILL)
        job = wait_for(lambda: next((j for j in self.status()["jobs"] if j["incidents"] and j["phase"] == "running"), None),
                       "the rank is succeeded")
        wait_for(lambda: self.status()["jobs"][0]["step"] > job["step"] + 2, "training goes on")
        self.kill_supervisor()
        self.restart_supervisor()
        report = self.expect_the_bits_of_a_quiet_run()
        incident = report["incidents"][0]
        self.assertEqual((incident["id"], incident["kind"]), (1, "rank lost"))
        times = [incident[phase] for phase in ("detected_s", "fenced_s", "resumed_s", "first_commit_s")]
        self.assertEqual(times, sorted(times))
        self.assertGreater(times[0], 0)

    def test_a_node_that_dies_without_one_is_succeeded_by_the_next(self):
        self.begin()
        self.kill_supervisor()
        self.nodes[0].popen.kill()
        self.restart_supervisor()
        report = self.expect_the_bits_of_a_quiet_run()
        self.assertEqual(report["incidents"][0]["kind"], "node lost")

    def test_one_that_dies_within_a_generation_change_is_succeeded(self):
        self.begin()
        os.kill(self.ranks[0], signal.SIGKILL)
        self.kill_supervisor()
        self.restart_supervisor()
        self.expect_the_bits_of_a_quiet_run()

    def test_it_may_die_again_and_again(self):
        self.begin()
        for epoch in range(2, 5):
            self.kill_supervisor()
            self.restart_supervisor()
            wait_for(lambda: all(f"epoch {epoch})" in node.stderr for node in self.nodes), "the nodes are back")
        self.expect_the_bits_of_a_quiet_run()

    def test_a_job_that_waits_for_slots_waits_on(self):
        self.supervisor, self.join = self.supervise()
        self.nodes = []
        self.client = self.start("submit", self.job, "--state", "state", "--ranks", 2, "--threads", 1, "--report",
                                 self.report)
        wait_for(lambda: [j["phase"] for j in self.status()["jobs"]] == ["waiting for slots"], "the job is accepted")
        self.kill_supervisor()
        self.restart_supervisor()
        self.nodes = [self.start("join", *self.join, "--slots", 2)]
        self.expect_the_bits_of_a_quiet_run()

    def test_a_copy_of_an_older_state_is_refused_by_the_nodes_and_ends(self):
        self.begin()
        shutil.copytree(self.folder / "state", self.folder / "copy")
        self.kill_supervisor()
        self.restart_supervisor()
        self.wait_until_adopted()
        self.kill_supervisor()
        self.restart_supervisor("copy")
        self.assertEqual(self.supervisor.wait(), 3, self.supervisor.stderr)
        self.assertIn("has been succeeded", self.supervisor.stderr)
        self.assertIn("older copy", "".join(node.stderr for node in self.nodes))
        self.restart_supervisor()
        self.expect_the_bits_of_a_quiet_run()

    def test_another_cluster_is_refused_by_the_nodes(self):
        self.begin()
        shutil.copytree(self.folder / "state", self.folder / "other", ignore=shutil.ignore_patterns("journal"))
        self.kill_supervisor()
        port = int(self.join[0].rsplit(":", 1)[1])
        other = self.start("supervise", "--listen", f"127.0.0.1:{port}", "--state", "other")
        wait_for(lambda: all("another cluster" in node.stderr for node in self.nodes), "the nodes refuse it")
        other.popen.kill()
        other.wait()
        self.restart_supervisor()
        job = self.wait_until_adopted()
        self.assertEqual(job["generation"], "1.1")
        self.assertEqual(sorted(rank["pid"] for rank in job["ranks"]), self.ranks)

    def test_one_that_cannot_keep_its_promises_goes_and_its_nodes_stay(self):
        self.begin()
        full = (self.folder / "state" / "journal").stat().st_size
        resource.prlimit(self.supervisor.pid, resource.RLIMIT_FSIZE, (full, resource.RLIM_INFINITY))
        self.assertEqual(self.supervisor.wait(), 1)
        self.assertIn("nothing is journaled any more", self.supervisor.stderr)
        self.restart_supervisor()
        job = self.wait_until_adopted()
        self.assertEqual(job["generation"], "1.1")
        self.expect_the_bits_of_a_quiet_run()

    def park(self):
        self.job = self.write_job(steps=100000, **{"precision": "resilience: { orphan_limit: 2 }\nprecision"})
        self.begin()
        self.kill_supervisor()
        for node in self.nodes:
            wait_for(lambda: "none came within 2 s; its ranks are parked" in node.stderr, "the node parks", 15)
        self.assertEqual(self.client.wait(15), 3)
        wait_for(lambda: self.rest(), "every rank holds its vote back")

    def rest(self):
        """Whether no rank works; what they do to hear of each other is little."""
        before, began = cpu_ticks(self.ranks), time.monotonic()
        wait_for(lambda: time.monotonic() - began > 0.5, "half a second has passed")
        return cpu_ticks(self.ranks) - before <= 5

    def test_past_the_orphan_limit_ranks_are_parked_and_the_next_one_wakes_them_where_they_were(self):
        self.park()
        self.restart_supervisor()
        job = self.wait_until_adopted()
        at = job["step"]
        self.assertEqual((job["generation"], job["incidents"]), ("1.1", 0))
        self.assertEqual(sorted(rank["pid"] for rank in job["ranks"]), self.ranks)
        wait_for(lambda: self.status()["jobs"][0]["step"] > at + 10, "it trains on")
        self.assertEqual(self.status()["jobs"][0]["generation"], "1.1")

    def test_a_parked_node_ends_when_it_is_told_to(self):
        self.park()
        for node in self.nodes:
            os.kill(node.pid, signal.SIGTERM)
        for node in self.nodes:
            self.assertEqual(node.wait(), 130, node.stderr)
        self.assert_nothing_left()


def cpu_ticks(pids):
    """Of the processes among `pids` that live, user and system time together."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                total += sum(int(n) for n in stat.read().rsplit(")", 1)[1].split()[11:13])
        except OSError:
            pass
    return total


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return int(stat.read().rsplit(")", 1)[1].split()[1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
