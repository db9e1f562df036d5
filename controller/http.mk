# controller/http.mk
