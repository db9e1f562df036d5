/* node_echo_lm.c - the text half of a language model (controller/lm.h) for tests of the front:
 * bytes and 64 words. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/cause.h"
#include "controller/lm.h"
#include "tests/controller/node_echo.h"

struct lm {
    const char *name;
};

const struct lm echo_lm = {"echo-tiny"};

/* With characters of two, three and four bytes, quotes, a backslash, a newline and a control
 * character. */
static const char *const words[ECHO_WORDS] = {
    " the",
    " quick",
    " brown",
    " fox",
    " jumps",
    " over",
    " a",
    " lazy",
    " dog",
    ".",
    "\n",
    " \"so\"",
    " it",
    " said",
    " caf\xC3\xA9",
    " \xE6\x97\xA5\xE6\x9C\xAC",
    " \xF0\x9F\x99\x82",
    " back\\slash",
    "\t",
    "\x01",
    " one",
    " two",
    " three",
    " four",
    " five",
    " six",
    " seven",
    " eight",
    " nine",
    " ten",
    " red",
    " green",
    " blue",
    " black",
    " white",
    " up",
    " down",
    " left",
    " right",
    " in",
    " out",
    " sun",
    " moon",
    " star",
    " sea",
    " sky",
    " rain",
    " snow",
    " wind",
    " fire",
    " tree",
    " leaf",
    " root",
    " seed",
    " fish",
    " bird",
    " cat",
    " cow",
    " hen",
    " pig",
    " rat",
    " bee",
    " ant",
    "!",
};

const char *echo_word(int index)
{
    return words[((index % ECHO_WORDS) + ECHO_WORDS) % ECHO_WORDS];
}

const char *lm_name(const struct lm *lm)
{
    return lm->name;
}

int lm_vocab(const struct lm *lm)
{
    (void)lm;
    return ECHO_VOCAB;
}

int lm_sequence_cells(const struct lm *lm)
{
    (void)lm;
    return ECHO_CONTEXT;
}

bool lm_is_end(const struct lm *lm, int32_t token)
{
    (void)lm;
    return token == ECHO_END;
}

int lm_tokenize(const struct lm *lm, const char *text, size_t length, bool add_special,
                bool parse_special, int32_t **tokens)
{
    (void)lm, (void)add_special, (void)parse_special;
    *tokens = malloc(length * sizeof **tokens + 1);
    if (!*tokens) return -1;
    for (size_t i = 0; i < length; i++) (*tokens)[i] = (unsigned char)text[i];
    return (int)length;
}

int lm_piece(const struct lm *lm, int32_t token, char *bytes, size_t size)
{
    (void)lm;
    if (token < 0 || token >= ECHO_END || size == 0) return 0;
    if (token < ECHO_FIRST_WORD) {
        bytes[0] = (char)token;
        return 1;
    }
    size_t length = strlen(words[token - ECHO_FIRST_WORD]);
    if (length > size) length = size;
    memcpy(bytes, words[token - ECHO_FIRST_WORD], length);
    return (int)length;
}

/* "<role>content" per message; a message of role "tool" stands for a template that cannot render
 * it. */
char *lm_chat(const struct lm *lm, const struct lm_message *messages, size_t count, char **cause)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    (void)lm;
    for (size_t i = 0; out && i < count; i++) {
        if (strcmp(messages[i].role, "tool") == 0) {
            cause_set(cause, "the chat template knows no role 'tool'");
            fclose(out);
            free(text);
            return NULL;
        }
        fprintf(out, "<%s>%s", messages[i].role, messages[i].content);
    }
    if (out) fclose(out);
    return text;
}
