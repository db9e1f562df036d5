/* terminal.c - see terminal.h. */
#include "config.h"

#define NCURSES_WIDECHAR 1
#include <curses.h>
#include <term.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "controller/cause.h"
#include "controller/ticks.h"
#include "tui/collector.h"
#include "tui/options.h"
#include "tui/terminal.h"

#define FRAME_MS 100   /* at most ten frames a second */
#define TICK_MS 1000   /* ages on the screen count up */
#define ESCAPE_MS 25   /* how long a lone Esc may be the begin of something */
#define INPUT_ERRORS 5 /* that many empty reads of a readable terminal: it is gone */
#define MAX_PAIRS 48

/* ---- putting the terminal back from a signal handler: everything is prepared beforehand */

static struct {
    volatile sig_atomic_t armed;
    struct termios before;
    char sequence[256];
    size_t length;
} rescue;
static int wake_pipe[2] = {-1, -1};
static volatile sig_atomic_t ended_by, suspended, resumed, resized;

static int collect_byte(int byte)
{
    if (rescue.length < sizeof rescue.sequence) rescue.sequence[rescue.length++] = (char)byte;
    return byte;
}

static void prepare_rescue(void)
{
    static const char *const names[] = {"sgr0", "op", "rmkx", "cnorm", "rmcup"};

    rescue.length = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *capability = tigetstr(names[i]);

        if (capability != NULL && capability != (char *)-1) tputs(capability, 1, collect_byte);
    }
}

static void on_fatal(int signal_number)
{
    if (rescue.armed) {
        ssize_t ignored = write(STDOUT_FILENO, rescue.sequence, rescue.length);

        (void)ignored;
        tcsetattr(STDIN_FILENO, TCSANOW,
                  &rescue.before); /* on POSIX's list of async-signal-safe calls */
    }
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void on_signal(int signal_number)
{
    int saved = errno;
    ssize_t ignored;

    if (signal_number == SIGWINCH)
        resized = 1;
    else if (signal_number == SIGTSTP)
        suspended = 1;
    else if (signal_number == SIGCONT)
        resumed = 1;
    else
        ended_by = signal_number;
    ignored = write(wake_pipe[1], "", 1);
    (void)ignored;
    errno = saved;
}

static const int soft_signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH, SIGTSTP, SIGCONT};
static const int fatal_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void catch_signals(void)
{
    static char stack[64 * 1024]; /* a stack overflow needs another one */
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = on_signal};

    sigaltstack(&alternate, NULL);
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < COUNT(soft_signals); i++) sigaction(soft_signals[i], &action, NULL);
    action.sa_handler = on_fatal;
    action.sa_flags = (int)(SA_RESETHAND | SA_ONSTACK | SA_NODEFER);
    for (size_t i = 0; i < COUNT(fatal_signals); i++) sigaction(fatal_signals[i], &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static void release_signals(void)
{
    for (size_t i = 0; i < COUNT(soft_signals); i++) signal(soft_signals[i], SIG_DFL);
    for (size_t i = 0; i < COUNT(fatal_signals); i++) signal(fatal_signals[i], SIG_DFL);
}

/* ---- painting */

struct paint {
    enum scheme scheme;
    bool colours, defaults; /* the terminal has colours, and its own default ones */
    int pairs;
    struct {
        signed char foreground, background;
    } pair[MAX_PAIRS];
};

static void start_colours(struct paint *paint)
{
    if (paint->scheme == SCHEME_MONO || !has_colors() || start_color() == ERR) return;
    paint->defaults = use_default_colors() == OK;
    paint->colours = true;
}

static int pair_for(struct paint *paint, const struct style *style)
{
    int foreground = style->foreground, background = style->background;

    if (!paint->colours || (foreground < 0 && background < 0)) return 0;
    for (int i = 0; i < paint->pairs; i++)
        if (paint->pair[i].foreground == foreground && paint->pair[i].background == background)
            return i + 1;
    if (paint->pairs == MAX_PAIRS) return 0;
    paint->pair[paint->pairs].foreground = (signed char)foreground;
    paint->pair[paint->pairs].background = (signed char)background;
    paint->pairs++;
    if (!paint->defaults) { /* as most terminals without it look */
        if (foreground < 0) foreground = COLOR_WHITE;
        if (background < 0) background = COLOR_BLACK;
    }
    init_pair((short)paint->pairs, (short)foreground, (short)background);
    return paint->pairs;
}

static attr_t attributes_of(const struct style *style, bool faint)
{
    attr_t attributes = A_NORMAL;

    if (style->attributes & STYLE_BOLD && !faint) attributes |= A_BOLD;
    if (style->attributes & STYLE_FAINT || faint) attributes |= A_DIM;
    if (style->attributes & STYLE_REVERSE) attributes |= A_REVERSE;
    if (style->attributes & STYLE_UNDERLINE) attributes |= A_UNDERLINE;
    return attributes;
}

/* Put the whole grid into curses' window; curses sends what differs. */
static void paint_screen(struct paint *paint, const struct screen *screen)
{
    erase();
    for (int row = 0; row < screen_rows(screen) && row < LINES; row++) {
        for (int col = 0; col < screen_cols(screen) && col < COLS; col++) {
            const struct cell *cell = screen_cell(screen, row, col);
            const struct style *style = scheme_style(paint->scheme, (enum element)cell->element);
            wchar_t text[2] = {(wchar_t)cell->character, L'\0'};
            cchar_t wide;

            if (cell->character == 0) continue;
            setcchar(&wide, text, attributes_of(style, cell->faint), (short)pair_for(paint, style),
                     NULL);
            mvadd_wch(row, col, &wide);
        }
    }
    wnoutrefresh(stdscr);
    doupdate();
}

/* ---- keys */

/* The key that interrupts (Ctrl-C, if the user has not chosen another) is read in order with the
 * others: at a question it leaves that, elsewhere it ends the console as its signal would. */
static void read_interrupts(void)
{
    struct termios now;

    if (tcgetattr(STDIN_FILENO, &now) != 0) return;
    now.c_cc[VINTR] = _POSIX_VDISABLE;
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &now);
    def_prog_mode(); /* so it is again after a suspension */
}

static bool interrupts(wint_t key)
{
    cc_t chosen = rescue.before.c_cc[VINTR];

    return chosen != _POSIX_VDISABLE && key == chosen;
}

static uint32_t translate_key(int result, wint_t key)
{
    static const struct {
        int curses;
        uint32_t key;
    } table[] = {
        {KEY_UP, KEY_CODE_UP},
        {KEY_DOWN, KEY_CODE_DOWN},
        {KEY_LEFT, KEY_CODE_LEFT},
        {KEY_RIGHT, KEY_CODE_RIGHT},
        {KEY_PPAGE, KEY_CODE_PAGE_UP},
        {KEY_NPAGE, KEY_CODE_PAGE_DOWN},
        {KEY_HOME, KEY_CODE_HOME},
        {KEY_END, KEY_CODE_END},
        {KEY_ENTER, KEY_CODE_ENTER},
        {KEY_BTAB, KEY_CODE_BACK_TAB},
        {KEY_BACKSPACE, KEY_CODE_BACKSPACE},
        {KEY_DC, KEY_CODE_BACKSPACE},
        {KEY_F(1), KEY_CODE_F1},
        {KEY_F(5), KEY_CODE_F5},
        {KEY_F(10), KEY_CODE_F10},
    };

    if (result != KEY_CODE_YES) {
        if (interrupts(key)) return KEY_CONTROL('C');
        switch (key) {
        case '\r':
        case '\n':
            return KEY_CODE_ENTER;
        case '\t':
            return KEY_CODE_TAB;
        case 27:
            return KEY_CODE_ESCAPE;
        case 8:
        case 127:
            return KEY_CODE_BACKSPACE;
        default:
            return (uint32_t)key;
        }
    }
    if (key == KEY_MOUSE) {
        MEVENT event;

        if (getmouse(&event) != OK) return KEY_CODE_NONE;
        return event.bstate & BUTTON4_PRESSED ? KEY_CODE_UP : KEY_CODE_DOWN;
    }
    for (size_t i = 0; i < COUNT(table); i++)
        if (table[i].curses == (int)key) return table[i].key;
    return KEY_CODE_NONE;
}

/* ---- the loop */

struct terminal {
    SCREEN *curses;
    FILE *output; /* curses' own stream: what others print to stdout does not mix into it */
    struct paint paint;
    struct ui *ui;
    struct screen *screen;
    struct collector *collector;
    int64_t drawn_ms;
    int input_errors;
    bool dirty;
};

static void set_time(struct terminal *terminal)
{
    if (ui_set_time(terminal->ui, monotonic_ms(), utc_ms())) terminal->dirty = true;
}

static struct wishes wishes_of(const struct ui *ui)
{
    struct wishes wishes = {.view = ui_view(ui),
                            .interval_ms = ui_interval_ms(ui),
                            .window_ms = ui_window_ms(ui),
                            .at_ms = ui_at_ms(ui)};

    snprintf(wishes.node, sizeof wishes.node, "%s", ui_node(ui));
    return wishes;
}

/* What could not be fetched: without nodes and snapshots nothing goes on; a list that is missing is
 * said in its view. */
static void take_failure(struct terminal *terminal, const struct news *news)
{
    static const enum model_list list[NEWS_KINDS] = {[NEWS_REQUESTS] = LIST_REQUESTS,
                                                     [NEWS_DECISIONS] = LIST_DECISIONS,
                                                     [NEWS_CALIBRATION] = LIST_CALIBRATION,
                                                     [NEWS_COST] = LIST_COST,
                                                     [NEWS_SETTINGS] = LIST_SETTINGS};
    const char *why = news->text != NULL ? news->text : "the daemon does not answer";

    if (news->kind == NEWS_NODES || news->kind == NEWS_SNAPSHOT)
        ui_set_trouble(terminal->ui, why);
    else if (news->kind == NEWS_PAST)
        model_refuse_past(ui_model(terminal->ui), why);
    else if (news->kind != NEWS_HISTORY && news->kind != NEWS_PAST_HISTORY)
        model_refuse(ui_model(terminal->ui), list[news->kind], why);
    terminal->dirty = true;
}

static void take_one(struct terminal *terminal, const struct news *news)
{
    struct ui *ui = terminal->ui;
    struct model *model = ui_model(ui);
    char *cause = NULL;
    int result = 0;

    if (news->node[0] != '\0' && ui_node(ui)[0] != '\0' && news->kind != NEWS_ANSWER &&
        strcmp(news->node, ui_node(ui)) != 0)
        return; /* of the node that was watched before */
    if (news->json == NULL && news->kind != NEWS_ANSWER) {
        take_failure(terminal, news);
        return;
    }
    switch (news->kind) {
    case NEWS_NODES:
        result = model_take_nodes(model, news->json, monotonic_ms(), &cause);
        break;
    case NEWS_SNAPSHOT:
        result = model_take_snapshot(model, news->json, monotonic_ms(), &cause);
        if (result == 0) ui_set_trouble(ui, NULL);
        break;
    case NEWS_HISTORY:
        result = model_take_history(model, news->json, &cause);
        break;
    case NEWS_REQUESTS:
        result = model_take_requests(model, news->json, &cause);
        break;
    case NEWS_DECISIONS:
        result = model_take_decisions(model, news->json, &cause);
        break;
    case NEWS_CALIBRATION:
        result = model_take_calibration(model, news->json, &cause);
        break;
    case NEWS_COST:
        result = model_take_cost(model, news->json, &cause);
        break;
    case NEWS_SETTINGS:
        result = model_take_settings(model, news->json, &cause);
        break;
    case NEWS_PAST:
        result = model_take_past(model, news->json, &cause);
        break;
    case NEWS_PAST_HISTORY:
        result = model_take_past_history(model, news->json, &cause);
        break;
    case NEWS_ANSWER:
        ui_take_answer(ui, news->answer, news->generation,
                       news->text != NULL ? news->text : "no reason was given");
        terminal->dirty = true;
        return;
    case NEWS_KINDS:
        return;
    }
    if (result != 0) {
        ui_set_trouble(ui, cause != NULL ? cause : "out of memory");
        terminal->dirty = true;
    } else if (ui_data_arrived(ui)) {
        terminal->dirty = true;
    }
    free(cause);
}

static void take_news(struct terminal *terminal)
{
    struct news news;

    while (collector_take(terminal->collector, &news)) {
        take_one(terminal, &news);
        news_clear(&news);
    }
}

/* Read the keys that are there. False: leave. */
static bool take_keys(struct terminal *terminal, bool readable)
{
    wint_t key;
    int result;
    bool any = false;

    while ((result = get_wch(&key)) != ERR) {
        struct wishes wishes;
        struct ui_command command;
        uint32_t code;
        unsigned asks;

        any = true;
        if (result == KEY_CODE_YES && key == KEY_RESIZE) {
            resized = 1;
            continue;
        }
        if (terminal->dirty) /* keys typed ahead mean the row that the ones before have selected */
            ui_draw(terminal->ui, terminal->screen);
        code = translate_key(result, key);
        if (code == KEY_CONTROL('C') && !ui_is_asking(terminal->ui)) {
            ended_by = SIGINT;
            return false;
        }
        asks = ui_key(terminal->ui, code);
        if (asks & UI_QUIT) return false;
        if (asks & UI_DRAW) terminal->dirty = true;
        if (asks & UI_REPAINT) clearok(curscr, TRUE);
        wishes = wishes_of(terminal->ui);
        collector_wish(terminal->collector, &wishes, (asks & UI_REFRESH) != 0);
        if (asks & UI_COMMAND && ui_take_command(terminal->ui, &command))
            collector_command(terminal->collector, &command);
    }
    if (!readable || any)
        terminal->input_errors = 0;
    else if (++terminal->input_errors >= INPUT_ERRORS)
        return false; /* readable but empty, again and again: the terminal hung up */
    return true;
}

static void take_resize(struct terminal *terminal)
{
    struct winsize size;

    resized = 0;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0)
        resizeterm(size.ws_row, size.ws_col);
    screen_resize(terminal->screen, LINES, COLS);
    clearok(curscr, TRUE);
    terminal->dirty = true;
}

/* Ctrl-Z: give the terminal back, stop for real, take it again. */
static void take_suspend(struct terminal *terminal)
{
    struct sigaction action = {.sa_handler = on_signal};

    suspended = 0;
    endwin();
    rescue.armed = 0;
    signal(SIGTSTP, SIG_DFL);
    raise(SIGTSTP);
    sigfillset(&action.sa_mask);
    sigaction(SIGTSTP, &action, NULL);
    rescue.armed = 1;
    resumed = 0;
    refresh();
    take_resize(terminal); /* the window may have changed meanwhile */
}

static void draw(struct terminal *terminal)
{
    ui_draw(terminal->ui, terminal->screen);
    paint_screen(&terminal->paint, terminal->screen);
    terminal->drawn_ms = monotonic_ms();
    terminal->dirty = false;
}

static void loop(struct terminal *terminal)
{
    struct pollfd wait[3] = {{.fd = STDIN_FILENO, .events = POLLIN},
                             {.fd = wake_pipe[0], .events = POLLIN},
                             {.fd = collector_descriptor(terminal->collector), .events = POLLIN}};

    for (;;) {
        int64_t since_ms = monotonic_ms() - terminal->drawn_ms;
        int timeout_ms = TICK_MS;
        char bytes[64];

        if (terminal->dirty && since_ms >= FRAME_MS) draw(terminal);
        if (terminal->dirty) timeout_ms = (int)(FRAME_MS - since_ms);
        if (poll(wait, 3, timeout_ms < 0 ? 0 : timeout_ms) < 0 && errno != EINTR) return;
        while (read(wake_pipe[0], bytes, sizeof bytes) > 0) {}
        if (ended_by != 0) return;
        if (suspended) take_suspend(terminal);
        if (resumed) {
            resumed = 0;
            reset_prog_mode();
            take_resize(terminal);
        }
        if (resized) take_resize(terminal);
        set_time(terminal);
        take_news(terminal);
        if (wait[0].revents & (POLLHUP | POLLERR | POLLNVAL) && !(wait[0].revents & POLLIN)) return;
        if (!take_keys(terminal, (wait[0].revents & POLLIN) != 0)) return;
    }
}

/* ---- life */

const char *terminal_unfit(void)
{
    const char *name = getenv("TERM"), *move;
    bool fit;
    int error;

    if (name == NULL || name[0] == '\0')
        return "TERM is not set, so the console cannot know the terminal";
    if (setupterm(NULL, STDOUT_FILENO, &error) != OK)
        return error == 0
                   ? "the terminal type in TERM is unknown here (is its terminfo entry installed?)"
                   : "no terminfo database was found";
    move = tigetstr("cup");
    fit = move != NULL && move != (char *)-1;
    del_curterm(cur_term); /* newterm reads its own */
    return fit ? NULL : "the terminal type in TERM cannot place its cursor";
}

static int open_curses(struct terminal *terminal, const struct terminal_options *options,
                       char **cause)
{
    if (pipe(wake_pipe) != 0) {
        cause_set(cause, "cannot make a pipe: %s", strerror(errno));
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        fcntl(wake_pipe[i], F_SETFD, FD_CLOEXEC);
        fcntl(wake_pipe[i], F_SETFL, O_NONBLOCK);
    }
    tcgetattr(STDIN_FILENO, &rescue.before);
    catch_signals();
    terminal->curses = newterm(NULL, stdout, stdin);
    if (terminal->curses == NULL) {
        cause_set(cause, "cannot use the terminal as %s", getenv("TERM"));
        return -1;
    }
    prepare_rescue();
    rescue.armed = 1;
    set_escdelay(ESCAPE_MS);
    cbreak();
    noecho();
    nonl();
    curs_set(0);
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    intrflush(stdscr, FALSE);
    read_interrupts();
    if (options->mouse) mousemask(BUTTON4_PRESSED | BUTTON5_PRESSED, NULL);
    terminal->paint.scheme = options->scheme;
    start_colours(&terminal->paint);
    return 0;
}

static void close_curses(struct terminal *terminal)
{
    if (terminal->curses != NULL) {
        endwin();
        delscreen(terminal->curses);
    }
    rescue.armed = 0;
    release_signals();
    for (int i = 0; i < 2; i++)
        if (wake_pipe[i] >= 0) close(wake_pipe[i]);
    wake_pipe[0] = wake_pipe[1] = -1;
}

int terminal_run(const struct terminal_options *options, char **cause)
{
    struct terminal terminal = {.dirty = true};
    struct wishes wishes;
    int result = EXIT_DEGRADED;

    terminal.ui = ui_new(&options->ui);
    if (terminal.ui == NULL) {
        cause_set(cause, "out of memory");
        goto out;
    }
    if (options->node != NULL) model_watch(ui_model(terminal.ui), options->node);
    wishes = wishes_of(terminal.ui);
    terminal.collector = collector_new(&options->client, &wishes, cause);
    if (terminal.collector == NULL) {
        result = EXIT_USAGE;
        goto out;
    }
    if (open_curses(&terminal, options, cause) != 0) goto out;
    terminal.screen = screen_new(LINES, COLS, options->ui.ascii);
    if (terminal.screen != NULL) {
        set_time(&terminal);
        loop(&terminal);
        result = EXIT_HEALTHY;
    } else {
        cause_set(cause, "out of memory");
    }
out:
    close_curses(&terminal);
    collector_free(terminal.collector);
    screen_free(terminal.screen);
    ui_free(terminal.ui);
    if (ended_by != 0) raise(ended_by); /* the parent sees why; handlers are gone */
    return result;
}
