"""The methods that trimtab calls on every worker through POST /collective_rpc.

An exception here would leave the ranks of a node answering calls late for ever, and a NaN would make
the whole answer an error: so every method takes whatever it is given, never raises, and returns a
dictionary of texts, finite numbers and None. `nonce` is the caller's own, so that an answer can be
told from another call's; `error` is empty when it was done.
"""

import functools
import math

from . import engine
from .control import Control

PROTOCOL = 1
NONCE_MAX = 64
ERROR_MAX = 300
ROWS_MAX = 1024  # of labels in one answer


def clean(value):
    """What JSON can carry: a number that is not finite is None."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {str(key): clean(item) for key, item in value.items()}
    return value if value is None or isinstance(value, (int, str)) else str(value)


def control_of(worker):
    control = worker.__dict__.get("_trimtab_control")
    if control is None:
        control = worker.__dict__["_trimtab_control"] = Control(worker)
    return control


def rank_of(worker):
    rank = getattr(worker, "rank", 0)
    return rank if isinstance(rank, int) else -1


def answered(method):
    """method(control, *arguments) -> dict, made safe; the first argument of a call is its nonce."""

    @functools.wraps(method)
    def call(self, *arguments, **ignored):
        reply = {"nonce": "", "rank": -1, "protocol": PROTOCOL, "error": ""}
        try:
            reply["rank"] = rank_of(self)
            if not arguments:
                raise ValueError("the nonce is missing")
            reply["nonce"] = str(arguments[0])[:NONCE_MAX]
            control = control_of(self)
            control.renew()
            try:
                reply.update(clean(method(control, *arguments[1:])))
            finally:  # after an error too: the caller compares what is in force
                reply.update(clean(state(control)))
        except Exception as error:
            reply["error"] = (str(error) or type(error).__name__)[:ERROR_MAX]
        return reply

    return call


def state(control):
    """What ranks are compared by, and what costs nothing to know."""
    estimator = engine.find(control.worker, engine.ESTIMATOR)
    return {
        "adaptive": int(engine.find(control.worker, engine.MANAGER) is not None),
        "mode": control.mode(),
        "generation": control.generation,
        "held": int(control.held()),
        "positions": getattr(estimator, "num_speculative_steps", 0),
    }


def status(control):
    runner = getattr(control.worker, "model_runner", None)
    estimator = engine.find(control.worker, engine.ESTIMATOR)
    control.count()
    return {
        "runner": "%s.%s" % (type(runner).__module__, type(runner).__name__),
        "missing": control.missing(),
        "steps": control.steps,
        "scheduled": control.scheduled,
        "admitted": control.admitted,
        "faults": control.faults,
        "refits": getattr(estimator, "_refits", None),
        "steps_since_refit": getattr(estimator, "_steps_since_refit", None),
    }


def coefficients(control):
    slope, intercepts = control.coefficients()
    return {"slope": slope, "intercepts": intercepts}


def labels(control, collect, most):
    if rank_of(control.worker) != 0:
        return {}
    steps, dropped, rows = control.take_labels(min(int(most), ROWS_MAX))
    control.collect(bool(int(collect)))
    return {"label_steps": steps, "labels_dropped": dropped, "rows": rows}


def advance(control, generation):
    """Commands are numbered by the caller; one that comes late changes nothing."""
    generation = int(generation)
    if generation <= control.generation:
        raise ValueError("generation %d is in force already" % control.generation)
    control.generation = generation


class Worker:
    """Mixed into vLLM's worker class: every name but these would have to be free there."""

    @answered
    def trimtab_echo(control):
        return {}

    @answered
    def trimtab_status(control):
        return status(control)

    @answered
    def trimtab_coefficients(control):
        """Waits for the device: at most once a second."""
        return coefficients(control)

    @answered
    def trimtab_labels(control, collect, most=ROWS_MAX):
        """Start or stop collecting, and hand out what has come since the last call; rank 0 only."""
        return labels(control, collect, most)

    @answered
    def trimtab_read(control, collect, most=ROWS_MAX):
        """The three above in one call, where an estimator is there: once a second."""
        found = status(control)
        if engine.find(control.worker, engine.ESTIMATOR) is not None:
            found.update(coefficients(control))
            found.update(labels(control, collect, most))
        return found

    @answered
    def trimtab_set_mode(control, mode, generation):
        advance(control, generation)
        control.set_mode(mode)
        return {}

    @answered
    def trimtab_hold(control, hold, generation):
        advance(control, generation)
        if int(hold):
            control.hold()
        else:
            control.release()
        return {}

    @answered
    def trimtab_set_coefficients(control, slope, intercepts, generation):
        advance(control, generation)
        slope, intercepts = control.set_coefficients(slope, intercepts)
        return {"slope": slope, "intercepts": intercepts}

    @answered
    def trimtab_restore(control, generation):
        advance(control, generation)
        control.restore()
        return {}
