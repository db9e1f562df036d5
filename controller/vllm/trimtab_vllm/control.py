"""What one worker holds for trimtab: the switch, the counters, the hold on the engine's own refit."""

import math
import time

from . import engine
from .labels import Labels

LEASE_S = 60.0  # a hold that nobody renews ends: trimtab may be gone
NEVER = 2**62  # a refit interval that is not reached
MODES = ("adaptive", "fixed")


def decreasing(verify):
    """A verify table of the same length, positive and strictly decreasing: the more drafts, the cheaper
    a step, so the budget is the whole block. (A flat one is not enough: where the tail's survival is
    zero or tied, the first maximum, and with it a smaller budget, wins.)"""
    table = verify.copy()
    count = len(table)
    table[:] = [1.0 + (count - i) * 1e-3 for i in range(count)]
    return table


def is_decreasing(verify):
    values = [float(value) for value in verify]
    return all(a > b > 0.0 for a, b in zip(values, values[1:]))


class Control:
    def __init__(self, worker):
        self.worker = worker
        self.generation = 0
        self.steps = 0  # of the budget
        self.scheduled = 0
        self.admitted = 0
        self.faults = 0  # exceptions inside what runs beside a step
        self._own = None  # the engine's (draft, verify) tables while `fixed` is in force
        self._forced = None  # those that made it `fixed`
        self._counted = None  # the manager whose get_num_tokens is wrapped
        self._graded = None  # the estimator whose step is wrapped
        self._lease_end = None  # None = the engine refits by itself
        self._labels = None

    # ---------------------------------------------------------------- the manager

    def tables(self):
        tables = engine.need(self.worker, engine.MANAGER + ".cost_tables")
        if not isinstance(tables, tuple) or len(tables) != 2:
            raise engine.Missing(engine.MANAGER + ".cost_tables is not a (draft, verify) tuple")
        return tables

    def mode(self):
        """Read from what the next step reads, not from memory."""
        try:
            tables = self.tables()
        except engine.Missing:
            return ""
        return "fixed" if tables is self._forced else "adaptive"

    def set_mode(self, mode):
        if mode not in MODES:
            raise ValueError("the mode is adaptive or fixed")
        manager = engine.need(self.worker, engine.MANAGER)
        before = self.tables()
        if mode == self.mode():
            return
        try:
            if mode == "fixed":
                forced = (before[0], decreasing(before[1]))
                if len(forced[1]) != len(before[1]) or not is_decreasing(forced[1]):
                    raise RuntimeError("the verify table cannot hold a decreasing one")
                self._own, self._forced = before, forced
                manager.cost_tables = forced
            else:
                manager.cost_tables = self._own
            if self.mode() != mode:
                raise RuntimeError("the cost tables were set, but do not read back")
        except Exception:
            manager.cost_tables = before
            raise

    def count(self):
        """See every budget as it is chosen: a few additions a step, on the CPU."""
        manager = engine.find(self.worker, engine.MANAGER)
        if manager is None or manager is self._counted:
            return
        choose = engine.need(self.worker, engine.MANAGER + ".get_num_tokens")

        def get_num_tokens(*args, **kwargs):
            chosen = choose(*args, **kwargs)
            try:
                drafts, _, budget = manager._batch_budget
                self.scheduled += sum(drafts.values())
                self.admitted += int(budget)
                self.steps += 1
            except Exception:
                self.faults += 1
            return chosen

        manager.get_num_tokens = get_num_tokens
        self._counted = manager

    # ---------------------------------------------------------------- the estimator

    def coefficients(self):
        estimator = engine.need(self.worker, engine.ESTIMATOR)
        old = getattr(estimator, "coefficients", None)
        if getattr(estimator, "slope", None) is None and old is not None:
            slopes, intercepts = old.tolist()  # [2, K] in builds before 0.32: one slope a position
            return slopes[0], list(intercepts)
        slope = engine.need(self.worker, engine.ESTIMATOR + ".slope")
        intercepts = engine.need(self.worker, engine.ESTIMATOR + ".intercepts")
        return engine.read(slope)[0], engine.read(intercepts)

    def set_coefficients(self, slope, intercepts):
        estimator = engine.need(self.worker, engine.ESTIMATOR)
        slope, intercepts = float(slope), [float(value) for value in intercepts]
        if not all(math.isfinite(value) for value in [slope] + intercepts):
            raise ValueError("a coefficient is not finite")
        if slope < 0.0:
            raise ValueError("the slope is negative")
        if not self.held():
            raise RuntimeError("hold the engine's own refit first: it would overwrite them")
        old = self.coefficients()
        if len(intercepts) != len(old[1]):
            raise ValueError("the engine has %d positions, not %d" % (len(old[1]), len(intercepts)))
        engine.need(self.worker, engine.ESTIMATOR + ".slope")
        try:
            engine.write(estimator.slope, [slope])
            engine.write(estimator.intercepts, intercepts)
        except Exception:
            engine.write(estimator.slope, [old[0]])
            engine.write(estimator.intercepts, old[1])
            raise
        return self.coefficients()

    def held(self):
        return self._lease_end is not None

    def hold(self, lease_s=LEASE_S):
        """Keep the engine from refitting: its statistics go on, its interval is never reached."""
        estimator = engine.need(self.worker, engine.ESTIMATOR)
        for name in ("REFIT_INTERVAL", "_steps_since_refit"):
            engine.need(self.worker, engine.ESTIMATOR + "." + name)
        self._watch(estimator)
        estimator.REFIT_INTERVAL = NEVER
        self._lease_end = time.monotonic() + min(max(float(lease_s), 1.0), LEASE_S)

    def renew(self):
        if self.held():
            self._lease_end = time.monotonic() + LEASE_S

    def release(self):
        """The engine refits again, from the coefficients in force and with statistics of its own: those
        of the hold were graded at others."""
        if not self.held():
            return
        self._lease_end = None
        estimator = engine.find(self.worker, engine.ESTIMATOR)
        if estimator is None:
            return
        estimator.__dict__.pop("REFIT_INTERVAL", None)
        estimator._steps_since_refit = 0
        with engine.inference():
            for name in ("info", "grad", "counts"):
                sums = getattr(estimator, name, None)
                if sums is not None:
                    sums.zero_()

    def collect(self, on):
        if not on:
            self._labels = None
        elif self._labels is None:
            self._watch(engine.need(self.worker, engine.ESTIMATOR))
            engine.need(self.worker, engine.ESTIMATOR + ".features")
            self._labels = Labels()

    def take_labels(self, most):
        return self._labels.take(most) if self._labels is not None else (0, 0, [])

    def _watch(self, estimator):
        if estimator is self._graded:
            return
        grade = engine.need(self.worker, engine.ESTIMATOR + ".step")

        def step(idx_mapping, num_sampled, num_rejected, *args, **kwargs):
            try:
                if self._labels is not None:
                    self._labels.add(estimator.features, idx_mapping, num_sampled, num_rejected)
                if self._lease_end is not None and time.monotonic() > self._lease_end:
                    self.release()
            except Exception:
                self.faults += 1
            return grade(idx_mapping, num_sampled, num_rejected, *args, **kwargs)

        estimator.step = step
        self._graded = estimator

    # ---------------------------------------------------------------- all of it

    def missing(self):
        paths = (
            engine.MANAGER,
            engine.MANAGER + ".cost_tables",
            engine.MANAGER + ".get_num_tokens",
            engine.ESTIMATOR,
            engine.ESTIMATOR + ".slope",
            engine.ESTIMATOR + ".intercepts",
            engine.ESTIMATOR + ".features",
            engine.ESTIMATOR + ".step",
            engine.ESTIMATOR + ".REFIT_INTERVAL",
        )
        absent = []
        for path in paths:
            if not any(path.startswith(known + ".") for known in absent):
                if engine.find(self.worker, path) is None:
                    absent.append(path)
        return absent

    def restore(self):
        """Everything as the engine had it. Goes on past what fails, and says so at the end."""
        failures = []
        for undo in (self._restore_tables, self.release, self._unwatch, self._uncount):
            try:
                undo()
            except Exception as error:
                failures.append("%s: %s" % (undo.__name__.strip("_"), error))
        self._labels = None
        if failures:
            raise RuntimeError("; ".join(failures))

    def _restore_tables(self):
        if self.mode() == "fixed":
            self.set_mode("adaptive")

    def _unwatch(self):
        if self._graded is not None:
            self._graded.__dict__.pop("step", None)
            self._graded = None

    def _uncount(self):
        if self._counted is not None:
            self._counted.__dict__.pop("get_num_tokens", None)
            self._counted = None
