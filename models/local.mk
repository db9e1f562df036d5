# models/local.mk - the shipped draft model and the prompts of traffic and benchmarks.
dist_pkgdata_DATA += models/smollm2-draft-9m-q8_0.gguf models/demo-prompts.jsonl models/bench-prompts.jsonl
EXTRA_DIST += models/README.md
