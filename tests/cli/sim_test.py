"""kintsugi sim: exit codes, refusals by file, line and key, reports, and the same hash for the same seed."""
import json
import unittest

from cluster import ClusterTest

SCENARIO = """scenario: small
seed: 1
duration: 12h
workload: { model: llama-3-8b, sequences: 128, lanes: 128, parallel: { tensor: 8, stages: 2 } }
cluster: { nodes: 16, spares: 1, ranks_per_node: 8, system: h100-roce-400g }
faults:
  - { class: device, every: 2h }
repair: { device: 3h }
"""


class Sim(ClusterTest):
    def write(self, old="", new="", name="s.yaml"):
        self.assertIn(old, SCENARIO)
        path = self.folder / name
        path.write_text(SCENARIO.replace(old, new) if old else SCENARIO)
        return path

    def hash_of(self, *arguments):
        self.expect(0, "sim", self.write(), "--report", "r.json", *arguments, says=["event hash", "simulated"])
        report = json.loads((self.folder / "r.json").read_text())
        self.assertTrue(report["simulated"])
        self.assertGreater(report["goodput"], 0.5)
        return report["event_hash"]

    def test_a_seed_names_a_run(self):
        self.assertEqual(self.hash_of(), self.hash_of("--seed", "1"))
        self.assertNotEqual(self.hash_of(), self.hash_of("--seed", "2"))

    def test_the_page_is_written(self):
        self.expect(0, "sim", self.write(), "--html", "p.html")
        self.assertIn("Simulated.", (self.folder / "p.html").read_text())

    def test_what_is_wrong_is_refused_with_file_line_and_key(self):
        for old, new, says in [("duration", "durations", "s.yaml:3: durations: unknown key"),
                               ("every: 2h", "every: -2h", "s.yaml:7: faults[0].every"),
                               ("spares: 1", "racks: 17", "s.yaml:5: cluster.racks"),
                               ("every: 2h", "every: 2h, rate: 1", "s.yaml:7: faults[0].rate: unknown key"),
                               ("repair:", "trace: t.csv\nrepair:", "t.csv:3: start: node 3 is still out")]:
            (self.folder / "t.csv").write_text("start,end,node,class\n0,10,3,node\n5,6,3,node\n")
            with self.subTest(new=new):
                self.expect(2, "sim", self.write(old, new), says=[says])

    def test_usage(self):
        self.expect(0, "sim", "--help", says=["Example", "kintsugi sim"])
        self.expect(2, "sim", says=["scenario", "--swarm"])
        self.expect(2, "sim", "--swarm", 5, "--report", "r.json", says=["--report"])
        self.expect(2, "sim", "--swarm", -1, says=["whole number"])
        self.expect(2, "sim", self.write(), "--seed", "99999999999999999999", says=["whole number"])
        self.expect(0, "sim", "--swarm", 5, "--seed", 1, says=["5 runs"])
        self.expect(2, "sim", "nowhere.yaml", says=["nowhere.yaml"])
        self.expect(2, "sim", self.write(), "--table", "long", says=["--table"])
        self.expect(2, "sim", self.write(), "--report", "nowhere/r.json", says=["nowhere"])


if __name__ == "__main__":
    unittest.main()
