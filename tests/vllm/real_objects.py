"""The worker extension on vLLM's own manager and estimator classes, without a GPU.

The classes come from vLLM itself (PYTHONPATH names its Python files); their kernels run under Triton's
interpreter, and what only CUDA has (streams, events, pinned memory) is replaced below.

usage: PYTHONPATH=VLLM-TREE python3 unittest_tap.py real_objects.py EXTENSION-FOLDER VERSION
"""

import os
import sys
import unittest
from contextlib import contextmanager

os.environ["TRITON_INTERPRET"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # else vLLM does without Triton where there is no device
sys.path.insert(0, sys.argv[1])

import numpy  # noqa: E402
import torch  # noqa: E402
import vllm  # noqa: E402
from vllm.v1.worker.gpu.spec_decode import acceptance_estimator, adaptive_verification  # noqa: E402

from trimtab_vllm import Worker  # noqa: E402

SLOTS, POSITIONS, VOCABULARY = 6, 4, 33
CPU = torch.device("cpu")


class Waits:
    """A stream or an event of a device that is never busy."""

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


@contextmanager
def on_stream(*args):
    yield


torch.cuda.Stream = torch.cuda.Event = Waits
torch.cuda.current_stream = lambda device=None: Waits()
adaptive_verification.stream = on_stream
pinned = adaptive_verification.CpuGpuBuffer


class Buffer(pinned):
    def __init__(self, *size, **kwargs):
        super().__init__(*size, **{**kwargs, "pin_memory": False})


adaptive_verification.CpuGpuBuffer = Buffer


class Box:
    def __init__(self, **members):
        self.__dict__.update(members)


class Rank(Worker):
    """vLLM's worker as the extension sees it: the model runner with the real objects."""

    def __init__(self, rank=0):
        self.rank = rank
        states = Box(
            num_speculative_steps=POSITIONS,
            device=CPU,
            max_num_reqs=SLOTS,
            max_num_batched_tokens=64,
            req_id_to_index={"r%d" % i: i for i in range(SLOTS)},
            num_computed_tokens_np=numpy.full(SLOTS, 10),
            prefill_len=Box(np=numpy.full(SLOTS, 10)),
        )
        with torch.inference_mode():
            manager = adaptive_verification.AdaptiveVerificationManager(
                states, torch.zeros(SLOTS + 1, dtype=torch.int32), 1, 10**6
            )
            estimator = acceptance_estimator.OnlineAcceptanceEstimator(SLOTS, POSITIONS, CPU)
        manager.cost_tables = adaptive_verification.build_cost_tables_from_curves(
            [(1, 0.5), (6, 1.0)], [(n, 1.0 + 0.25 * n) for n in range(1, 65)], SLOTS, 64
        )
        for slot in manager._stale_confidences:
            slot.np[:] = [0.9, 0.4, 0.2, 0.0]
        self.model_runner = Box(
            adaptive_verification=manager, speculator=Box(acceptance_estimator=estimator)
        )
        self.manager, self.estimator = manager, estimator

    def budget(self):
        names = ["r0", "r1", "r2"]
        self.manager.get_num_tokens(
            dict.fromkeys(names, POSITIONS + 1), {name: [0] * POSITIONS for name in names}
        )
        return self.manager._batch_budget[2]

    @torch.inference_mode()
    def draft(self, seed):
        """One draft forward of three requests with the engine's own kernels: the confidences."""
        logits = torch.randn(3, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 4
        confidence = torch.zeros(SLOTS, POSITIONS)
        for position in range(POSITIONS):
            self.estimator.predict(
                logits.roll(position, 1) / (position + 1),
                torch.tensor([0, 1, 2], dtype=torch.int32),
                torch.tensor(position),
                confidence,
                torch.ones(SLOTS),
            )
        return confidence[:3].clone()

    @torch.inference_mode()
    def grade(self, sampled=(3, 1, 5), rejected=(1, 2, 0)):
        self.estimator.step(
            torch.tensor([0, 1, 2], dtype=torch.int32),
            torch.tensor(sampled, dtype=torch.int32),
            torch.tensor(rejected, dtype=torch.int32),
        )


class Real(unittest.TestCase):
    def test_the_version_under_test(self):
        self.assertEqual(vllm.__version__, sys.argv[2])

    def test_swap_read_back_and_restore(self):
        node = [Rank(0), Rank(1)]
        own = [rank.manager.cost_tables for rank in node]
        trimmed = node[0].budget()
        self.assertLess(trimmed, 3 * POSITIONS)
        for rank in node:
            reply = rank.trimtab_set_mode("n", "fixed", 1)
            self.assertEqual((reply["error"], reply["mode"]), ("", "fixed"))
            self.assertEqual(rank.budget(), 3 * POSITIONS)
            self.assertEqual(rank.manager.cost_tables[1].dtype, own[0][1].dtype)
            reply = rank.trimtab_set_mode("n", "adaptive", 2)
            self.assertEqual((reply["error"], reply["mode"]), ("", "adaptive"))
            self.assertEqual(rank.budget(), trimmed)
        for rank, tables in zip(node, own):
            self.assertIs(rank.manager.cost_tables, tables)

    def test_the_engines_cap_still_holds(self):
        rank = Rank()
        rank.manager._max_total_logits = 7
        rank.trimtab_set_mode("n", "fixed", 1)
        self.assertEqual(rank.budget(), 4)

    def test_compaction_after_the_switch(self):
        """What follows in the same step takes the whole block as it is."""
        rank = Rank()
        rank.trimtab_set_mode("n", "fixed", 1)
        rank.budget()
        drafts = numpy.full(3, POSITIONS, dtype=numpy.int32)
        tokens, _ = rank.manager.compact_batch(drafts, drafts + 1, numpy.arange(4) * 5)
        self.assertEqual(tokens.tolist(), [POSITIONS + 1] * 3)

    def test_counts(self):
        rank = Rank()
        rank.trimtab_status("n")
        admitted = rank.budget()
        reply = rank.trimtab_status("n")
        self.assertEqual((reply["missing"], reply["positions"]), ([], POSITIONS))
        self.assertEqual(
            (reply["steps"], reply["scheduled"], reply["admitted"]), (1, 3 * POSITIONS, admitted)
        )

    def test_coefficients_are_written_where_the_kernels_read(self):
        rank = Rank()
        before = rank.draft(1)
        place = rank.estimator.slope.data_ptr(), rank.estimator.intercepts.data_ptr()
        self.assertEqual(rank.trimtab_hold("n", 1, 1)["error"], "")
        intercepts = [0.5, -0.25, -1.0, -2.0]
        reply = rank.trimtab_set_coefficients("n", 0.125, intercepts, 2)
        self.assertEqual((reply["error"], reply["slope"]), ("", 0.125))
        self.assertEqual(reply["intercepts"], intercepts)
        self.assertEqual(
            (rank.estimator.slope.data_ptr(), rank.estimator.intercepts.data_ptr()), place
        )
        after = rank.draft(1)
        self.assertFalse(torch.allclose(before, after))
        wanted = torch.sigmoid(0.125 * rank.estimator.features[:3] + torch.tensor(intercepts))
        self.assertTrue(torch.allclose(after, wanted, atol=1e-6))

    def test_held_off_and_resumed(self):
        rank = Rank()
        rank.draft(2)
        rank.trimtab_hold("n", 1, 1)
        for _ in range(rank.estimator.REFIT_INTERVAL.bit_length() * 3):
            rank.grade()
        self.assertEqual(rank.estimator._refits, 0)
        self.assertGreater(float(rank.estimator.counts.sum()), 0)
        rank.trimtab_set_coefficients("n", 0.7, [0.0] * POSITIONS, 2)
        self.assertEqual(rank.trimtab_hold("n", 0, 3)["error"], "")
        self.assertEqual(float(rank.estimator.counts.sum()), 0)
        rank.draft(2)
        interval = type(rank.estimator).REFIT_INTERVAL
        self.assertEqual(rank.estimator.REFIT_INTERVAL, interval)
        for _ in range(interval):
            rank.grade()
        reply = rank.trimtab_coefficients("n")
        self.assertEqual(rank.estimator._refits, 1)
        self.assertNotEqual(reply["slope"], numpy.float32(0.7).item())

    def test_labels_are_what_the_engine_graded(self):
        rank = Rank()
        rank.draft(3)
        rank.trimtab_labels("n", 1)
        rank.grade()
        reply = rank.trimtab_labels("n", 0)
        features = rank.estimator.features
        self.assertEqual([row[:2] for row in reply["rows"]], [[0, 2], [0, 0], [0, 4]])
        self.assertEqual([len(row) - 2 for row in reply["rows"]], [3, 2, 4])
        for slot, row in enumerate(reply["rows"]):
            for position, feature in enumerate(row[2:]):
                self.assertAlmostEqual(feature, float(features[slot, position]), places=3)
        # observed in each position: all earlier ones accepted, and admitted
        self.assertEqual(rank.estimator.counts.tolist(), [3.0, 2.0, 2.0, 1.0])

    def test_nan_in_the_engine_is_null(self):
        rank = Rank()
        with torch.inference_mode():
            rank.estimator.slope.fill_(float("nan"))
        reply = rank.trimtab_coefficients("n")
        self.assertEqual((reply["error"], reply["slope"]), ("", None))

    def test_restore(self):
        rank = Rank()
        own = rank.manager.cost_tables
        rank.trimtab_status("n")
        rank.trimtab_set_mode("n", "fixed", 1)
        rank.trimtab_hold("n", 1, 2)
        rank.trimtab_labels("n", 1)
        self.assertEqual(rank.trimtab_restore("n", 3)["error"], "")
        self.assertIs(rank.manager.cost_tables, own)
        for name in ("get_num_tokens", "step", "REFIT_INTERVAL"):
            self.assertNotIn(name, vars(rank.manager))
            self.assertNotIn(name, vars(rank.estimator))
