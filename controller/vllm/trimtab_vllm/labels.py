"""What verification revealed, collected step by step on the device and handed out in bulk."""

from .engine import inference

ROWS_HELD = 4096  # request-steps between two readings; further ones are dropped, whatever they say


class Labels:
    """Features of a step's drafts with how many were accepted and rejected. Adding copies three small
    tensors on the device and waits for nothing; only `take` waits."""

    def __init__(self):
        self.steps = 0
        self.dropped = 0
        self._rows = 0
        self._held = []

    def add(self, features, idx_mapping, num_sampled, num_rejected):
        step, self.steps = self.steps, self.steps + 1
        rows = int(idx_mapping.shape[0])
        if rows == 0 or self._rows + rows > ROWS_HELD:
            self.dropped += rows
            return
        with inference():
            kept = features.index_select(0, idx_mapping.clamp(min=0).long())
            self._held.append((step, kept, num_sampled.clone(), num_rejected.clone()))
        self._rows += rows

    def take(self, most):
        """(steps, dropped, rows); a row is [step, accepted, feature of each admitted draft ...]."""
        held, steps, dropped = self._held, self.steps, self.dropped
        self.__init__()
        rows = []
        for step, features, sampled, rejected in held:
            for feature, s, r in zip(features.tolist(), sampled.tolist(), rejected.tolist()):
                accepted = max(int(s) - 1, 0)  # without the bonus token
                admitted = accepted + max(int(r), 0)
                if admitted == 0 or admitted > len(feature):
                    continue
                if len(rows) >= most:
                    dropped += 1
                    continue
                rows.append([step, accepted] + [round(float(f), 4) for f in feature[:admitted]])
        return steps, dropped, rows
