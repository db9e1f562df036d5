/* ui_act.c - acting on a node: a question in one line, the command, what the node answers and
 * reports. See ui_state.h.
 *
 * Nothing is assumed done: a mode counts when the node's snapshot shows it, a setting when the
 * daemon's document holds it.
 */
#include "config.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/number.h"
#include "tui/text.h"
#include "tui/ui_state.h"

#define MESSAGE_MS 8000
#define ARROW "\xe2\x86\x92" /* → */

void ui_say(struct ui *ui, enum element element, bool until_key, const char *text)
{
    text_clean(ui->message, sizeof ui->message, text);
    ui->message_element = element;
    ui->message_until_ms = until_key ? 0 : ui->mono_ms + MESSAGE_MS;
}

const char *ui_plain_value(const char *json, char out[MODEL_VALUE])
{
    size_t length = strlen(json);

    if (strcmp(json, "true") == 0 || strcmp(json, "false") == 0)
        snprintf(out, MODEL_VALUE, "%s", json[0] == 't' ? "on" : "off");
    else if (length >= 2 && json[0] == '"' && json[length - 1] == '"')
        snprintf(out, MODEL_VALUE, "%.*s", (int)(length - 2), json + 1);
    else
        snprintf(out, MODEL_VALUE, "%s", json);
    return out;
}

void ui_say_none(struct ui *ui, const char *why)
{
    char text[240];

    snprintf(text, sizeof text, "nothing is selected: %s", why);
    ui_say(ui, ELEMENT_NOTE, false, text);
}

static const char *describe_toggle(const struct ui *ui, enum mode target, char *out, size_t size)
{
    const struct snapshot *s = &ui->model->snapshot;
    char from[40], to[40];
    const char *effect = target == MODE_ADAPTIVE ? "drafts trimmed" : "with the best uniform K";

    mode_describe(s->mode, s->fixed_draft, from, sizeof from);
    snprintf(to, sizeof to, "%s", mode_name(target));
    if (target == MODE_FIXED && s->fixed_draft > 0) {
        mode_describe(target, s->fixed_draft, to, sizeof to);
        effect = "all drafts verified";
    }
    snprintf(out, size, "%s " ARROW " %s, %s", from, to, effect);
    return out;
}

const char *ui_describe(const struct ui *ui, const struct ui_command *command, char *out,
                        size_t size)
{
    char from[MODEL_VALUE], to[MODEL_VALUE];

    switch (command->kind) {
    case COMMAND_MODE:
        return describe_toggle(ui, command->mode, out, size);
    case COMMAND_SET:
        snprintf(out, size, "%s %s " ARROW " %s", command->setting,
                 ui_plain_value(ui->old.value, from), ui_plain_value(command->value, to));
        break;
    case COMMAND_CANCEL:
        snprintf(out, size, "cancel request %lld", (long long)command->request);
        break;
    }
    return out;
}

/* ---- the node's word on what was asked */

static void read_back_mode(struct ui *ui)
{
    const struct snapshot *s = &ui->model->snapshot;
    char text[200], mode[40];

    if (s->generation < ui->pending_generation || s->switching) return;
    ui->pending = false;
    mode_describe(s->mode, s->fixed_draft, mode, sizeof mode);
    if (s->mode == ui->command.mode) {
        snprintf(text, sizeof text, "%s: %s is in force (generation %lld)", s->node.id, mode,
                 (long long)s->generation);
        ui_say(ui, ELEMENT_GOOD, false, text);
    } else {
        snprintf(text, sizeof text, "%s: asked for %s, but somebody else set %s since", s->node.id,
                 mode_name(ui->command.mode), mode);
        ui_say(ui, ELEMENT_WARN, true, text);
    }
}

/* The answer to a change of a setting holds them all as they are now, once the node has taken it;
 * what is accepted then may still wait for something. */
static void read_back_setting(struct ui *ui)
{
    const struct model_setting *now = model_setting_named(ui->model, ui->command.setting);
    const struct snapshot *s = &ui->model->snapshot;
    char text[400], value[MODEL_VALUE], wanted[MODEL_VALUE];

    if (s->generation < ui->pending_generation || s->switching) return;
    ui->pending = false;
    if (now != NULL && now->pending[0] != '\0') {
        snprintf(text, sizeof text, "%s: %s %s is pending, %s is in force: %s", ui->command.node,
                 ui->command.setting, ui_plain_value(now->pending, wanted),
                 ui_plain_value(now->value, value), ui->model->settings_await);
        ui_say(ui, ELEMENT_NOTE, true, text);
        ui->undo = ui->old;
        return;
    }
    snprintf(text, sizeof text, "%s: %s is now %s (generation %lld)", ui->command.node,
             ui->command.setting, now != NULL ? ui_plain_value(now->value, value) : TEXT_UNKNOWN,
             (long long)ui->pending_generation);
    ui_say(ui, ELEMENT_GOOD, false, text);
    ui->undo = ui->old;
}

void ui_read_back(struct ui *ui)
{
    if (!ui->pending || ui->pending_generation < 0) return;
    if (ui->command.kind == COMMAND_MODE)
        read_back_mode(ui);
    else if (ui->command.kind == COMMAND_SET)
        read_back_setting(ui);
}

bool ui_take_command(struct ui *ui, struct ui_command *out)
{
    if (!ui->command_waiting) return false;
    ui->command_waiting = false;
    *out = ui->command;
    return true;
}

void ui_take_answer(struct ui *ui, enum answer answer, int64_t generation, const char *text)
{
    char message[320];

    if (!ui->pending) return;
    if (answer == ANSWER_OK && ui->command.kind == COMMAND_CANCEL) {
        ui->pending = false;
        snprintf(message, sizeof message, "%s: request %lld was cancelled", ui->command.node,
                 (long long)ui->command.request);
        ui_say(ui, ELEMENT_GOOD, false, message);
        return;
    }
    if (answer == ANSWER_OK) {
        ui->pending_generation = generation;
        ui_read_back(ui);
        return;
    }
    ui->pending = false;
    switch (answer) {
    case ANSWER_CONFLICT:
        snprintf(message, sizeof message,
                 "%s: changed by somebody else (generation %lld); look, then ask again",
                 ui->command.node, (long long)generation);
        break;
    case ANSWER_UNREACHABLE:
        snprintf(message, sizeof message, "%s: unknown whether it happened: %s", ui->command.node,
                 text);
        break;
    default:
        snprintf(message, sizeof message, "%s: refused: %s", ui->command.node, text);
    }
    ui_say(ui, ELEMENT_BAD, true, message);
}

/* ---- asking */

/* Why nothing can be changed now; false with the reason said. `able`: the node offers it. */
static bool may_act(struct ui *ui, bool able, const char *what)
{
    const struct model_node *node = model_watched(ui->model);
    const struct snapshot *s = &ui->model->snapshot;
    char text[400];

    if (ui->options.read_only) {
        ui_say(ui, ELEMENT_WARN, true, "not possible: this console was started with --read-only");
    } else if (!ui->model->snapshot_known) {
        ui_say(ui, ELEMENT_WARN, true, "not possible yet: nothing is known about a node");
    } else if (ui->model->read_only) {
        ui_say(ui, ELEMENT_WARN, true,
               "read-only: be the socket's owner, or use --token-file FILE");
    } else if (!able) {
        snprintf(text, sizeof text, "%s cannot be %s: %s", s->node.id, what,
                 node != NULL && node->unable[0] != '\0' ? node->unable
                                                         : "the node does not offer it");
        ui_say(ui, ELEMENT_WARN, true, text);
    } else if (model_is_stale(ui->model, ui->mono_ms, ui->options.interval_ms)) {
        ui_say(ui, ELEMENT_WARN, true,
               "not possible: the figures are stale, the daemon does not answer");
    } else if (ui->pending) {
        ui_say(ui, ELEMENT_WARN, true, "the last change is still pending; wait for the node");
    } else {
        return true;
    }
    return false;
}

static bool node_offers(const struct ui *ui, const char *capability, bool listed)
{
    return strstr(ui->model->snapshot.node.capabilities, capability) != NULL && listed;
}

static void ask(struct ui *ui, enum prompt prompt, enum command_kind kind)
{
    ui->prompt = prompt;
    ui->typed[0] = '\0';
    ui->asked =
        (struct ui_command){.kind = kind, .expect_generation = ui->model->snapshot.generation};
    snprintf(ui->asked.node, sizeof ui->asked.node, "%s", ui->model->node_id);
}

void ui_ask_toggle(struct ui *ui)
{
    const struct model_node *node = model_watched(ui->model),
                            *selected = ui->view == VIEW_FLEET ? view_fleet_selected(ui) : NULL;
    char text[3 * SNAPSHOT_NAME];

    if (selected != NULL && selected != node) {
        snprintf(text, sizeof text, "a acts on the watched node, %s; Enter watches %s",
                 ui->model->node_id, selected->id);
        ui_say(ui, ELEMENT_WARN, true, text);
        return;
    }
    if (!may_act(ui, node_offers(ui, "mode", node == NULL || node->can_set_mode), "switched"))
        return;
    ask(ui, PROMPT_CONFIRM, COMMAND_MODE);
    ui->asked.mode = ui->model->snapshot.mode == MODE_ADAPTIVE ? MODE_FIXED : MODE_ADAPTIVE;
}

void ui_ask_cancel(struct ui *ui)
{
    const struct model_request *request = view_requests_selected(ui);

    if (request == NULL) {
        ui_say_none(ui, view_requests_none(ui));
        return;
    }
    if (!may_act(ui, true, "asked")) return;
    ask(ui, PROMPT_CONFIRM, COMMAND_CANCEL);
    ui->asked.request = request->id;
}

static bool may_set(struct ui *ui)
{
    const struct model_node *node = model_watched(ui->model);

    return may_act(ui, node_offers(ui, "settings", node == NULL || node->can_set), "changed");
}

void ui_ask_setting(struct ui *ui)
{
    const struct model_setting *setting = view_settings_selected(ui);

    if (setting == NULL) {
        ui_say_none(ui, view_settings_none(ui));
        return;
    }
    if (!may_set(ui)) return;
    ask(ui, PROMPT_VALUE, COMMAND_SET);
    ui->old = *setting;
    snprintf(ui->asked.setting, sizeof ui->asked.setting, "%s", ui->old.name);
}

void ui_ask_undo(struct ui *ui)
{
    const struct model_setting *now = model_setting_named(ui->model, ui->undo.name);

    if (ui->undo.name[0] == '\0' || now == NULL) {
        ui_say(ui, ELEMENT_NOTE, false, "no setting was changed from here");
        return;
    }
    if (!may_set(ui)) return;
    ask(ui, PROMPT_CONFIRM, COMMAND_SET);
    ui->old = *now;
    snprintf(ui->asked.setting, sizeof ui->asked.setting, "%s", ui->undo.name);
    snprintf(ui->asked.value, sizeof ui->asked.value, "%s", ui->undo.value);
}

/* ---- answering */

static unsigned send(struct ui *ui)
{
    ui->prompt = PROMPT_NONE;
    ui->command = ui->asked;
    ui->command_waiting = ui->pending = true;
    ui->pending_since_ms = ui->mono_ms;
    ui->pending_generation = -1;
    return UI_DRAW | UI_COMMAND;
}

static void leave(struct ui *ui)
{
    ui->prompt = PROMPT_NONE;
    ui_say(ui, ELEMENT_NOTE, false, "nothing was changed");
}

unsigned ui_answer_question(struct ui *ui, uint32_t key)
{
    if (key == KEY_CODE_ENTER) return send(ui);
    if (key == 'q' || key == KEY_CODE_F10) return UI_QUIT;
    if (key == KEY_CODE_ESCAPE || key == 'n') leave(ui);
    return UI_DRAW; /* any other key leaves the question standing */
}

void ui_type(struct ui *ui, uint32_t key)
{
    size_t length = strlen(ui->typed);

    if (key == KEY_CODE_BACKSPACE && length > 0) {
        ui->typed[length - 1] = '\0';
    } else if (key >= ' ' && key < 127 && length + 1 < sizeof ui->typed) {
        ui->typed[length] = (char)key;
        ui->typed[length + 1] = '\0';
    }
}

/* What was typed, as JSON of the type that the setting has; false: it is none. */
static bool value_of(const struct ui *ui, char out[MODEL_VALUE])
{
    static const char *const yes[] = {"on", "true", "yes"}, *const no[] = {"off", "false", "no"};
    const char *old = ui->old.value, *typed = ui->typed;
    int64_t whole;
    double real;

    if (old[0] == '"') {
        snprintf(out, MODEL_VALUE, "\"%s\"", typed);
        return strpbrk(typed, "\"\\") == NULL;
    }
    if (old[0] == 't' || old[0] == 'f') {
        for (int i = 0; i < 3; i++) {
            if (strcmp(typed, yes[i]) == 0) return strcpy(out, "true") != NULL;
            if (strcmp(typed, no[i]) == 0) return strcpy(out, "false") != NULL;
        }
        return false;
    }
    if (number_read_whole(typed, INT64_MIN, INT64_MAX, &whole))
        snprintf(out, MODEL_VALUE, "%" PRId64, whole);
    else if (number_read_real(typed, -DBL_MAX, DBL_MAX, &real))
        snprintf(out, MODEL_VALUE, "%.15g", real);
    else
        return false;
    return true;
}

unsigned ui_edit_value(struct ui *ui, uint32_t key)
{
    char text[160];

    if (key == KEY_CODE_ENTER) {
        if (ui->typed[0] == '\0') {
            leave(ui);
        } else if (value_of(ui, ui->asked.value)) {
            return send(ui);
        } else {
            ui->prompt = PROMPT_NONE;
            snprintf(text, sizeof text, "\"%s\" is no value for %s: it takes %s", ui->typed,
                     ui->asked.setting, view_setting_choices(ui->asked.setting));
            ui_say(ui, ELEMENT_WARN, true, text);
        }
    } else if (key == KEY_CODE_ESCAPE) {
        leave(ui);
    } else {
        ui_type(ui, key);
    }
    return UI_DRAW;
}
