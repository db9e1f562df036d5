"""Every path of the worker extension over a stand-in of the objects that it finds in a vLLM worker.

The stand-in keeps the names and the arithmetic that matter (vLLM 0.33): the budget is the first
maximum of (requests + survival) / (draft + verify), the estimator refits every REFIT_INTERVAL steps.
Run with the standard library alone: python3 -m unittest test_worker
"""

import json
import math
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from trimtab_vllm import Worker, control, labels, worker  # noqa: E402


class Tensor:
    """As much of a tensor as the extension touches; `reads` counts what would wait for a device."""

    reads = 0

    def __init__(self, values):
        self.values = list(values)
        self.address = id(self)

    @property
    def shape(self):
        return (len(self.values),)

    def tolist(self):
        Tensor.reads += 1
        return [list(v) if isinstance(v, list) else v for v in self.values]

    def new_tensor(self, values):
        return Tensor(values)

    def copy_(self, other):
        if len(other.values) != len(self.values):
            raise RuntimeError("shapes differ")
        self.values[:] = other.values

    def zero_(self):
        self.values[:] = [0.0] * len(self.values)

    def index_select(self, dimension, index):
        return Tensor([list(self.values[int(i)]) for i in index.values])

    def clamp(self, min):
        return Tensor([max(v, min) for v in self.values])

    def long(self):
        return self

    def clone(self):
        return Tensor(list(self.values))


class Manager:
    def __init__(self):
        self.cost_tables = ([0.5] * 9, [1.0 + 0.2 * i for i in range(65)])
        self._batch_budget = None
        self.survival = [0.9, 0.3, 0.0, 0.0]

    def get_num_tokens(self, num_tokens_per_req, draft_tokens):
        drafts = {name: len(draft_tokens.get(name, ())) for name in num_tokens_per_req}
        base = sum(num_tokens_per_req.values()) - sum(drafts.values())
        scores = sorted((s for n in drafts.values() for s in self.survival[:n]), reverse=True)
        draft, verify = self.cost_tables
        value, best, budget = float(len(drafts)), 0.0, 0
        for admitted in range(len(scores) + 1):
            ratio = value / (draft[len(drafts)] + verify[base + admitted])
            if ratio > best:
                best, budget = ratio, admitted
            value += scores[admitted] if admitted < len(scores) else 0.0
        self._batch_budget = (drafts, {}, budget)
        return base + budget


class Estimator:
    REFIT_INTERVAL = 3

    def __init__(self):
        self.num_speculative_steps = 4
        self.slope = Tensor([0.5])
        self.intercepts = Tensor([-0.2] * 4)
        self.features = Tensor([[1.0, 2.0, 3.0, 4.0], [0.5, 0.25, 0.125, float("nan")]])
        self.info, self.grad, self.counts = Tensor([1.0] * 4), Tensor([1.0] * 4), Tensor([1.0] * 4)
        self._steps_since_refit = self._refits = 0
        self.graded = 0

    def step(self, idx_mapping, num_sampled, num_rejected):
        self.graded += 1
        self._steps_since_refit += 1
        if self._steps_since_refit >= self.REFIT_INTERVAL:
            self._steps_since_refit = 0
            self._refits += 1
            self.slope.values[0] += 0.01


class Box:
    def __init__(self, **members):
        self.__dict__.update(members)


class Engine:
    """What vLLM's worker class is to the mix-in."""

    def __init__(self, rank=0, adaptive=True):
        self.rank = rank
        self.model_runner = Box(
            adaptive_verification=Manager() if adaptive else None,
            speculator=Box(acceptance_estimator=Estimator() if adaptive else None),
        )


class Rank(Engine, Worker):
    pass


def call(node, method, *arguments, **named):
    """collective_rpc: the same call on every rank, answers in the order of ranks, through strict JSON."""
    replies = [getattr(rank, method)(*arguments, **named) for rank in node]
    return json.loads(json.dumps(replies, allow_nan=False))


def budget(rank, requests=2, drafts=4):
    tokens = {str(i): drafts + 1 for i in range(requests)}
    manager = rank.model_runner.adaptive_verification
    manager.get_num_tokens(tokens, {name: [0] * drafts for name in tokens})
    return manager._batch_budget[2]


class Protocol(unittest.TestCase):
    def test_names_are_free(self):
        """vLLM refuses an extension whose public names its worker has already."""
        names = [name for name in dir(Worker) if not name.startswith("__")]
        self.assertTrue(names)
        for name in names:
            self.assertTrue(name.startswith("trimtab_"), name)

    def test_every_answer_carries_nonce_and_rank(self):
        node = [Rank(0), Rank(1)]
        for name in [n for n in dir(Worker) if n.startswith("trimtab_")]:
            for rank, reply in enumerate(call(node, name, "n-1")):
                self.assertEqual((reply["nonce"], reply["rank"]), ("n-1", rank), name)
                self.assertEqual(reply["protocol"], worker.PROTOCOL)

    def test_nothing_raises(self):
        """Whatever is given: no arguments, too many, wrong types, a string splatted into letters."""
        odd = [(), ("n",), ("n", None), ("n", float("nan")), ("n", "x", "y", "z"), tuple("fixed"),
               ("n", [], {}, 3), ("n", -1, -1), (None, float("inf"), [float("nan")], 2**70), ({}, [])]
        for bare in (Rank(), Rank(adaptive=False)):
            for name in [n for n in dir(Worker) if n.startswith("trimtab_")]:
                for arguments in odd:
                    call([bare], name, *arguments)
                    call([bare], name, *arguments, surprise=1)

    def test_a_broken_worker_is_an_answer(self):
        class Hostile:
            rank = 3

            @property
            def model_runner(self):
                raise RuntimeError("device lost")

        class HostileRank(Hostile, Worker):
            pass

        reply = call([HostileRank()], "trimtab_status", "n")[0]
        self.assertEqual(reply["error"], "device lost")
        self.assertEqual(reply["rank"], 3)

    def test_clean(self):
        self.assertEqual(
            worker.clean({"a": float("nan"), 2: [float("-inf"), 1.5, (True, None)]}),
            {"a": None, "2": [None, 1.5, [1, None]]},
        )
        self.assertIsInstance(worker.clean(object()), str)


class Switch(unittest.TestCase):
    def test_adaptive_trims_and_fixed_does_not(self):
        rank = Rank()
        trimmed = budget(rank)
        self.assertLess(trimmed, 8)
        reply = call([rank], "trimtab_set_mode", "n", "fixed", 1)[0]
        self.assertEqual((reply["error"], reply["mode"], reply["generation"]), ("", "fixed", 1))
        self.assertEqual(budget(rank), 8)
        reply = call([rank], "trimtab_set_mode", "n", "adaptive", 2)[0]
        self.assertEqual((reply["error"], reply["mode"]), ("", "adaptive"))
        self.assertEqual(budget(rank), trimmed)

    def test_fixed_verifies_what_has_no_survival(self):
        """The tail's zeros tie: only a strictly decreasing table takes them too."""
        rank = Rank()
        rank.model_runner.adaptive_verification.survival = [0.0] * 4
        call([rank], "trimtab_set_mode", "n", "fixed", 1)
        self.assertEqual(budget(rank), 8)

    def test_the_engines_own_tuple_comes_back(self):
        rank = Rank()
        manager = rank.model_runner.adaptive_verification
        own = manager.cost_tables
        call([rank], "trimtab_set_mode", "n", "fixed", 1)
        forced = manager.cost_tables
        self.assertIs(forced[0], own[0])
        self.assertEqual(len(forced[1]), len(own[1]))
        self.assertTrue(control.is_decreasing(forced[1]))
        call([rank], "trimtab_set_mode", "n", "fixed", 2)
        self.assertIs(manager.cost_tables, forced)
        call([rank], "trimtab_set_mode", "n", "adaptive", 3)
        self.assertIs(manager.cost_tables, own)
        call([rank], "trimtab_set_mode", "n", "adaptive", 4)
        self.assertIs(manager.cost_tables, own)

    def test_tables_that_the_engine_profiled_again_are_not_overwritten(self):
        rank = Rank()
        call([rank], "trimtab_set_mode", "n", "fixed", 1)
        fresh = ([1.0] * 9, [2.0 + i for i in range(65)])
        rank.model_runner.adaptive_verification.cost_tables = fresh
        self.assertEqual(call([rank], "trimtab_status", "n")[0]["mode"], "adaptive")
        call([rank], "trimtab_set_mode", "n", "adaptive", 2)
        self.assertIs(rank.model_runner.adaptive_verification.cost_tables, fresh)

    def test_a_late_command_changes_nothing(self):
        rank = Rank()
        call([rank], "trimtab_set_mode", "n", "adaptive", 5)
        reply = call([rank], "trimtab_set_mode", "late", "fixed", 4)[0]
        self.assertIn("generation 5", reply["error"])
        self.assertEqual(call([rank], "trimtab_status", "n")[0]["mode"], "adaptive")

    def test_restored_when_setting_fails(self):
        class Deaf(Manager):
            """Takes no other table than its own, silently."""

            def __setattr__(self, name, value):
                if name == "cost_tables" and "cost_tables" in self.__dict__:
                    return
                super().__setattr__(name, value)

        class Sore(Manager):
            def __setattr__(self, name, value):
                if name == "cost_tables" and len(value[1]) and value[1][0] > value[1][-1]:
                    raise RuntimeError("read only")
                super().__setattr__(name, value)

        for broken, text in ((Deaf(), "read back"), (Sore(), "read only")):
            rank = Rank()
            rank.model_runner.adaptive_verification = broken
            own = broken.cost_tables
            reply = call([rank], "trimtab_set_mode", "n", "fixed", 1)[0]
            self.assertIn(text, reply["error"])
            self.assertIs(broken.cost_tables, own)
            self.assertEqual(call([rank], "trimtab_status", "n")[0]["mode"], "adaptive")

    def test_tables_of_another_shape_are_refused(self):
        for tables in (None, [1, 2], ((1.0,), (2.0,), (3.0,))):
            rank = Rank()
            rank.model_runner.adaptive_verification.cost_tables = tables
            reply = call([rank], "trimtab_set_mode", "n", "fixed", 1)[0]
            self.assertIn("cost_tables", reply["error"])
            self.assertEqual(rank.model_runner.adaptive_verification.cost_tables, tables)

    def test_a_table_of_integers_that_cannot_decrease_is_refused(self):
        class Whole(list):
            def copy(self):
                return Whole(self)

            def __setitem__(self, key, values):
                super().__setitem__(key, [int(v) for v in values])

        rank = Rank()
        manager = rank.model_runner.adaptive_verification
        own = manager.cost_tables = ([1] * 9, Whole(range(65)))
        self.assertTrue(call([rank], "trimtab_set_mode", "n", "fixed", 1)[0]["error"])
        self.assertIs(manager.cost_tables, own)

    def test_two_ranks_that_disagree(self):
        """One rank cannot be set: the answers differ, and restore brings both together again."""
        node = [Rank(0), Rank(1)]
        own = [rank.model_runner.adaptive_verification.cost_tables for rank in node]
        node[1].model_runner.adaptive_verification = Box(get_num_tokens=None, cost_tables=own[1:])
        replies = call(node, "trimtab_set_mode", "n", "fixed", 1)
        self.assertEqual([reply["mode"] for reply in replies], ["fixed", ""])
        self.assertEqual([reply["error"] == "" for reply in replies], [True, False])
        replies = call(node, "trimtab_restore", "n", 2)
        self.assertEqual(replies[0]["mode"], "adaptive")
        self.assertIs(node[0].model_runner.adaptive_verification.cost_tables, own[0])

    def test_an_engine_that_was_not_started_adaptive(self):
        reply = call([Rank(adaptive=False)], "trimtab_status", "n")[0]
        self.assertEqual((reply["error"], reply["adaptive"], reply["mode"]), ("", 0, ""))
        self.assertIn("model_runner.adaptive_verification", reply["missing"])
        reply = call([Rank(adaptive=False)], "trimtab_set_mode", "n", "fixed", 1)[0]
        self.assertIn("model_runner.adaptive_verification is missing", reply["error"])

    def test_counts(self):
        rank = Rank()
        call([rank], "trimtab_status", "n")
        chosen = budget(rank) + budget(rank, requests=1)
        reply = call([rank], "trimtab_status", "n")[0]
        self.assertEqual((reply["steps"], reply["scheduled"], reply["admitted"]), (2, 12, chosen))

    def test_a_counting_fault_does_not_reach_the_engine(self):
        rank = Rank()
        call([rank], "trimtab_status", "n")
        manager = rank.model_runner.adaptive_verification
        manager.__class__.get_num_tokens, keep = lambda *a: 7, manager.__class__.get_num_tokens
        try:
            call([rank], "trimtab_restore", "n", 1)
            call([rank], "trimtab_status", "n")
            self.assertEqual(manager.get_num_tokens({}, {}), 7)
        finally:
            manager.__class__.get_num_tokens = keep
        self.assertEqual(call([rank], "trimtab_status", "n")[0]["faults"], 1)


class Coefficients(unittest.TestCase):
    def estimator(self, rank):
        return rank.model_runner.speculator.acceptance_estimator

    def test_read(self):
        reply = call([Rank()], "trimtab_coefficients", "n")[0]
        self.assertEqual((reply["error"], reply["slope"]), ("", 0.5))
        self.assertEqual(reply["intercepts"], [-0.2] * 4)

    def test_status_waits_for_no_device(self):
        Tensor.reads = 0
        call([Rank()], "trimtab_status", "n")
        self.assertEqual(Tensor.reads, 0)

    def test_nan_is_null(self):
        rank = Rank()
        self.estimator(rank).slope.values[0] = math.nan
        self.estimator(rank).intercepts.values[2] = math.inf
        reply = call([rank], "trimtab_coefficients", "n")[0]
        self.assertEqual((reply["error"], reply["slope"]), ("", None))
        self.assertEqual(reply["intercepts"], [-0.2, -0.2, None, -0.2])

    def test_the_form_of_earlier_builds(self):
        rank = Rank()
        rank.model_runner.speculator.acceptance_estimator = Box(
            coefficients=Tensor([[0.4] * 3, [0.1, 0.2, 0.3]])
        )
        reply = call([rank], "trimtab_coefficients", "n")[0]
        self.assertEqual((reply["slope"], reply["intercepts"]), (0.4, [0.1, 0.2, 0.3]))

    def test_written_in_place_while_held(self):
        rank = Rank()
        estimator = self.estimator(rank)
        addresses = estimator.slope.address, estimator.intercepts.address
        reply = call([rank], "trimtab_set_coefficients", "n", 0.7, [0.1, 0.2, 0.3, 0.4], 1)[0]
        self.assertIn("hold", reply["error"])
        call([rank], "trimtab_hold", "n", 1, 2)
        reply = call([rank], "trimtab_set_coefficients", "n", 0.7, [0.1, 0.2, 0.3, 0.4], 3)[0]
        self.assertEqual((reply["error"], reply["slope"]), ("", 0.7))
        self.assertEqual(reply["intercepts"], [0.1, 0.2, 0.3, 0.4])
        self.assertEqual((estimator.slope.address, estimator.intercepts.address), addresses)

    def test_bad_coefficients_change_nothing(self):
        rank = Rank()
        call([rank], "trimtab_hold", "n", 1, 1)
        bad = [(math.nan, [0.0] * 4), (0.5, [0.0, math.inf, 0.0, 0.0]), (-0.1, [0.0] * 4),
               (0.5, [0.0] * 3), (None, [0.0] * 4), ("x", [0.0] * 4), (0.5, 3), (0.5, None)]
        for generation, (slope, intercepts) in enumerate(bad, start=2):
            reply = call([rank], "trimtab_set_coefficients", "n", slope, intercepts, generation)[0]
            self.assertTrue(reply["error"], (slope, intercepts))
        self.assertEqual(self.estimator(rank).slope.values, [0.5])
        self.assertEqual(self.estimator(rank).intercepts.values, [-0.2] * 4)

    def test_half_a_write_is_undone(self):
        rank = Rank()
        call([rank], "trimtab_hold", "n", 1, 1)
        intercepts = self.estimator(rank).intercepts
        intercepts.broken = True

        def copy_(other):
            if other.values[0] == 9.0:
                raise RuntimeError("device error")
            Tensor.copy_(intercepts, other)

        intercepts.copy_ = copy_
        reply = call([rank], "trimtab_set_coefficients", "n", 0.9, [9.0] * 4, 2)[0]
        self.assertIn("device error", reply["error"])
        self.assertEqual(self.estimator(rank).slope.values, [0.5])

    def test_held_the_engine_does_not_refit_and_then_resumes(self):
        rank = Rank()
        estimator = self.estimator(rank)
        call([rank], "trimtab_hold", "n", 1, 1)
        for _ in range(10):
            estimator.step(Tensor([0]), Tensor([1]), Tensor([0]))
        self.assertEqual((estimator._refits, estimator.graded), (0, 10))
        call([rank], "trimtab_set_coefficients", "n", 0.7, [0.0] * 4, 2)
        reply = call([rank], "trimtab_hold", "n", 0, 3)[0]
        self.assertEqual((reply["error"], reply["held"]), ("", 0))
        self.assertEqual(estimator.counts.values, [0.0] * 4)
        for _ in range(3):
            estimator.step(Tensor([0]), Tensor([1]), Tensor([0]))
        self.assertEqual(estimator._refits, 1)
        self.assertAlmostEqual(estimator.slope.values[0], 0.71)  # from the coefficients in force

    def test_a_hold_that_nobody_renews_ends(self):
        rank, clock = Rank(), [100.0]
        estimator = self.estimator(rank)
        real, control.time.monotonic = control.time.monotonic, lambda: clock[0]
        try:
            call([rank], "trimtab_hold", "n", 1, 1)
            clock[0] += control.LEASE_S - 1
            self.assertEqual(call([rank], "trimtab_status", "n")[0]["held"], 1)
            clock[0] += control.LEASE_S - 1
            estimator.step(Tensor([0]), Tensor([1]), Tensor([0]))
            self.assertEqual(call([rank], "trimtab_status", "n")[0]["held"], 1)
            clock[0] += control.LEASE_S + 1
            estimator.step(Tensor([0]), Tensor([1]), Tensor([0]))
            self.assertEqual(call([rank], "trimtab_status", "n")[0]["held"], 0)
        finally:
            control.time.monotonic = real

    def test_what_cannot_be_held_is_named(self):
        rank = Rank()
        rank.model_runner.speculator.acceptance_estimator = Box(slope=Tensor([0.5]))
        reply = call([rank], "trimtab_hold", "n", 1, 1)[0]
        self.assertIn("REFIT_INTERVAL is missing", reply["error"])

    def test_restore_undoes_everything(self):
        rank = Rank()
        manager, estimator = rank.model_runner.adaptive_verification, self.estimator(rank)
        own = manager.cost_tables
        call([rank], "trimtab_status", "n")
        call([rank], "trimtab_set_mode", "n", "fixed", 1)
        call([rank], "trimtab_hold", "n", 1, 2)
        call([rank], "trimtab_labels", "n", 1)
        reply = call([rank], "trimtab_restore", "n", 3)[0]
        self.assertEqual((reply["error"], reply["mode"], reply["held"]), ("", "adaptive", 0))
        self.assertIs(manager.cost_tables, own)
        for wrapped in ("get_num_tokens", "step", "REFIT_INTERVAL"):
            self.assertNotIn(wrapped, manager.__dict__)
            self.assertNotIn(wrapped, estimator.__dict__)


class Outcomes(unittest.TestCase):
    def test_rows(self):
        rank = Rank()
        estimator = rank.model_runner.speculator.acceptance_estimator
        call([rank], "trimtab_labels", "n", 1)
        estimator.step(Tensor([1, 0]), Tensor([3, 1]), Tensor([1, 0]))  # 2 accepted of 3; no draft
        estimator.step(Tensor([0, -1]), Tensor([1, 0]), Tensor([2, 0]))  # none of 2; a padded request
        reply = call([rank], "trimtab_labels", "n", 0)[0]
        self.assertEqual((reply["error"], reply["label_steps"], reply["labels_dropped"]), ("", 2, 0))
        self.assertEqual(reply["rows"], [[0, 2, 0.5, 0.25, 0.125], [1, 0, 1.0, 2.0]])
        estimator.step(Tensor([0]), Tensor([1]), Tensor([1]))
        self.assertEqual(call([rank], "trimtab_labels", "n", 0)[0]["rows"], [])

    def test_all_in_one_reading(self):
        rank = Rank()
        call([rank], "trimtab_read", "n", 1)
        rank.model_runner.speculator.acceptance_estimator.step(Tensor([0]), Tensor([1]), Tensor([1]))
        reply = call([rank], "trimtab_read", "n", 0)[0]
        self.assertEqual((reply["error"], reply["slope"], reply["mode"]), ("", 0.5, "adaptive"))
        self.assertEqual((reply["label_steps"], reply["rows"]), (1, [[0, 0, 1.0]]))
        reply = call([Rank(adaptive=False)], "trimtab_read", "n", 1)[0]
        self.assertEqual(reply["error"], "")
        self.assertNotIn("slope", reply)

    def test_a_nan_feature_is_null(self):
        rank = Rank()
        call([rank], "trimtab_labels", "n", 1)
        rank.model_runner.speculator.acceptance_estimator.step(Tensor([1]), Tensor([5]), Tensor([0]))
        self.assertEqual(
            call([rank], "trimtab_labels", "n", 0)[0]["rows"], [[0, 4, 0.5, 0.25, 0.125, None]]
        )

    def test_bounded(self):
        rank = Rank()
        estimator = rank.model_runner.speculator.acceptance_estimator
        call([rank], "trimtab_labels", "n", 1)
        for _ in range(labels.ROWS_HELD + 10):
            estimator.step(Tensor([0]), Tensor([2]), Tensor([0]))
        reply = call([rank], "trimtab_labels", "n", 1, 10**9)[0]
        self.assertEqual(len(reply["rows"]), worker.ROWS_MAX)
        self.assertEqual(reply["label_steps"], labels.ROWS_HELD + 10)
        self.assertEqual(reply["labels_dropped"], labels.ROWS_HELD + 10 - worker.ROWS_MAX)

    def test_only_the_first_rank_collects(self):
        rank = Rank(1)
        call([rank], "trimtab_labels", "n", 1)
        self.assertNotIn("step", rank.model_runner.speculator.acceptance_estimator.__dict__)

    def test_a_fault_in_collecting_does_not_reach_the_engine(self):
        rank = Rank()
        estimator = rank.model_runner.speculator.acceptance_estimator
        call([rank], "trimtab_labels", "n", 1)
        estimator.features = None
        estimator.step(Tensor([0]), Tensor([2]), Tensor([0]))
        self.assertEqual(estimator.graded, 1)
        self.assertEqual(call([rank], "trimtab_status", "n")[0]["faults"], 1)


if __name__ == "__main__":
    unittest.main()
