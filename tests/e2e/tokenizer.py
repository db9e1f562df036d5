"""Writes the tokenizer of a GGUF file as a tokenizer.json, for client tools that want one and cannot reach a model hub.

usage: tokenizer.py MODEL.gguf OUT-FOLDER

Reads the `tokenizer.ggml.*` keys (GGUF version 2 and 3; byte-level BPE, the `gpt2` model). The split before merging is
the one that llama's `smollm` pre-tokenizer stands for: single digits, then GPT-2's pattern.
"""

import json
import struct
import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
NORMAL_TOKEN = 1


class Reader:
    """The header of one GGUF file, read in order."""

    def __init__(self, file):
        self.file = file

    def number(self, form):
        return struct.unpack("<" + form, self.file.read(struct.calcsize(form)))[0]

    def text(self):
        return self.file.read(self.number("Q")).decode("utf-8", "replace")

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            element, count = self.number("I"), self.number("Q")
            return [self.value(element) for _ in range(count)]
        return self.number(SCALARS[kind])

    def metadata(self):
        if self.file.read(4) != b"GGUF":
            raise SystemExit("tokenizer.py: not a GGUF file")
        self.number("I")  # version
        self.number("Q")  # tensors
        return {self.text(): self.value(self.number("I")) for _ in range(self.number("Q"))}


def main(model, out):
    with open(model, "rb") as file:
        keys = Reader(file).metadata()
    if keys["tokenizer.ggml.model"] != "gpt2" or keys["tokenizer.ggml.pre"] != "smollm":
        raise SystemExit(f"tokenizer.py: cannot convert a {keys['tokenizer.ggml.model']} tokenizer")
    tokens = keys["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in keys["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: id for id, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(tokens, keys["tokenizer.ggml.token_type"]) if kind != NORMAL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": tokens[keys["tokenizer.ggml.eos_token_id"]],
        "chat_template": keys.get("tokenizer.chat_template", ""),
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


main(*sys.argv[1:])
