/* clang-format off */
/* script.h - the console driven by a file, with a fixed clock and no terminal: golden screens and
 * demonstrations.
 *
 * One command a line, `#` begins a comment. Files to load are relative to the script, files to
 * write to the working folder (`-` is standard output).
 *
 *   size COLSxROWS              of the screen, 80x24 at first
 *   option ascii|utc|read-only|interval MS    before the first load, key or dump
 *   time MS                     UTC milliseconds; the monotonic clock goes along
 *   wait MS                     let time pass
 *   load FILE                   a JSON document of the control API, or an object of such
 *   base FILE                   the same, for `patch` only
 *   patch nodes|snapshot JSON   the last such document with these keys replaced
 *   live SECONDS                a snapshot a second goes by, each drawn
 *   trouble [TEXT]              fetching failed, or works again
 *   refuse LIST|past TEXT       one list could not be fetched
 *   key NAME...                 see keys.h; `type TEXT` types
 *   expect command MODE GENERATION | SETTING=JSON GENERATION | cancel REQUEST | none
 *                               what would be sent to the node
 *   answer ok|conflict GENERATION, answer refused|unreachable TEXT
 *   :dump FILE, :styles FILE    the screen as text, or a letter a cell for how it looks
 */
/* clang-format on */
#ifndef TUI_SCRIPT_H
#define TUI_SCRIPT_H

#include "tui/ui.h"

/* 0, or -1 with *cause (malloc'd) naming the line. */
int script_run(const char *path, const struct ui_options *options, char **cause);

#endif
