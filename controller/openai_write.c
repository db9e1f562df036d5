/* openai_write.c - see openai.h: answers of the OpenAI API, whole and as server-sent events. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "controller/openai.h"

enum { PIECE_MAX = 1024 }; /* bytes of one token's text */

static const float least_logprob = -9999; /* stands for minus infinity, which JSON lacks */

void openai_make_id(bool chat, char id[OPENAI_ID_SIZE])
{
    unsigned char bytes[12];
    int at = snprintf(id, OPENAI_ID_SIZE, chat ? "chatcmpl-" : "cmpl-");

    if (getrandom(bytes, sizeof bytes, 0) !=
        (ssize_t)sizeof bytes) { /* cannot fail on Linux once booted */
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        memset(bytes, 0, sizeof bytes);
        memcpy(bytes, &now.tv_nsec, sizeof now.tv_nsec);
        memcpy(bytes + sizeof now.tv_nsec, &now.tv_sec, sizeof bytes - sizeof now.tv_nsec);
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        at += snprintf(id + at, (size_t)(OPENAI_ID_SIZE - at), "%02x", bytes[i]);
}

static const char *finish_name(enum request_finish finish)
{
    return finish == REQUEST_LENGTH ? "length" : "stop";
}

/* ------------------------------------------------------------------------------------ logprobs */

static void put_logprob(struct buffer *out, float logprob)
{
    buffer_add_number(out, isnan(logprob) || logprob < least_logprob ? least_logprob : logprob, 9);
}

static bool is_utf8(const char *text, size_t length)
{
    for (size_t at = 0, step; at < length; at += step) {
        step = utf8_length(text + at, length - at);
        if (step == 0) return false;
    }
    return true;
}

/* The token as a string; half a character as "bytes:\xe2\x80", which keeps keys of one object
 * apart. */
static void put_token(struct buffer *out, const struct lm *lm, int32_t token)
{
    char bytes[PIECE_MAX], text[PIECE_MAX * 4 + 8];
    int length = lm_piece(lm, token, bytes, sizeof bytes), at;

    if (length < 0) length = 0;
    if (is_utf8(bytes, (size_t)length)) {
        buffer_add_json(out, bytes, (size_t)length);
        return;
    }
    at = snprintf(text, sizeof text, "bytes:");
    for (int i = 0; i < length; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "\\x%02x", (unsigned char)bytes[i]);
    buffer_add_json(out, text, (size_t)at);
}

static void put_chat_token(struct buffer *out, const struct lm *lm, int32_t token, float logprob)
{
    char bytes[PIECE_MAX];
    int length = lm_piece(lm, token, bytes, sizeof bytes);

    buffer_add_text(out, "{\"token\":");
    buffer_add_json(out, bytes, length < 0 ? 0 : (size_t)length);
    buffer_add_text(out, ",\"logprob\":");
    put_logprob(out, logprob);
    buffer_add_text(out, ",\"bytes\":[");
    for (int i = 0; i < length; i++)
        buffer_add_format(out, i ? ",%u" : "%u", (unsigned)(unsigned char)bytes[i]);
    buffer_add_text(out, "]");
}

/* The tokens of a list of pieces, as an array for one aspect of them; `put` is called for each. */
struct logprobs {
    struct buffer *out;
    const struct openai_head *head;
    int64_t characters; /* before the piece */
};

static int64_t count_characters(const char *text, size_t length)
{
    int64_t count = 0;

    for (size_t i = 0; i < length; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

static void put_chat_record(struct logprobs *to, const struct request_piece *piece,
                            const struct request_token *token)
{
    (void)piece;
    put_chat_token(to->out, to->head->lm, token->token, token->logprob);
    buffer_add_text(to->out, ",\"top_logprobs\":[");
    for (int i = 0; i < token->alternatives && i < to->head->alternatives; i++) {
        if (i) buffer_add_text(to->out, ",");
        put_chat_token(to->out, to->head->lm, token->alternative[i].token,
                       token->alternative[i].logprob);
        buffer_add_text(to->out, "}");
    }
    buffer_add_text(to->out, "]}");
}

static void put_offset(struct logprobs *to, const struct request_piece *piece,
                       const struct request_token *token)
{
    size_t offset = token->text_offset < piece->length ? token->text_offset : piece->length;

    buffer_add_format(to->out, "%lld",
                      (long long)(to->characters + count_characters(piece->text, offset)));
}

static void put_token_logprob(struct logprobs *to, const struct request_piece *piece,
                              const struct request_token *token)
{
    (void)piece;
    put_logprob(to->out, token->logprob);
}

static void put_token_text(struct logprobs *to, const struct request_piece *piece,
                           const struct request_token *token)
{
    (void)piece;
    put_token(to->out, to->head->lm, token->token);
}

static void put_alternatives(struct logprobs *to, const struct request_piece *piece,
                             const struct request_token *token)
{
    (void)piece;
    buffer_add_text(to->out, "{");
    for (int i = 0; i < token->alternatives && i < to->head->alternatives; i++) {
        if (i) buffer_add_text(to->out, ",");
        put_token(to->out, to->head->lm, token->alternative[i].token);
        buffer_add_text(to->out, ":");
        put_logprob(to->out, token->alternative[i].logprob);
    }
    buffer_add_text(to->out, "}");
}

typedef void put_record(struct logprobs *to, const struct request_piece *piece,
                        const struct request_token *token);

/* "key":[…] over every token of the list; `whole` = the list, else its first piece alone. */
static void put_array(struct buffer *out, const struct openai_head *head, const char *key,
                      const struct request_piece *piece, bool whole, int64_t characters,
                      put_record *put)
{
    struct logprobs to = {.out = out, .head = head, .characters = characters};
    bool first = true;

    buffer_add_format(out, "\"%s\":[", key);
    for (; piece; piece = whole ? piece->next : NULL) {
        for (int i = 0; i < piece->token_count; i++) {
            if (!first) buffer_add_text(out, ",");
            first = false;
            put(&to, piece, &piece->token[i]);
        }
        to.characters += count_characters(piece->text, piece->length);
    }
    buffer_add_text(out, "]");
}

/* ,"logprobs":… of a choice. */
static void put_logprobs(struct buffer *out, const struct openai_head *head,
                         const struct request_piece *piece, bool whole, int64_t characters)
{
    if (!head->logprobs) {
        buffer_add_text(out, ",\"logprobs\":null");
        return;
    }
    buffer_add_text(out, ",\"logprobs\":{");
    if (head->chat) {
        put_array(out, head, "content", piece, whole, characters, put_chat_record);
        buffer_add_text(out, ",\"refusal\":null}");
        return;
    }
    put_array(out, head, "text_offset", piece, whole, characters, put_offset);
    buffer_add_text(out, ",");
    put_array(out, head, "token_logprobs", piece, whole, characters, put_token_logprob);
    buffer_add_text(out, ",");
    put_array(out, head, "tokens", piece, whole, characters, put_token_text);
    buffer_add_text(out, ",");
    if (head->alternatives > 0)
        put_array(out, head, "top_logprobs", piece, whole, characters, put_alternatives);
    else
        buffer_add_text(out, "\"top_logprobs\":null");
    buffer_add_text(out, "}");
}

/* -------------------------------------------------------------------------------------- chunks */

static void put_head(struct buffer *out, const struct openai_head *head, const char *object)
{
    buffer_add_text(out, "{\"id\":");
    buffer_add_json(out, head->id, strlen(head->id));
    buffer_add_format(out, ",\"object\":\"%s\",\"created\":%lld,\"model\":", object,
                      (long long)head->created_s);
    buffer_add_json(out, head->model, strlen(head->model));
    buffer_add_text(out, ",\"choices\":[");
}

static void put_chunk_head(struct buffer *out, const struct openai_head *head)
{
    buffer_add_text(out, "data: ");
    put_head(out, head, head->chat ? "chat.completion.chunk" : "text_completion");
}

static void put_usage_object(struct buffer *out, const struct openai_usage *usage)
{
    buffer_add_format(
        out,
        "\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
        "\"prompt_tokens_details\":{\"cached_tokens\":%lld}}",
        (long long)usage->prompt_tokens, (long long)usage->completion_tokens,
        (long long)(usage->prompt_tokens + usage->completion_tokens),
        (long long)usage->cached_tokens);
}

void openai_put_role(struct buffer *out, const struct openai_head *head, int index)
{
    put_chunk_head(out, head);
    buffer_add_format(
        out,
        "{\"index\":%d,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
        "\"finish_reason\":null}]}\n\n",
        index);
}

void openai_put_piece(struct buffer *out, const struct openai_head *head, int index,
                      const struct request_piece *piece, int64_t *characters)
{
    put_chunk_head(out, head);
    buffer_add_format(out, "{\"index\":%d,", index);
    buffer_add_text(out, head->chat ? "\"delta\":{\"content\":" : "\"text\":");
    buffer_add_json(out, piece->text, piece->length);
    if (head->chat) buffer_add_text(out, "}");
    put_logprobs(out, head, piece, false, *characters);
    buffer_add_text(out, ",\"finish_reason\":null}]}\n\n");
    *characters += count_characters(piece->text, piece->length);
}

void openai_put_finish(struct buffer *out, const struct openai_head *head, int index,
                       enum request_finish finish)
{
    put_chunk_head(out, head);
    buffer_add_format(out, "{\"index\":%d,%s,\"logprobs\":null,\"finish_reason\":\"%s\"}]}\n\n",
                      index, head->chat ? "\"delta\":{}" : "\"text\":\"\"", finish_name(finish));
}

void openai_put_usage(struct buffer *out, const struct openai_head *head,
                      const struct openai_usage *usage)
{
    put_chunk_head(out, head);
    buffer_add_text(out, "],");
    put_usage_object(out, usage);
    buffer_add_text(out, "}\n\n");
}

void openai_put_failure(struct buffer *out, int status, const char *code, const char *message)
{
    buffer_add_text(out, "data: {");
    reply_put_error(out, status, NULL, code, message);
    buffer_add_text(out, "}\n\n");
}

void openai_put_done(struct buffer *out)
{
    buffer_add_text(out, "data: [DONE]\n\n");
}

/* ------------------------------------------------------------------------------- whole answers */

static void put_text(struct buffer *out, const struct request_piece *list)
{
    struct buffer text = {0};

    for (; list; list = list->next) buffer_add(&text, list->text, list->length);
    if (text.failed) out->failed = true;
    buffer_add_json(out, text.data ? text.data : "", text.length);
    buffer_free(&text);
}

void openai_put_answer(struct buffer *out, const struct openai_head *head,
                       const struct request_piece *const *pieces, const enum request_finish *finish,
                       int count, const struct openai_usage *usage)
{
    put_head(out, head, head->chat ? "chat.completion" : "text_completion");
    for (int i = 0; i < count; i++) {
        buffer_add_format(out, "%s{\"index\":%d,", i ? "," : "", i);
        buffer_add_text(out, head->chat ? "\"message\":{\"role\":\"assistant\",\"content\":"
                                        : "\"text\":");
        put_text(out, pieces[i]);
        if (head->chat) buffer_add_text(out, ",\"refusal\":null}");
        put_logprobs(out, head, pieces[i], true, 0);
        buffer_add_format(out, ",\"finish_reason\":\"%s\"}", finish_name(finish[i]));
    }
    buffer_add_text(out, "],");
    put_usage_object(out, usage);
    buffer_add_text(out, "}");
}
