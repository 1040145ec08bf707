"""The supervisor's machine is lost, its state directory with it; another one takes over from what nodes keep (SCENARIOS 17, 18)."""
import json
import os
import shutil
import signal
import socket

from cluster import ClusterTest, parent_of, wait_for
from faults_test import cpu_ticks


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class SupervisorElsewhere(ClusterTest):
    STEPS = 2000
    NODES = 2

    def setUp(self):
        super().setUp()
        self.job = self.write_job(steps=self.STEPS)
        self.report = self.folder / "adopted.json"
        self.identity = self.folder / "kept-elsewhere.json"

    def begin(self):
        self.first, join = self.supervise()
        self.port = free_port()
        addresses = f"{join[0]},127.0.0.1:{self.port}"
        self.nodes = [self.start("join", addresses, *join[1:], "--slots", 2) for _ in range(self.NODES)]
        wait_for(lambda: sum(n["keeps_journal"] for n in self.status()["nodes"]) == self.NODES, "nodes keep the journal")
        shutil.copy(self.folder / "state" / "identity.json", self.identity)
        self.client = self.start("submit", self.job, "--state", "state", "--ranks", 4, "--threads", 1, "--report",
                                 self.report)
        self.wait_for_step(self.client)
        self.ranks = sorted(self.kinds()["rank"])

    def lose_the_first(self):
        self.first.popen.kill()
        self.first.wait()
        (self.folder / "state").rename(self.folder / "lost")
        for node in self.nodes:
            wait_for(lambda: node.stderr.count("is lost") > node.stderr.count("is back"), "the node has noticed")

    def take_over(self, state="elsewhere"):
        """Another supervisor; whoever follows the job is told where it is."""
        second = self.start("supervise", "--adopt", "--identity", self.identity, "--listen", f"127.0.0.1:{self.port}",
                            "--state", state)
        wait_for(lambda: "--token" in second.stdout or not second.running(), "it has taken over")
        self.assertTrue(second.running(), second.stderr)
        (self.folder / "state").mkdir(exist_ok=True)
        shutil.copy(self.folder / state / "cluster.json", self.folder / "state" / "cluster.json")
        return second

    def wait_until_ranks_have_worked(self):
        before = cpu_ticks(self.ranks)
        wait_for(lambda: cpu_ticks(self.ranks) > before + 20, "the ranks work")

    def adopted(self):
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

    def test_another_machine_takes_over_and_disturbs_nobody(self):
        self.begin()
        at = self.status()["jobs"][0]["step"]
        self.lose_the_first()
        self.wait_until_ranks_have_worked()
        self.take_over()
        job = self.adopted()
        self.assertGreater(job["step"], at)
        self.assertEqual(job["generation"], "1.1")
        self.assertEqual(sorted(rank["pid"] for rank in job["ranks"]), self.ranks)
        report = self.expect_the_bits_of_a_quiet_run()
        self.assertEqual(report["incidents"], [])
        for node in self.nodes:
            self.assertIn("the supervisor is back (epoch 1000)", node.stderr)

    def test_the_former_one_that_comes_back_is_refused_and_ends(self):
        self.begin()
        self.lose_the_first()
        second = self.take_over()
        self.adopted()
        # Its state directory is found again, and it is started; nodes dial it once they lose the other.
        os.kill(second.pid, signal.SIGSTOP)
        former = self.start("supervise", "--listen", "127.0.0.1:0", "--state", "lost")
        self.assertEqual(former.wait(), 3, former.stderr)
        self.assertIn("has been succeeded", former.stderr)
        self.assertIn("--adopt", former.stderr)
        self.assertIn("an older copy", "".join(node.stderr for node in self.nodes))
        os.kill(second.pid, signal.SIGCONT)
        self.expect_the_bits_of_a_quiet_run()

    def test_a_node_lost_together_with_the_supervisor_is_succeeded(self):
        """The node whose rank told the supervisor of every step: the others know them as well."""
        self.begin()
        root = parent_of(min(self.status()["jobs"][0]["ranks"], key=lambda rank: rank["rank"])["pid"])
        self.first.popen.kill()
        self.first.wait()
        shutil.rmtree(self.folder / "state")
        lost, other = sorted(self.nodes, key=lambda node: node.pid != root)
        wait_for(lambda: "is lost" in other.stderr, "the node has noticed")
        self.wait_until_ranks_have_worked()
        lost.popen.kill()
        second = self.take_over()
        self.assertIn("1 nodes that the journal names have not come", second.stdout)
        report = self.expect_the_bits_of_a_quiet_run()
        self.assertEqual([i["kind"] for i in report["incidents"]], ["node lost"])

    def test_without_the_identity_nobody_takes_over(self):
        self.expect(2, "supervise", "--adopt", "--state", "new", "--listen", "127.0.0.1:0",
                    says=["--adopt", "identity.json", "--identity FILE"])
        self.expect(2, "supervise", "--adopt", "--identity", self.job, "--state", "new", "--listen",
                    "127.0.0.1:0")
