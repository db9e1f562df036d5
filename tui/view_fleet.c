/* view_fleet.c - view 7: one row a node, however many there are; sorted, filtered, and Enter goes
 * to one.
 *
 * What a node does not tell is unknown and sorts behind everything known.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tui/text.h"
#include "tui/ui_state.h"

enum {
    NODE_ID,
    NODE_MODE,
    NODE_HEALTH,
    NODE_TPS,
    NODE_LENGTH,
    NODE_RATIO,
    NODE_SLOPE,
    NODE_QUEUE,
    NODE_DRIFT,
    NODE_AGE,
    NODE_TIER,
    NODE_KIND,
    NODE_MODEL,
    NODE_REASON,
    NODE_COLUMNS
};
static const struct ui_column node_column[NODE_COLUMNS] = {
    {"node", -16, 0},    {"mode", -8, 0},      {"health", -8, 0}, {"tok/s", 7, 0},
    {"length", 6, 0},    {"acc/ver", 7, 0},    {"slope", 6, 0},   {"queue", 5, 0},
    {"drift", 5, 86},    {"age", 6, 94},       {"tier", 4, 100},  {"engine", -12, 114},
    {"model", -24, 140}, {"reason", -48, 190},
};
static const int node_sorts[] = {NODE_ID,    NODE_MODE,  NODE_HEALTH, NODE_TPS,   NODE_LENGTH,
                                 NODE_RATIO, NODE_SLOPE, NODE_QUEUE,  NODE_DRIFT, NODE_AGE};
#define NODE_SORTS ((int)(sizeof node_sorts / sizeof node_sorts[0]))

/* Figures: largest first; the slope that is nearest to useless comes last. */
static double node_key(const struct model_node *node, int by)
{
    double key = by == NODE_TPS      ? node->throughput_tps
                 : by == NODE_LENGTH ? node->mean_length
                 : by == NODE_RATIO  ? node->accepted_verified_ratio
                 : by == NODE_SLOPE  ? node->slope
                 : by == NODE_QUEUE  ? (node->queued >= 0 ? (double)node->queued : NAN)
                 : by == NODE_DRIFT  ? fabs(node->drift_z)
                 : by == NODE_AGE    ? node->age_s
                                     : NAN;

    return isnan(key) ? -INFINITY : key;
}

/* Equal ones by name, so that rows do not jump. */
static int compare_nodes(const void *a, const void *b, void *state)
{
    const struct ui_sorting *sorting = state;
    const struct model_node *left = &sorting->model->node[*(const int *)a],
                            *right = &sorting->model->node[*(const int *)b];
    double x = node_key(left, sorting->by), y = node_key(right, sorting->by);
    int way = sorting->by == NODE_MODE ? strcmp(left->mode, right->mode)
              : sorting->by == NODE_HEALTH
                  ? (strcmp(left->state, "ok") == 0) - (strcmp(right->state, "ok") == 0)
                  : (x < y) - (x > y);

    return way != 0 ? way : strcmp(left->id, right->id);
}

/* Of its name: nodes come and go, and their places with them. */
static int64_t identity_of(const struct model_node *node)
{
    return ui_identity(UI_IDENTITY, node->id);
}

static int64_t node_identity(const struct ui *ui, int row)
{
    return identity_of(&ui->model->node[ui->order[row]]);
}

const struct model_node *view_fleet_selected(const struct ui *ui)
{
    const struct model *model = ui->model;

    for (int i = 0; i < model->nodes_count; i++)
        if (identity_of(&model->node[i]) == ui->list[VIEW_FLEET].identity) return &model->node[i];
    return NULL;
}

const char *view_fleet_none(const struct ui *ui)
{
    return !ui->model->nodes_known      ? ui_why_unknown(ui, LIST_NODES)
           : ui->model->nodes_count > 0 ? "no node has this text; Esc shows all"
                                        : "the daemon watches no node";
}

static enum element node_element(const struct model_node *node, int column)
{
    if (column == NODE_ID) return ELEMENT_STRONG;
    if (column != NODE_HEALTH) return ELEMENT_VALUE;
    return strcmp(node->state, "ok") == 0         ? ELEMENT_GOOD
           : strcmp(node->state, "degraded") == 0 ? ELEMENT_WARN
                                                  : ELEMENT_BAD;
}

/* list_age_s: of the list that the node's figures came with. */
static void draw_node(struct screen *screen, int row, int cols, const struct model_node *node,
                      bool watched, double list_age_s)
{
    char tps[TEXT_NUMBER], length[TEXT_NUMBER], ratio[TEXT_NUMBER], slope[TEXT_NUMBER],
        queue[TEXT_NUMBER], drift[TEXT_NUMBER], age[TEXT_NUMBER], tier[TEXT_NUMBER];
    const char *text[NODE_COLUMNS] = {
        [NODE_ID] = node->id,
        [NODE_MODE] = node->mode,
        [NODE_HEALTH] = node->state,
        [NODE_TPS] = text_decimal(tps, node->throughput_tps, 1),
        [NODE_LENGTH] = text_decimal(length, node->mean_length, 2),
        [NODE_RATIO] = text_decimal(ratio, node->accepted_verified_ratio, 3),
        [NODE_SLOPE] = text_decimal(slope, node->slope, 3),
        [NODE_QUEUE] = text_count(queue, node->queued),
        [NODE_DRIFT] = text_signed(drift, node->drift_z, 1),
        [NODE_AGE] = text_young_age(age, node->age_s + list_age_s),
        [NODE_TIER] = text_count(tier, node->tier),
        [NODE_KIND] = node->engine,
        [NODE_MODEL] = node->model,
        [NODE_REASON] = node->reason[0] != '\0' ? node->reason : node->unable,
    };
    int col = 1;

    if (watched) screen_put_char(screen, row, 0, ELEMENT_POINT, 0x25b6);
    for (int i = 0; i < NODE_COLUMNS; i++)
        col = ui_draw_field(screen, row, col, &node_column[i], cols, node_element(node, i),
                            text[i][0] != '\0' || i == NODE_REASON ? text[i] : TEXT_UNKNOWN);
}

static bool node_matches(const struct model_node *n, const char *filter)
{
    return ui_filter_matches(filter, n->id) || ui_filter_matches(filter, n->model) ||
           ui_filter_matches(filter, n->mode) || ui_filter_matches(filter, n->state) ||
           ui_filter_matches(filter, n->engine) || ui_filter_matches(filter, n->kind) ||
           ui_filter_matches(filter, n->reason);
}

static void draw_node_detail(const struct ui *ui, struct screen *screen, const struct rect *detail,
                             const struct model_node *node)
{
    int row = detail->row + 1, end = detail->row + detail->rows;
    char title[2 * SNAPSHOT_NAME + 32];

    snprintf(title, sizeof title, "%s  %s %s", node->id, node->engine, node->model);
    ui_draw_title(ui, screen, detail, title);
    row = ui_draw_wrapped(screen, row, 1, detail->cols - 2, end, ELEMENT_VALUE,
                          node->reason[0] != '\0' ? node->reason : "no trouble reported");
    ui_draw_wrapped(screen, row, 1, detail->cols - 2, end, ELEMENT_NOTE,
                    node->unable[0] != '\0' ? node->unable
                    : !node->can_set_mode   ? ""
                    : node == model_watched(ui->model)
                        ? "a switches adaptive verification"
                        : "Enter watches this node, then a switches adaptive verification");
}

void view_draw_fleet(struct ui *ui, struct screen *screen)
{
    const struct model *model = ui->model;
    struct ui_list *list = &ui->list[VIEW_FLEET];
    struct ui_sorting sorting;
    struct layout layout;
    const struct rect *body = &layout.part[LAYOUT_BODY], *detail = &layout.part[LAYOUT_DETAIL];
    const double list_age_s = (double)(ui->mono_ms - model->nodes_mono_ms) / 1000;
    const bool stale = model_nodes_are_stale(model, ui->mono_ms, ui->options.interval_ms);
    int count = 0, rows;
    char title[120], age[TEXT_NUMBER];

    ui_frame(ui, screen, LAYOUT_LIST_DETAIL, 4, &layout);
    list->sort %= NODE_SORTS;
    sorting = (struct ui_sorting){model, node_sorts[list->sort]};
    for (int i = 0; i < model->nodes_count; i++)
        if (node_matches(&model->node[i], list->filter)) ui->order[count++] = i;
    qsort_r(ui->order, (size_t)count, sizeof ui->order[0], compare_nodes, &sorting);
    snprintf(title, sizeof title, "Fleet  %d node%s%s%s%s", model->nodes_count,
             model->nodes_count == 1 ? "" : "s",
             stale            ? ", told "
             : ui_is_past(ui) ? ", as they are now"
                              : "",
             stale ? text_age(age, list_age_s) : "", stale ? " ago" : "");
    ui_draw_title(ui, screen, body, title);
    ui_draw_filter_note(screen, body, list, count, model->nodes_count);
    ui_draw_heads(screen, body->row + 1, node_column, NODE_COLUMNS, body->cols, sorting.by);
    rows = body->rows - 2;
    ui_list_settle(ui, list, count, rows, node_identity);
    if (count == 0) screen_put(screen, body->row + 2, 2, -1, ELEMENT_FAINT, view_fleet_none(ui));
    for (int i = list->top; i < count && i < list->top + rows; i++) {
        const struct model_node *node = &model->node[ui->order[i]];
        int row = body->row + 2 + i - list->top;

        draw_node(screen, row, body->cols, node, strcmp(node->id, model->node_id) == 0, list_age_s);
        if (i == list->selected) screen_paint(screen, row, 0, body->cols, ELEMENT_SELECTED);
    }
    if (count > 0 && detail->rows >= 3)
        draw_node_detail(ui, screen, detail, &model->node[ui->order[list->selected]]);
    if (stale) screen_dim(screen, body);
}
