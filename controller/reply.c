/* reply.c - see reply.h. */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/reply.h"

enum { JSON_DIGITS = 12 }; /* of a real; more than any measured figure carries */

void reply_free(struct reply *reply)
{
    buffer_free(&reply->body);
}

static const char *error_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 409:
        return "conflict_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

static void put_text_or_null(struct buffer *out, const char *text)
{
    if (text)
        buffer_add_json(out, text, strlen(text));
    else
        buffer_add_text(out, "null");
}

void reply_put_error(struct buffer *out, int status, const char *param, const char *code,
                     const char *message)
{
    buffer_add_text(out, "\"error\":{\"message\":");
    buffer_add_json(out, message, strlen(message));
    buffer_add_format(out, ",\"type\":\"%s\",\"param\":", error_type(status));
    put_text_or_null(out, param);
    buffer_add_text(out, ",\"code\":");
    put_text_or_null(out, code);
    buffer_add_text(out, "}");
}

void reply_error(struct reply *reply, int status, const char *param, const char *code,
                 const char *format, ...)
{
    va_list arguments;
    char *message = NULL;

    va_start(arguments, format);
    if (vasprintf(&message, format, arguments) < 0) message = NULL;
    va_end(arguments);
    buffer_clear(&reply->body);
    reply->status = status;
    reply->content_type = "application/json";
    buffer_add_text(&reply->body, "{");
    reply_put_error(&reply->body, status, param, code, message ? message : "out of memory");
    buffer_add_text(&reply->body, "}");
    free(message);
}

json_t *reply_text(const char *text)
{
    return json_stringn(text, utf8_prefix(text));
}

static int add_bytes(const char *bytes, size_t count, void *state)
{
    buffer_add(state, bytes, count);
    return 0;
}

void reply_put_json(struct buffer *out, const json_t *value)
{
    if (json_dump_callback(value, add_bytes, out,
                           JSON_COMPACT | JSON_REAL_PRECISION(JSON_DIGITS)) != 0)
        out->failed = true;
}

void reply_json(struct reply *reply, int status, json_t *body)
{
    if (!body) {
        reply_error(reply, 500, NULL, "out_of_memory", "out of memory while the answer was made");
        return;
    }
    buffer_clear(&reply->body);
    reply->status = status;
    reply->content_type = "application/json";
    reply_put_json(&reply->body, body);
    json_decref(body);
}
