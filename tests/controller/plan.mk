# tests/controller/plan.mk
