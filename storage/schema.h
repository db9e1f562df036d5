/* schema.h - the tables of the store, and how a file of an earlier schema becomes one of today's.
 *
 * The tables are private and may change with the schema version; the views (views.h) are the public
 * interface and stay.
 */
#ifndef STORAGE_SCHEMA_H
#define STORAGE_SCHEMA_H

#include <sqlite3.h>

#define SCHEMA_APPLICATION_ID 0x54726d54 /* "TrmT": tells a store from any other SQLite file */

/* One step forward: the SQL that turns a file of version i (index i of the list, 0 = empty) into
 * one of i + 1. */
struct schema_steps {
    const char *const *sql;
    int count; /* = the newest version */
};
extern const struct schema_steps schema_steps;

enum schema_state {
    SCHEMA_CURRENT,
    SCHEMA_EMPTY,   /* a new file */
    SCHEMA_OLDER,   /* can be migrated */
    SCHEMA_NEWER,   /* written by a newer trimtab */
    SCHEMA_FOREIGN, /* somebody else's database */
    SCHEMA_DAMAGED, /* not a database, or pages of it are corrupt */
    SCHEMA_ERROR    /* could not be read */
};
/* What is behind `db`? For all but CURRENT, EMPTY and OLDER *cause says it in words that name
 * `path`. */
enum schema_state schema_inspect(sqlite3 *db, const char *path, const struct schema_steps *steps,
                                 int *version, char **cause);

/* Bring an EMPTY or OLDER file to the newest version inside one transaction, views included. An
 * older file is first copied beside itself ("PATH.schema-1.bak"; the name goes to *backup,
 * malloc'd). On failure the file is as it was. Returns 0, or -1 with *cause. */
int schema_migrate(sqlite3 *db, const char *path, const struct schema_steps *steps, int version,
                   char **backup, char **cause);

/* The tables and views in an empty database, for an export. Returns an SQLite result code. */
int schema_create(sqlite3 *db);

#endif
