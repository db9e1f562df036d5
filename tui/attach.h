/* attach.h - engines named by their URL, watched without a daemon of one's own: a private trimtabd
 * is started for as long as this program runs.
 *
 * Its socket and its files lie in a folder of mode 0700 that goes with it, however this program
 * ends: a small process waits for that at the other end of a pipe.
 */
#ifndef TUI_ATTACH_H
#define TUI_ATTACH_H

#include "tui/options.h"

/* Where options->urls name engines rather than a daemon, start a private one and make it the
 * endpoint. 0, or the exit status after a message. */
int attach_begin(struct options *options);
/* End it and wait until its folder is gone. Also without one. */
void attach_end(void);

#endif
