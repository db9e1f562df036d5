/* scheme.c - see scheme.h. `safe` uses the blue, orange-ish yellow and white that most colour-blind
 * people tell apart. */
#include "config.h"

#include "tui/scheme.h"

#include <string.h>

enum { BLACK, RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN, WHITE };
#define NONE STYLE_DEFAULT_COLOUR
#define B STYLE_BOLD
#define F STYLE_FAINT
#define R STYLE_REVERSE
#define U STYLE_UNDERLINE

/*        element    letter  default                safe                   mono */
#define ELEMENTS(X)                                                                                \
    X(ELEMENT_TEXT, '.', (NONE, NONE, 0), (NONE, NONE, 0), (NONE, NONE, 0))                        \
    X(ELEMENT_FAINT, 'f', (NONE, NONE, F), (NONE, NONE, F), (NONE, NONE, F))                       \
    X(ELEMENT_LABEL, 'l', (CYAN, NONE, 0), (NONE, NONE, 0), (NONE, NONE, 0))                       \
    X(ELEMENT_VALUE, 'v', (NONE, NONE, 0), (NONE, NONE, 0), (NONE, NONE, 0))                       \
    X(ELEMENT_STRONG, 'V', (NONE, NONE, B), (NONE, NONE, B), (NONE, NONE, B))                      \
    X(ELEMENT_TITLE, 'T', (CYAN, NONE, B), (CYAN, NONE, B), (NONE, NONE, B))                       \
    X(ELEMENT_HEADER, 'h', (NONE, NONE, 0), (NONE, NONE, 0), (NONE, NONE, 0))                      \
    X(ELEMENT_BRAND, 'H', (NONE, NONE, B), (NONE, NONE, B), (NONE, NONE, B))                       \
    X(ELEMENT_ADAPTIVE, 'A', (GREEN, NONE, B), (CYAN, NONE, B), (NONE, NONE, B))                   \
    X(ELEMENT_FIXED, 'K', (YELLOW, NONE, B), (YELLOW, NONE, B), (NONE, NONE, B))                   \
    X(ELEMENT_OFF, 'O', (MAGENTA, NONE, B), (WHITE, NONE, B), (NONE, NONE, B))                     \
    X(ELEMENT_SHADOW, 'S', (BLUE, NONE, B), (BLUE, NONE, B), (NONE, NONE, B))                      \
    X(ELEMENT_GOOD, 'g', (GREEN, NONE, 0), (CYAN, NONE, 0), (NONE, NONE, 0))                       \
    X(ELEMENT_WARN, 'w', (YELLOW, NONE, B), (YELLOW, NONE, B), (NONE, NONE, B))                    \
    X(ELEMENT_BAD, 'b', (RED, NONE, B), (YELLOW, NONE, (B | R)), (NONE, NONE, (B | R)))            \
    X(ELEMENT_LIVE, 'L', (GREEN, NONE, B), (CYAN, NONE, B), (NONE, NONE, B))                       \
    X(ELEMENT_STALE, 'X', (RED, NONE, (B | R)), (YELLOW, NONE, (B | R)), (NONE, NONE, (B | R)))    \
    X(ELEMENT_NOTE, 'N', (YELLOW, NONE, B), (YELLOW, NONE, B), (NONE, NONE, U))                    \
    X(ELEMENT_CURVE, 'c', (GREEN, NONE, 0), (CYAN, NONE, 0), (NONE, NONE, 0))                      \
    X(ELEMENT_AREA, 'a', (BLUE, NONE, 0), (BLUE, NONE, 0), (NONE, NONE, 0))                        \
    X(ELEMENT_SPARK, 's', (BLUE, NONE, 0), (BLUE, NONE, 0), (NONE, NONE, 0))                       \
    X(ELEMENT_BAR, 'i', (CYAN, NONE, 0), (CYAN, NONE, 0), (NONE, NONE, 0))                         \
    X(ELEMENT_POINT, 'p', (NONE, NONE, B), (NONE, NONE, B), (NONE, NONE, B))                       \
    X(ELEMENT_MARK, 'm', (YELLOW, NONE, B), (YELLOW, NONE, B), (NONE, NONE, B))                    \
    X(ELEMENT_KEY, 'k', (NONE, NONE, R), (NONE, NONE, R), (NONE, NONE, R))                         \
    X(ELEMENT_SELECTED, 'R', (NONE, NONE, R), (NONE, NONE, R), (NONE, NONE, R))                    \
    X(ELEMENT_PROMPT, 'P', (BLACK, YELLOW, 0), (BLACK, YELLOW, 0), (NONE, NONE, R))

#define UNWRAP(...)                                                                                \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define LETTER(element, letter, one, two, three) [element] = letter,
#define ROW_DEFAULT(element, letter, one, two, three) [element] = UNWRAP one,
#define ROW_SAFE(element, letter, one, two, three) [element] = UNWRAP two,
#define ROW_MONO(element, letter, one, two, three) [element] = UNWRAP three,

static const char letters[ELEMENT_COUNT] = {ELEMENTS(LETTER)};
static const struct style styles[SCHEME_COUNT][ELEMENT_COUNT] = {
    [SCHEME_DEFAULT] = {ELEMENTS(ROW_DEFAULT)},
    [SCHEME_SAFE] = {ELEMENTS(ROW_SAFE)},
    [SCHEME_MONO] = {ELEMENTS(ROW_MONO)},
};
static const char *const names[SCHEME_COUNT] = {"default", "safe", "mono"};

const char *scheme_name(enum scheme scheme)
{
    return names[scheme];
}

bool scheme_parse(const char *name, enum scheme *scheme)
{
    for (int i = 0; i < SCHEME_COUNT; i++) {
        if (strcmp(name, names[i]) == 0) {
            *scheme = (enum scheme)i;
            return true;
        }
    }
    return false;
}

const struct style *scheme_style(enum scheme scheme, enum element element)
{
    return &styles[scheme][element];
}

char scheme_letter(enum element element)
{
    return letters[element];
}
