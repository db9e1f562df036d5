/* main.c - trimtab: the console and its verbs. Which screen or verb runs, and with which look, is
 * decided here. */
#include "config.h"

#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controller/output.h"
#include "tui/attach.h"
#include "tui/keys.h"
#include "tui/options.h"
#include "tui/script.h"
#include "tui/session.h"
#include "tui/terminal.h"
#include "tui/verbs.h"

static bool no_color_wanted(const struct options *options)
{
    const char *variable = getenv("NO_COLOR"); /* no-color.org: set and not empty */

    return options->no_color || (!options->scheme_given && variable != NULL && variable[0] != '\0');
}

static int run_console(const struct options *options)
{
    struct terminal_options terminal = {
        .ui = {.utc = options->utc,
               .ascii = options->ascii || strcmp(nl_langinfo(CODESET), "UTF-8") != 0,
               .read_only = options->read_only,
               .interval_ms = options->interval_ms},
        .scheme = no_color_wanted(options) ? SCHEME_MONO : options->scheme,
        .mouse = options->mouse,
        .node = options->node,
        .client = session_client_options(options, 0),
    };
    const char *unfit;
    char *cause = NULL;
    int status;

    if (options->script != NULL) {
        status =
            script_run(options->script, &terminal.ui, &cause) == 0 ? EXIT_HEALTHY : EXIT_DEGRADED;
        if (status != EXIT_HEALTHY) session_say("%s", cause != NULL ? cause : "out of memory");
        free(cause);
        return status;
    }
    if (options->once || options->json || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
        terminal.ui.printed = true;
        return verb_once(options, &terminal.ui);
    }
    unfit = terminal_unfit();
    if (unfit != NULL) {
        session_say("%s; printing one screen", unfit);
        terminal.ui.printed = true;
        return verb_once(options, &terminal.ui);
    }
    status = terminal_run(&terminal, &cause);
    if (cause != NULL) session_say("%s", cause);
    free(cause);
    return status;
}

static int run(int argc, char **argv)
{
    const struct verb *verb;
    struct options options;
    char *cause = NULL;
    int status;

    if (options_parse(argc, argv, &options, &verb, &cause) != 0) {
        session_say("%s", cause != NULL ? cause : "out of memory");
        free(cause);
        return EXIT_USAGE;
    }
    if (options.help) return verb_help(&options);
    if (options.version) {
        puts("trimtab " PACKAGE_VERSION);
        return EXIT_HEALTHY;
    }
    if (options.dump_keys) {
        key_write_table(stdout);
        return EXIT_HEALTHY;
    }
    status = options.script == NULL ? attach_begin(&options) : 0;
    if (status == 0) status = verb != NULL ? verb->run(&options) : run_console(&options);
    attach_end();
    return status;
}

int main(int argc, char **argv)
{
    setlocale(LC_CTYPE, ""); /* and no more: numbers stay as JSON and SQL write them */
    return output_finish("trimtab", run(argc, argv));
}
