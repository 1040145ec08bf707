"""One digest for a job, whatever its ranks and stages: examples/bits-*.yaml over generated text. Sample in every run, all
of the table under the label slow."""
import pathlib
import struct
import unittest

from cluster import ClusterTest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
RANKS = [1, 2, 3, 4, 5, 6, 8]
STAGES = [1, 2, 4]


class BitsTest(ClusterTest):
    def setUp(self):
        super().setUp()
        # Words in a fixed order that is no repetition: squares modulo a prime.
        words = [b"kin", b"tsugi", b" joins", b" what", b" broke", b", with", b" gold.", b"\n"]
        text = b"".join(words[i * i % 10007 % 8] for i in range(20_000))
        (self.folder / "build/data").mkdir(parents=True)
        (self.folder / "build/data/train.bin").write_bytes(struct.pack(f"<{len(text)}H", *text))

    def digest(self, example, ranks, stages, *more):
        report = self.train("--ranks", ranks, "--stages", stages, "--threads", 1, *more, job=EXAMPLES / example)
        self.assertEqual(len(report["steps"]), 20)
        self.assertEqual(sum(r["cells"] for r in report["per_rank"]), 20 * 8 * stages)
        return report["final_digest"]

    def check(self, example, layouts):
        expected = self.digest(example, 1, 1)
        for ranks, stages, *more in layouts:
            with self.subTest(example=example, ranks=ranks, stages=stages, more=more):
                self.assertEqual(self.digest(example, ranks, stages, *more), expected)


class Sample(BitsTest):
    def test_gpt2(self):
        self.check("bits-gpt2.yaml", [(3, 2), (4, 4, "--nodes", 2)])

    def test_llama(self):
        self.check("bits-llama.yaml", [(5, 2, "--transport", "ucx"), (2, 4)])

    def test_gpt2_in_bfloat16(self):
        self.check("bits-gpt2-bf16.yaml", [(3, 4)])

    def test_llama_in_bfloat16(self):
        self.check("bits-llama-bf16.yaml", [(8, 1)])

    def test_another_seed_gives_another_digest(self):
        text = (EXAMPLES / "bits-gpt2.yaml").read_text()
        (self.folder / "other.yaml").write_text(text.replace("seed: 7", "seed: 8"))
        self.assertNotEqual(self.digest("bits-gpt2.yaml", 2, 1), self.digest(self.folder / "other.yaml", 2, 1))


class Table(BitsTest):
    def check_all(self, example):
        self.check(example, [(ranks, stages) for stages in STAGES for ranks in RANKS])

    def test_gpt2(self):
        self.check_all("bits-gpt2.yaml")

    def test_llama(self):
        self.check_all("bits-llama.yaml")

    def test_gpt2_in_bfloat16(self):
        self.check_all("bits-gpt2-bf16.yaml")

    def test_llama_in_bfloat16(self):
        self.check_all("bits-llama-bf16.yaml")


if __name__ == "__main__":
    unittest.main(verbosity=2)
