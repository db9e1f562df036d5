# controller/plan.mk
