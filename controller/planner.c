/* planner.c - the planner's life, modes, and the course of one step: begin, draft and admit depth
 * by depth, end.
 *
 * Owns struct planner. What a step decides comes from planner_regime.c (whether, for whom) and
 * planner_value.c (how many). Source: design, algorithm 5 and 6: a decision at depth k looks at
 * survivals before k and at the predictions made from q_k, never at a drawn token; what is admitted
 * stays admitted.
 *
 * In shadow the caller is answered as in fixed, while the plan goes on beside it with the
 * predictions that fixed makes available; the report is the plan's. Work a step: at most
 * requests x K x K / 2 table look-ups, no allocation.
 */
#include "config.h"

#include "controller/planner.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "controller/planner_internal.h"

/* ---- life ---- */

static bool options_valid(const struct planner_options *options)
{
    return options->max_draft >= 1 && options->max_draft <= TT_MAX_POSITIONS &&
           options->max_requests >= 1 && options->fixed_draft >= 0 && options->min_gain >= 0;
}

struct planner *planner_new(const struct planner_options *options, const struct cost_model *cost)
{
    assert(options_valid(options));
    struct planner *planner = calloc(1, sizeof *planner);
    if (!planner) return NULL;
    size_t requests = (size_t)options->max_requests;
    planner->options = *options;
    planner->cost = cost;
    planner->mode = MODE_OFF;
    planner->row = calloc(requests, sizeof *planner->row);
    planner->live = calloc(requests, sizeof *planner->live);
    planner->order = calloc(requests, sizeof *planner->order);
    planner->contender = calloc(requests, sizeof *planner->contender);
    planner->lift = calloc(requests + PLANNER_GRID, sizeof *planner->lift);
    if (!planner->row || !planner->live || !planner->order || !planner->contender ||
        !planner->lift) {
        planner_free(planner);
        return NULL;
    }
    for (int s = 0; s < PLANNER_MAX_STRATA; s++)
        acceptance_clear(&planner->stratum[s].acceptance, options->max_draft);
    planner_regime_init(planner);
    return planner;
}

void planner_free(struct planner *planner)
{
    if (!planner) return;
    free(planner->row);
    free(planner->live);
    free(planner->order);
    free(planner->contender);
    free(planner->lift);
    free(planner);
}

void planner_set_options(struct planner *planner, const struct planner_options *options)
{
    assert(options_valid(options) && options->max_requests == planner->options.max_requests);
    bool deeper = options->max_draft != planner->options.max_draft;
    planner->options = *options;
    for (int s = 0; deeper && s < PLANNER_MAX_STRATA; s++)
        planner->stratum[s].acceptance.positions = options->max_draft;
    if (planner->regime > options->max_draft) planner->regime = options->max_draft;
    if (planner->mode == MODE_FIXED || planner->mode == MODE_SHADOW)
        planner_set_mode(planner, planner->mode);
}

/* ---- modes ---- */

/* The best uniform K >= 1 of the cost table at the load of the last step that had any, before the
 * first one at half of the most requests. (K = 0 is the mode off.) Of the load, not of caps and
 * catching up at this moment. */
static int best_fixed(struct planner *planner)
{
    int count = planner->count;
    planner->count = planner->load > 0 ? planner->load : (planner->options.max_requests + 1) / 2;
    for (int r = 0; r < planner->count; r++) {
        struct planner_request *request = &planner->row[r].request;
        if (planner->load == 0) *request = (struct planner_request){.starved = -1};
        request->cap = planner->options.max_draft;
        request->catch_up = 1;
    }
    int best = 1;
    if (!isnan(planner_verify_ms(planner, 1))) {
        planner_value_uniform(planner);
        best = planner_best_drafting(planner);
    }
    planner->count = count;
    return best;
}

int planner_set_mode(struct planner *planner, enum mode mode)
{
    bool fixed = mode == MODE_FIXED || mode == MODE_SHADOW,
         decides = mode == MODE_ADAPTIVE || mode == MODE_SHADOW;
    bool decided = planner->mode == MODE_ADAPTIVE || planner->mode == MODE_SHADOW;
    if (fixed) {
        int asked = planner->options.fixed_draft, most = planner->options.max_draft;
        planner->fixed_draft = asked == 0 ? best_fixed(planner) : asked < most ? asked : most;
    }
    if (decides && !decided)
        planner_regime_enter(planner, planner->mode == MODE_OFF && planner->labelled_steps > 0);
    planner->mode = mode;
    return fixed ? planner->fixed_draft : -1;
}

int planner_fixed_draft(const struct planner *planner)
{
    return planner->mode == MODE_FIXED || planner->mode == MODE_SHADOW ? planner->fixed_draft : -1;
}

/* ---- begin ---- */

static const char *name_plan(struct planner *planner)
{
    if (planner->mode == MODE_OFF) return "off";
    if (planner->mode == MODE_FIXED) {
        snprintf(planner->why, sizeof planner->why, "fixed %d", planner->fixed_draft);
        return planner->why;
    }
    if (planner->warming) return "warm-up";
    if (planner->probing) return "probe";
    return planner->exploring ? "explore" : "adaptive";
}

static void begin_rows(struct planner *planner, const struct planner_request *request)
{
    for (int r = 0; r < planner->count; r++) {
        assert(request[r].cap >= 0 && request[r].stratum >= 0 &&
               request[r].stratum < PLANNER_MAX_STRATA);
        planner->row[r] = (struct row){.request = request[r], .survival = 1, .skipped = NAN};
        if (planner->row[r].request.cap > planner->options.max_draft)
            planner->row[r].request.cap = planner->options.max_draft;
        planner_chain_known(&planner->row[r]);
    }
}

void planner_begin(struct planner *planner, const struct planner_request *request, int count,
                   int base_tokens, int finishing, int context_cells, uint64_t step)
{
    assert(count >= 0 && count <= planner->options.max_requests && base_tokens >= count);
    planner->count = count;
    if (count > 0) planner->load = count;
    planner->base_tokens = planner->tokens = base_tokens;
    planner->finishing = finishing;
    planner->band = cost_context_band(context_cells);
    planner->step = step;
    planner->plan = PLAN_NONE;
    planner->uniform_depth = planner->live_count = 0;
    planner->probing = planner->exploring = planner->warming = false;
    planner->draft_ms = planner->reading_now_ms = 0;
    planner->first = (struct candidate){0};
    begin_rows(planner, request);

    bool known = count > 0 && !isnan(planner_verify_ms(planner, count));
    planner->lambda = planner->plain_rate = NAN;
    if (known) planner_value_uniform(planner);
    if (planner->mode == MODE_FIXED) {
        planner->plan = PLAN_UNIFORM;
        planner->uniform_depth = planner->fixed_draft;
    } else if (known && planner->mode != MODE_OFF) {
        planner_choose(planner);
    }
    planner->report = (struct planner_report){.value = count + finishing,
                                              .lambda = planner->lambda,
                                              .why = name_plan(planner),
                                              .regime = planner->regime};
    if (planner->mode == MODE_OFF) planner->report.regime = 0;
    if (planner->mode == MODE_FIXED) planner->report.regime = planner->fixed_draft;
}

/* ---- draft ---- */

/* Requests that can go on at this depth: everything before was admitted and the cap allows more. */
static bool can_go_on(const struct row *row, int depth)
{
    return row->admitted == depth && row->request.cap > depth;
}

/* Mark the rows that the rule drafts at depth 0: the prefix of the order that planner_choose found.
 */
static void mark_first(struct planner *planner)
{
    for (int i = 0; i < planner->first.forward; i++) planner->row[planner->order[i]].live = true;
}

/* Mark the rows that the rule drafts at a later depth: all that can go on, or none. */
static void mark_deeper(struct planner *planner, int depth)
{
    int count = 0, drafters = 0;
    for (int r = 0; r < planner->count; r++) {
        struct row *row = &planner->row[r];
        if (!can_go_on(row, depth)) continue;
        const double *reach = planner_reach(planner, row);
        row->worth = row->survival * reach[depth + 1] / reach[depth];
        drafters += !row->request.free_draft;
        planner->order[count++] = r;
    }
    planner_sort(planner, planner->order, count);
    struct candidate next =
        planner_value_best(planner, planner->order, count, depth, false,
                           planner_draft_ms(planner, drafters), planner->lambda);
    for (int i = 0; next.score > 0 && i < count; i++) planner->row[planner->order[i]].live = true;
}

/* The first draft forward also reads what the draft model lacks of each live row. */
static void price_reading(struct planner *planner)
{
    int count = 0;
    for (int r = 0; r < planner->count; r++)
        if (planner->row[r].live) planner->order[count++] = r;
    double in_step_ms = planner_first_draft_ms(planner, planner->order, count, HUGE_VAL);
    planner->reading_now_ms =
        planner_first_draft_ms(planner, planner->order, count, 1) - in_step_ms;
    planner->draft_ms = in_step_ms + planner->reading_now_ms;
}

/* Fix which rows the plan drafts at this depth; returns how many. */
static int mark_live(struct planner *planner, int depth)
{
    int live = 0, drafters = 0;
    for (int r = 0; r < planner->count; r++) planner->row[r].live = false;
    if (planner->plan == PLAN_RULE && depth == 0)
        mark_first(planner);
    else if (planner->plan == PLAN_RULE)
        mark_deeper(planner, depth);
    for (int r = 0; r < planner->count; r++) {
        struct row *row = &planner->row[r];
        bool uniform = planner->plan == PLAN_UNIFORM && planner->uniform_depth > depth;
        if ((uniform || row->forced > depth) && can_go_on(row, depth)) row->live = true;
        if (!row->live) continue;
        row->drafted = depth + 1;
        live++;
        drafters += !row->request.free_draft;
    }
    if (depth == 0)
        price_reading(planner);
    else
        planner->draft_ms += planner_draft_ms(planner, drafters);
    planner->report.drafted += live;
    return live;
}

int planner_draft(struct planner *planner, int depth, const int **rows)
{
    assert(depth >= 0);
    bool shadow = planner->mode == MODE_SHADOW;
    planner->live_count = 0;
    *rows = planner->live;
    if (depth >= planner->options.max_draft) return 0;
    bool answered =
        !shadow ||
        depth < planner->fixed_draft; /* fixed would not draft so deep: nothing to plan with */
    if (planner->plan != PLAN_NONE && answered) mark_live(planner, depth);
    for (int r = 0; r < planner->count; r++) {
        const struct row *row = &planner->row[r];
        bool fixed =
            shadow && depth < planner->fixed_draft && row->request.cap > depth && !row->refused;
        if (shadow ? fixed : row->live) planner->live[planner->live_count++] = r;
    }
    return planner->live_count;
}

/* ---- admit ---- */

static void admit_row(struct planner *planner, struct row *row)
{
    row->admitted++;
    row->survival *= row->probability;
    planner->tokens++;
    planner->report.admitted++;
    row->expected += row->survival;
    planner->report.value += row->survival;
}

/* A row without a law (NaN, probability 0) has nothing to draw from: never admitted, under no mode.
 */
static bool has_law(const struct row *row)
{
    return row->probability > 0;
}

/* The rule's choice among the live rows whose prediction at this depth is known. */
static void admit_best(struct planner *planner, int depth)
{
    int count = 0;
    for (int r = 0; r < planner->count; r++) {
        struct row *row = &planner->row[r];
        if (!row->live) continue;
        if (has_law(row) && (planner->plan == PLAN_UNIFORM || row->forced > depth)) {
            admit_row(planner, row);
        } else if (has_law(row)) {
            row->worth = row->survival * row->probability;
            planner->order[count++] = r;
        } else {
            row->skipped = 0;
        }
    }
    planner_sort(planner, planner->order, count);
    int admitted =
        planner_value_best(planner, planner->order, count, depth, true, 0, planner->lambda).count;
    for (int i = 0; i < count; i++) {
        struct row *row = &planner->row[planner->order[i]];
        if (i < admitted)
            admit_row(planner, row);
        else
            row->skipped = row->probability;
    }
}

int planner_admit(struct planner *planner, int depth, const double *probability, uint8_t *admit)
{
    bool shadow = planner->mode == MODE_SHADOW;
    int admitted = 0;
    for (int i = 0; i < planner->live_count; i++) {
        struct row *row = &planner->row[planner->live[i]];
        row->probability = isnan(probability[i]) ? 0 : fmin(fmax(probability[i], 0), 1);
        acceptance_predicted(&planner->stratum[row->request.stratum].acceptance, depth,
                             row->probability);
    }
    admit_best(planner, depth);
    for (int i = 0; i < planner->live_count; i++) {
        struct row *row = &planner->row[planner->live[i]];
        row->refused = !has_law(row);
        admit[i] = shadow ? !row->refused : row->admitted == depth + 1;
        admitted += admit[i];
    }
    return admitted;
}

/* ---- end and report ---- */

void planner_end(struct planner *planner, const struct planner_outcome *outcome)
{
    planner_get_report(planner, &planner->report);
    planner_learn(planner, outcome);
}

void planner_get_report(const struct planner *planner, struct planner_report *out)
{
    *out = planner->report;
    out->cost_ms = planner_verify_ms(planner, planner->tokens) + planner->draft_ms +
                   planner_own_ms(planner, planner->report.drafted > 0);
}

void planner_uniform(const struct planner *planner, double *tokens_per_ms, int capacity)
{
    bool known = planner->count > 0 && !isnan(planner->lambda);
    for (int draft = 0; draft < capacity; draft++)
        tokens_per_ms[draft] = known && draft <= planner->options.max_draft
                                   ? planner->uniform_value[draft] / planner->uniform_ms[draft]
                                   : NAN;
}

bool planner_take_change(struct planner *planner, int *from, int *to, double *predicted_gain)
{
    if (!planner->changed) return false;
    planner->changed = false;
    *from = planner->change.from;
    *to = planner->change.to;
    *predicted_gain = planner->change.gain;
    return *from != *to;
}

const struct planner_change *planner_last_change(const struct planner *planner)
{
    return &planner->change;
}
