/* views.h - the public interface of the store: views whose names and columns stay across schema
 * versions.
 *
 * docs/sql.md describes them for people; a test holds that page and this list together.
 */
#ifndef STORAGE_VIEWS_H
#define STORAGE_VIEWS_H

#include <sqlite3.h>

struct view {
    const char *name;
    const char *until_ms; /* SQL over the view's columns: the time up to which a row speaks, for
                             `--since` */
    const char *sql;      /* the SELECT behind it */
};
extern const struct view views[];
extern const int views_count;

/* A view forgets nothing that its tier still holds, and counts nothing twice: see rollup.h for the
 * tiers. */
int views_create(sqlite3 *db); /* SQLite result codes */
int views_drop(sqlite3 *db);

#endif
