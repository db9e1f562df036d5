# tests/controller/http.mk
