# controller/node.mk
