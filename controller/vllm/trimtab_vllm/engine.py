"""Where a vLLM worker keeps what adaptive verification reads, found by name.

Attributes move between releases: each is probed with getattr, what is missing is named, and no
version is asked for. Known in 0.32 and 0.33 (model runner V2):

    model_runner.adaptive_verification              the manager, None where nothing is trimmed
        .cost_tables                                (draft, verify) milliseconds, read every step
        .get_num_tokens(tokens, drafts)             chooses the budget of a step
        ._batch_budget                              (.., .., drafts admitted) after that
    model_runner.speculator.acceptance_estimator    None where a confidence head predicts
        .slope [1] .intercepts [K]                  float32 on the device, read by captured graphs
        .step(idx_mapping, num_sampled, num_rejected)   grades the last drafts, refits at times
        .REFIT_INTERVAL ._steps_since_refit ._refits .info .grad .counts .features
"""

import sys
from contextlib import nullcontext

MANAGER = "model_runner.adaptive_verification"
ESTIMATOR = "model_runner.speculator.acceptance_estimator"


class Missing(Exception):
    """Something that a command needs is not there; the text names it."""


def find(worker, path):
    """The attribute at a dotted path, or None."""
    found = worker
    for name in path.split("."):
        found = getattr(found, name, None)
        if found is None:
            return None
    return found


def need(worker, path):
    found = find(worker, path)
    if found is None:
        raise Missing(path + " is missing")
    return found


def inference():
    """The engine's tensors are made under inference mode and may only be written there."""
    torch = sys.modules.get("torch")
    return torch.inference_mode() if torch is not None else nullcontext()


def write(tensor, values):
    """In place: captured graphs hold the tensor's address."""
    with inference():
        tensor.copy_(tensor.new_tensor(values))


def read(tensor):
    """Waits for the device."""
    return [float(value) for value in tensor.tolist()]
