/* scheme.h - how the parts of a screen look: one table [scheme][element], with a true monochrome
 * row.
 *
 * Meaning is never carried by colour alone: the words and signs on the screen are the same in every
 * scheme (a test compares them). Knows no curses: terminal.c turns a style into attributes of the
 * terminal.
 */
#ifndef TUI_SCHEME_H
#define TUI_SCHEME_H

#include <stdbool.h>

enum scheme { SCHEME_DEFAULT, SCHEME_SAFE, SCHEME_MONO, SCHEME_COUNT };

enum element {
    ELEMENT_TEXT,     /* plain */
    ELEMENT_FAINT,    /* what may be overlooked: rules, axes, units */
    ELEMENT_LABEL,    /* name of a figure */
    ELEMENT_VALUE,    /* a figure */
    ELEMENT_STRONG,   /* the figure of the line */
    ELEMENT_TITLE,    /* title of a panel */
    ELEMENT_HEADER,   /* first line */
    ELEMENT_BRAND,    /* the program's name in it */
    ELEMENT_ADAPTIVE, /* the modes */
    ELEMENT_FIXED,
    ELEMENT_OFF,
    ELEMENT_SHADOW,
    ELEMENT_GOOD,
    ELEMENT_WARN,
    ELEMENT_BAD,
    ELEMENT_LIVE, /* badges */
    ELEMENT_STALE,
    ELEMENT_NOTE,
    ELEMENT_CURVE, /* charts */
    ELEMENT_AREA,
    ELEMENT_SPARK,
    ELEMENT_BAR,
    ELEMENT_POINT,
    ELEMENT_MARK,
    ELEMENT_KEY, /* footer */
    ELEMENT_SELECTED,
    ELEMENT_PROMPT,
    ELEMENT_COUNT
};

enum { STYLE_BOLD = 1, STYLE_FAINT = 2, STYLE_REVERSE = 4, STYLE_UNDERLINE = 8 };

#define STYLE_DEFAULT_COLOUR (-1)
struct style {
    signed char foreground,
        background;           /* 0 .. 7 as ECMA-48 numbers them, or STYLE_DEFAULT_COLOUR */
    unsigned char attributes; /* STYLE_… */
};

const char *scheme_name(enum scheme scheme);
bool scheme_parse(const char *name, enum scheme *scheme);
const struct style *scheme_style(enum scheme scheme, enum element element);
/* One letter for a style, for dumps of golden screens: `.` plain, else the element's own. */
char scheme_letter(enum element element);

#endif
