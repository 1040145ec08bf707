"""Actors that crash in their processes (DESIGN 5, scenario 18): each is restarted where it is, whoever else there is does not
notice, and the bits are those of a run without faults."""
import json
import unittest

from cluster import ClusterTest, wait_for


def flat(actors):
    """{name: actor} of the tree that `status --json` shows."""
    found = {}
    for actor in actors:
        found[actor["actor"]] = actor
        found.update(flat(actor["children"]))
    return found


class ActorCrash(ClusterTest):
    def actors(self):
        return flat(self.status()["actors"])

    def processes(self):
        kinds = self.kinds()
        return {kind: sorted(kinds.get(kind, [])) for kind in ("supervise", "join", "rank")}

    def crash(self, name):
        injected = self.run_command("inject", "crash", "--on", f"actor:{name}", "--state", self.folder / "state")
        self.assertEqual(injected.popen.returncode, 0, injected.stderr)

    def goes_on_after(self, step):
        self.assertTrue(self.submitted.running(), self.submitted.stderr)
        job = self.status()["jobs"][0]
        return job["phase"] == "running" and job["step"] > step

    def begin(self, steps, *arguments):
        self.job = self.write_job(steps=steps)
        self.supervisor, join = self.supervise()
        for _ in range(2):
            self.start("join", *join, "--slots", 2)
        self.wait_for_nodes(2)
        self.report = self.folder / "crashed.json"
        self.submitted = self.start("submit", self.job, "--state", self.folder / "state", "--ranks", 4, "--threads", 1,
                                    "--report", self.report, *arguments)
        self.wait_for_step(self.submitted)
        wait_for(lambda: len([n for n in self.actors() if n.startswith("stage@")]) == 4, "every rank has told its actors")

    def crash_and_expect_it_back(self, name):
        before = self.actors()
        step = self.status()["jobs"][0]["step"]
        self.crash(name)
        wait_for(lambda: self.actors()[name]["incarnation"] == before[name]["incarnation"] + 1, f"{name} is back")
        after = self.actors()
        self.assertIn("injected", after[name]["last_crash"])
        untouched = {n: a["incarnation"] for n, a in before.items() if n != name}
        self.assertEqual({n: a["incarnation"] for n, a in after.items() if n != name}, untouched)
        wait_for(lambda: self.goes_on_after(step), f"training goes on after the crash of {name}")

    def expect_the_bits_of_a_quiet_run(self, steps):
        report = json.loads(self.report.read_text())
        self.assertEqual([s["step"] for s in report["steps"]], list(range(1, steps + 1)))
        quiet = self.train("--ranks", 1, "--threads", 2, "--steps", steps)
        self.assertEqual(quiet["steps"][-1]["step"], steps)
        known = [s for s in report["steps"] if s["digest"]]  # of the last step before a cancel nobody has told
        self.assertGreaterEqual(len(known), steps - 1)
        self.assertEqual([s["digest"] for s in known], [s["digest"] for s in quiet["steps"]][:len(known)])
        self.assertEqual(sum(i["steps_lost"] for i in report["incidents"]), 0)
        return report, quiet

    def test_every_kind_of_actor_is_restarted_in_its_process_and_the_bits_stay(self):
        self.begin(30_000, "--save", self.folder / "model")  # more than there is time for: it is cancelled
        processes = self.processes()
        kinds = ["journal_writer", "checkpoint_coordinator", "job_supervisor", "node_supervisor@1", "node_job@2",
                 "rank_supervisor@1", "rank@2", "stage@3", "cluster_supervisor"]
        self.assertEqual({name.split("@")[0] for name in self.actors()}, {name.split("@")[0] for name in kinds})
        for kind in kinds:
            self.crash_and_expect_it_back(kind)
        self.assertEqual(self.processes(), processes)
        self.run_command("cancel", "--state", self.folder / "state")
        self.assertEqual(self.submitted.wait(), 130, self.submitted.stderr)
        self.expect_the_bits_of_a_quiet_run(len(json.loads(self.report.read_text())["steps"]))

    def test_a_job_whose_supervisor_and_coordinator_crashed_is_saved_and_ends(self):
        self.begin(2500, "--save", self.folder / "model")
        for name in ("job_supervisor", "checkpoint_coordinator", "job_supervisor"):
            self.crash_and_expect_it_back(name)
        self.assertEqual(self.submitted.wait(), 0, self.submitted.stderr)
        report, quiet = self.expect_the_bits_of_a_quiet_run(2500)
        self.assertEqual(report["final_digest"], quiet["final_digest"])
        self.assertTrue((self.folder / "model" / "model.safetensors").exists())

    def epoch(self):
        """None while nobody answers."""
        asked = self.run_command("status", "--json", "--state", self.folder / "state")
        return json.loads(asked.stdout)["epoch"] if asked.popen.returncode == 0 else None

    def spend(self, name, incarnation=1):
        """Crashes it as often as it is restarted, and once more."""
        for i in range(4):
            self.crash(name)
            wait_for(lambda: self.actors()[name]["incarnation"] == incarnation + i + 1, f"{name} is back")
        self.crash(name)

    def test_a_spent_budget_is_the_parents_crash_and_in_the_end_the_end_of_a_process(self):
        self.begin(30_000)
        processes = self.processes()
        self.spend("stage@3")
        wait_for(lambda: self.actors()["rank@3"]["incarnation"] == 2, "the rank is restarted with its stage")
        wait_for(lambda: self.actors()["stage@3"]["incarnation"] == 6, "the stage is back")
        wait_for(lambda: self.goes_on_after(self.status()["jobs"][0]["step"]), "training goes on")
        self.assertIn("stage crashed again after 4 restarts", self.actors()["rank@3"]["last_crash"])
        self.assertEqual(self.processes(), processes)
        self.spend("rank@2")
        wait_for(lambda: "rank@2" not in self.actors() and "rank@4" in self.actors(), "another rank is in its place")
        self.assertEqual(len(set(self.processes()["rank"]) & set(processes["rank"])), 3)
        self.run_command("cancel", "--state", self.folder / "state")
        self.assertEqual(self.submitted.wait(), 130, self.submitted.stderr)
        self.expect_the_bits_of_a_quiet_run(len(json.loads(self.report.read_text())["steps"]))

    def test_a_root_whose_restarts_do_not_help_starts_again_from_its_journal_and_adopts(self):
        self.begin(30_000)
        before = self.status()
        processes = self.processes()
        self.spend("cluster_supervisor")
        wait_for(lambda: "starts again from its journal" in self.supervisor.stderr, "the process starts itself again")
        wait_for(lambda: self.epoch() == before["epoch"] + 1, "it is back")
        wait_for(lambda: self.goes_on_after(before["jobs"][0]["step"]), "the job goes on")
        wait_for(lambda: "stage@3" in self.actors(), "nodes and ranks have told their actors again")
        self.assertEqual(self.status()["jobs"][0]["generation"], before["jobs"][0]["generation"])
        self.assertEqual(self.processes(), processes)

    def test_a_wrong_name_is_refused_with_the_right_ones(self):
        self.begin(30_000)
        wrong = self.run_command("inject", "crash", "--on", "actor:planner", "--state", self.folder / "state")
        self.assertEqual(wrong.popen.returncode, 3)
        for words in ("no actor 'planner'", "job_supervisor", "node_job@1", "stage@3"):
            self.assertIn(words, wrong.stderr)
        self.run_command("cancel", "--state", self.folder / "state")
        self.assertEqual(self.submitted.wait(), 130)


if __name__ == "__main__":
    unittest.main()
