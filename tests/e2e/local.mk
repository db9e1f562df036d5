# tests/e2e/local.mk - tests against real models: `make check-e2e` runs them one after another; `make check` does not.
# They read from the environment (`./bootstrap check` sets it; `eval "$(./bootstrap env)"` does by hand):
#   TRIMTAB_TARGET       the target in the form that suits this CPU
#   TRIMTAB_TARGET_BF16  the target's two served forms, for tests that need one of them
#   TRIMTAB_TARGET_Q8_0
#   TRIMTAB_DRAFT        the draft model
#   TRIMTAB_E2E_PYTHON   a Python that has tests/e2e/requirements.txt
#   TRIMTAB_LLAMA        the prefix of libllama that bootstrap built
# A test that misses one skips and names it.
e2e_tests = tests/e2e/tour.test tests/e2e/openai_client.test tests/e2e/load_tool.test \
	tests/e2e/bootstrap_run.test
if HAVE_LLAMA
SUITE_E2E += $(e2e_tests)
endif
dist_check_SCRIPTS += $(e2e_tests)
EXTRA_DIST += tests/e2e/daemon.sh tests/e2e/openai_client.py tests/e2e/tokenizer.py tests/e2e/requirements.txt tests/e2e/llama_server.py \
	tests/e2e/eval-prompts.jsonl

# What steps cost, as the first of these tests measured it.
clean-local:
	rm -rf tests/e2e/costs
