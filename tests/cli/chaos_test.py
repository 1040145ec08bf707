"""`kintsugi chaos`: a scenario's faults strike a live cluster, and the job's bits are those of a quiet run."""
import json
import unittest

from cluster import ClusterTest

SCENARIO = """\
scenario: live
seed: 3
duration: {duration}
workload: {{ model: gpt2-124m, sequences: 8, lanes: 8, parallel: {{ stages: 2 }} }}
cluster: {{ nodes: 3, ranks_per_node: 2, system: h100-roce-400g }}
faults:
{faults}
"""


class Chaos(ClusterTest):
    def write_scenario(self, *faults, duration="60s"):
        path = self.folder / "scenario.yaml"
        path.write_text(SCENARIO.format(duration=duration, faults="\n".join(f"  - {{ {fault} }}" for fault in faults)))
        return path

    def start_cluster(self, steps):
        _, join = self.supervise()
        for _ in range(3):
            self.start("join", *join, "--slots", 2)
        self.wait_for_nodes(3)
        self.report = self.folder / "report.json"
        client = self.start("submit", self.write_job(steps=steps), "--state", "state", "--threads", 1, "--report", self.report)
        self.wait_for_step(client)
        return client

    def test_what_is_struck_is_told_and_the_bits_stay(self):
        client = self.start_cluster(steps=1200)
        scenario = self.write_scenario("cause: dies, class: process, at: 0.1s, target: 0",
                                       "cause: goes, class: node, at_step: 300, target: 2",
                                       "cause: upgrade, class: maintenance, at_step: 600, target: 1")
        chaos = self.run_command("chaos", scenario, "--state", "state", "--json")
        self.assertEqual(chaos.popen.returncode, 0, chaos.stderr)
        told = json.loads(chaos.stdout)
        self.assertEqual([(f["cause"], f["fault"], f["struck"]) for f in told["faults"]],
                         [("dies", "kill", True), ("goes", "kill", True), ("upgrade", "drain", True)])
        self.assertEqual(client.wait(), 0, client.stderr)
        report = json.loads(self.report.read_text())
        self.assertLessEqual({"rank lost", "node lost"}, {i["kind"] for i in report["incidents"]})
        quiet = self.train("--ranks", 1, "--threads", 2)
        self.assertEqual([s["digest"] for s in report["steps"]], [s["digest"] for s in quiet["steps"]])

    def test_what_cannot_be_struck_is_refused_before_anything_is(self):
        client = self.start_cluster(steps=10_000_000)
        ranks = self.kinds()["rank"]
        for words, fault in [("straggler", "cause: slow, class: straggler, at: 0s"),
                             ("during_recovery", "cause: more, class: process, during_recovery: 0.5")]:
            scenario = self.write_scenario("cause: dies, class: process, at: 0s", fault)
            refused = self.run_command("chaos", scenario, "--state", "state")
            self.assertEqual(refused.popen.returncode, 2, refused.stderr)
            self.assertIn(words, refused.stderr)
        scenario = self.folder / "scenario.yaml"
        scenario.write_text(scenario.read_text().replace("nodes: 3", "nodes: 4").replace("class: process, during_recovery: 0.5",
                                                                                         "class: process, at: 1s"))
        refused = self.run_command("chaos", scenario, "--state", "state")
        self.assertEqual(refused.popen.returncode, 2, refused.stderr)
        self.assertIn("3 nodes have joined", refused.stderr)
        self.assertEqual(self.kinds()["rank"], ranks)
        self.assertEqual(self.run_command("cancel", "--state", "state").popen.returncode, 0)
        client.wait()

    def test_no_cluster_and_no_scenario_are_said(self):
        self.expect(2, "chaos", "nowhere.yaml", says=["nowhere.yaml"])
        scenario = self.write_scenario("cause: dies, class: process, at: 0s, oops: 1")
        self.expect(2, "chaos", scenario, says=["scenario.yaml:7", "oops"])
        scenario = self.write_scenario("cause: dies, class: process, at: 0s")
        process = self.run_command("chaos", scenario, "--state", "state")
        self.assertIn(process.popen.returncode, (2, 3), process.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
