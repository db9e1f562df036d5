/* planner_value.c - what drafts are worth and what they cost: uniform candidates, and the best way
 * on at one depth.
 *
 * Source: design, algorithm 5. With S the survival of what a request has admitted so far, a_k the
 * mean acceptances and lambda the tokens per ms that time is worth elsewhere, going on with the
 * best m requests for j depths is worth sum over the m of S (a_k + a_k a_{k+1} + ... j terms) -
 * lambda (D(live) + (j - 1) D(m) + V(n + m j) - V(n)). Looking only one token ahead fails on a
 * staircase, where the second token can be free.
 *
 * Before the predictions of depth k are known, the best part of the requests is worth more than the
 * mean says, since admission will choose it: the mean is multiplied by the lift of that part
 * (acceptance.h). With few requests fractions of one are tried too: a fraction u stands for
 * admitting in the best u of all cases.
 */
#include "config.h"

#include <math.h>

#include "controller/planner_internal.h"

#define LEAST_REACH 1e-30 /* chains are divided by it */
#define FRACTIONS_TOTAL 8 /* with fewer requests than this, fractions of one are tried */

/* What an accepted draft beyond the first is worth, in tokens. Text comes in easy stretches: what a
 * deeper draft gains now, the first positions of the next steps lack (the tokens in between that
 * come free with every step fall on the easy ones). Replayed traces: 0.8 to 0.95 all beat 1.0, most
 * where time is nearly balanced, by up to 1.5 %. */
#define DEEPER_WORTH 0.88

/* An unknown cost is 0 here: planner_choose has made sure that the target's is known. */
static double known_or_zero(double ms)
{
    return isnan(ms) ? 0 : ms;
}

double planner_verify_ms(const struct planner *planner, int tokens)
{
    return cost_verify(planner->cost, tokens, planner->band);
}

double planner_draft_ms(const struct planner *planner, int requests)
{
    return requests > 0 ? known_or_zero(cost_draft(planner->cost, requests)) : 0;
}

double planner_own_ms(const struct planner *planner, bool drafting)
{
    if (planner->own[drafting].weight > 0) return planner->own[drafting].ms * planner->count;
    if (planner->own[!drafting].weight > 0) return planner->own[!drafting].ms * planner->count;
    return known_or_zero(cost_own(planner->cost, planner->count));
}

double planner_first_draft_ms(const struct planner *planner, const int *order, int count,
                              double steps)
{
    int tokens = 0, now = 0;
    for (int i = 0; i < count; i++) {
        const struct planner_request *request = &planner->row[order ? order[i] : i].request;
        if (request->free_draft || request->cap < 1) continue;
        int read = request->catch_up > 1 ? request->catch_up : 1;
        tokens += read;
        now += read < PLANNER_IN_STEP_TOKENS ? read : PLANNER_IN_STEP_TOKENS;
    }
    double in_step = planner_draft_ms(planner, now);
    if (tokens == now) return in_step;
    return in_step + fmax(0, planner_draft_ms(planner, tokens) - in_step) / steps;
}

static void chain_up(double *reach, double *chain, int k, double probability)
{
    reach[k + 1] = fmax(reach[k] * probability, LEAST_REACH);
    chain[k + 1] = chain[k] + reach[k + 1];
}

static void make_chains(struct planner *planner, struct stratum *stratum)
{
    stratum->present = true;
    stratum->reach[0] = 1;
    stratum->chain[0] = 0;
    for (int k = 0; k < planner->options.max_draft; k++)
        chain_up(stratum->reach, stratum->chain, k, acceptance_mean(&stratum->acceptance, k));
}

void planner_chain_known(struct row *row)
{
    const double *known = row->request.known;
    row->known = known && row->request.free_draft;
    row->request.known = NULL; /* the caller's, until planner_begin returns */
    row->reach[0] = 1;
    row->chain[0] = 0;
    for (int k = 0; row->known && k < row->request.cap; k++)
        chain_up(row->reach, row->chain, k, isnan(known[k]) ? 0 : fmin(fmax(known[k], 0), 1));
}

const double *planner_reach(const struct planner *planner, const struct row *row)
{
    return row->known ? row->reach : planner->stratum[row->request.stratum].reach;
}

const double *planner_chain(const struct planner *planner, const struct row *row)
{
    return row->known ? row->chain : planner->stratum[row->request.stratum].chain;
}

/* Value and cost of one uniform K over the decode rows, apart from earlier depths' draft forwards
 * (added by the caller). */
static void value_one_uniform(struct planner *planner, int draft, double forwards_ms)
{
    double value = planner->count;
    int tokens = planner->count;
    for (int r = 0; r < planner->count; r++) {
        const struct row *row = &planner->row[r];
        int length = draft < row->request.cap ? draft : row->request.cap;
        value += planner_chain(planner, row)[length];
        tokens += length;
    }
    planner->uniform_value[draft] = value;
    planner->uniform_ms[draft] =
        planner_verify_ms(planner, tokens) + forwards_ms + planner_own_ms(planner, draft > 0);
}

double planner_hoped_value(const struct planner *planner, int draft)
{
    double value = planner->count;
    for (int r = 0; r < planner->count; r++) {
        const struct planner_request *request = &planner->row[r].request;
        const struct acceptance *acceptance = &planner->stratum[request->stratum].acceptance;
        double reach = 1;
        for (int k = 0; k < draft && k < request->cap; k++) {
            reach *= acceptance_hoped(acceptance, k);
            value += reach;
        }
    }
    return value;
}

/* Requests of the draft model that reach draft forward `depth` when everything is drafted. */
static int drafters_at(const struct planner *planner, int depth)
{
    int drafters = 0;
    for (int r = 0; r < planner->count; r++)
        drafters += !planner->row[r].request.free_draft && planner->row[r].request.cap > depth;
    return drafters;
}

/* Reading up is a steady cost, since requests come and go, and on top of it the price of entry. */
static double first_uniform_ms(const struct planner *planner)
{
    double steps = planner->drafting ? HUGE_VAL : planner->stay_steps;
    return planner_first_draft_ms(planner, NULL, planner->count, steps) +
           planner->reading_each_ms * planner->count;
}

void planner_value_uniform(struct planner *planner)
{
    double forwards_ms = 0;
    for (int s = 0; s < PLANNER_MAX_STRATA; s++) planner->stratum[s].present = false;
    for (int r = 0; r < planner->count; r++) {
        struct stratum *stratum = &planner->stratum[planner->row[r].request.stratum];
        if (!stratum->present) make_chains(planner, stratum);
    }
    planner->best_uniform = 0;
    for (int draft = 0; draft <= planner->options.max_draft; draft++) {
        if (draft == 1) forwards_ms = first_uniform_ms(planner);
        if (draft > 1) forwards_ms += planner_draft_ms(planner, drafters_at(planner, draft - 1));
        value_one_uniform(planner, draft, forwards_ms);
        if (planner->uniform_value[draft] * planner->uniform_ms[planner->best_uniform] >
            planner->uniform_value[planner->best_uniform] * planner->uniform_ms[draft])
            planner->best_uniform = draft;
    }
    planner->plain_rate = planner->uniform_value[0] / planner->uniform_ms[0];
    planner->lambda =
        planner->uniform_value[planner->best_uniform] / planner->uniform_ms[planner->best_uniform];
}

double planner_uniform_rate(const struct planner *planner, int draft)
{
    return planner->uniform_value[draft] / planner->uniform_ms[draft];
}

int planner_best_drafting(const struct planner *planner)
{
    int best = 1;
    for (int draft = 2; draft <= planner->options.max_draft; draft++)
        if (planner_uniform_rate(planner, draft) > planner_uniform_rate(planner, best))
            best = draft;
    return best;
}

static bool before(const struct planner *planner, int a, int b)
{
    double worth_a = planner->row[a].worth, worth_b = planner->row[b].worth;
    return worth_a > worth_b || (worth_a >= worth_b && a < b);
}

void planner_sort(const struct planner *planner, int *order, int count)
{
    static const int gaps[] = {
        132, 57, 23, 10, 4, 1}; /* Ciura, FUN 2001; the order is total, so any sort gives it */
    int sorted = 1;
    while (sorted < count && before(planner, order[sorted - 1], order[sorted])) sorted++;
    if (sorted >= count) return; /* as is usual at depth 0 */
    for (size_t g = 0; g < sizeof gaps / sizeof *gaps; g++) {
        for (int i = gaps[g]; i < count; i++) {
            int moved = order[i], at = i;
            for (; at >= gaps[g] && before(planner, moved, order[at - gaps[g]]); at -= gaps[g])
                order[at] = order[at - gaps[g]];
            order[at] = moved;
        }
    }
}

/* What the loops below need of the rows in order, gathered once. */
static void gather(struct planner *planner, const int *order, int count, int depth, bool known)
{
    for (int i = 0; i < count; i++) {
        const struct row *row = &planner->row[order[i]];
        int from = known ? depth + 1 : depth;
        planner->contender[i] = (struct contender){
            .chain = &planner_chain(planner, row)[from],
            .start = known ? row->survival * row->probability : 0,
            .scale =
                row->survival * (known ? row->probability : 1) / planner_reach(planner, row)[from],
            .left = row->request.cap - depth,
            .drafter = !row->request.free_draft,
        };
    }
}

/* Acceptances to expect of one request that goes on for `length` depths, the present one included.
 */
static double value_ahead(const struct contender *contender, int length, bool known)
{
    int further = known ? length - 1 : length;
    return contender->start + contender->scale * (contender->chain[further] - contender->chain[0]);
}

static int length_ahead(const struct contender *contender, int ahead)
{
    return contender->left < ahead ? contender->left : ahead;
}

/* A choice among few requests, or before their predictions are known. */
struct question {
    int count, depth, parts; /* requests; fractions of one that are tried */
    bool known;
    double forward_ms, lambda;
};

static void consider(struct candidate *best, const struct question *question, double value,
                     double ms, int count)
{
    double worth = question->depth > 0 ? DEEPER_WORTH : 1;
    double score = worth * value - question->lambda * ms;
    if (score > best->score) *best = (struct candidate){score, value, ms, count, question->count};
}

/* Best m for one number of depths ahead. */
static void best_count(const struct planner *planner, const struct question *question, int ahead,
                       struct candidate *best)
{
    int tokens = planner->tokens, drafters = 0;
    double value = 0, whole = 0, ms = 0, here_ms = planner_verify_ms(planner, tokens);
    for (int i = 0; i < question->count && !question->known; i++) {
        const struct contender *next = &planner->contender[i];
        whole += value_ahead(next, length_ahead(next, ahead), false);
    }
    for (int i = 0; i < question->count; i++) {
        const struct contender *next = &planner->contender[i];
        int length = length_ahead(next, ahead);
        double more = value_ahead(next, length, question->known);
        tokens += length;
        drafters += next->drafter;
        double next_ms = planner_verify_ms(planner, tokens) - here_ms;
        if (ahead > 1) next_ms += (ahead - 1) * planner_draft_ms(planner, drafters);
        for (int part = 1; part <= question->parts && !question->known; part++) {
            double fraction = (double)part / question->parts;
            double lifted =
                (value + fraction * more) * planner->lift[i * question->parts + part - 1];
            consider(best, question, lifted < whole ? lifted : whole,
                     question->forward_ms + ms + fraction * (next_ms - ms), i + 1);
        }
        value += more;
        ms = next_ms;
        if (question->known) consider(best, question, value, ms, i + 1);
    }
}

/* Lift of the best (i + 1) / points of the requests, for every i. Mixed strata are told apart by
 * their order already, and so are rows whose predictions are known. */
static void fill_lift(struct planner *planner, const int *order, const struct question *question)
{
    const struct stratum *stratum = &planner->stratum[planner->row[order[0]].request.stratum];
    int points = question->count * question->parts;
    bool told = false;
    for (int i = 0; i < question->count; i++) told = told || planner->row[order[i]].known;
    for (int i = 0; i < points; i++)
        planner->lift[i] =
            told ? 1
                 : acceptance_lift(&stratum->acceptance, question->depth, (double)(i + 1) / points);
}

struct candidate planner_value_best(struct planner *planner, const int *order, int count, int depth,
                                    bool known, double forward_ms, double lambda)
{
    struct question question = {count, depth, 1, known, forward_ms, lambda};
    struct candidate best = {0};
    if (count == 0) return best;
    gather(planner, order, count, depth, known);
    if (!known) {
        if (count < FRACTIONS_TOTAL) question.parts = (FRACTIONS_TOTAL + count - 1) / count;
        fill_lift(planner, order, &question);
    }
    for (int ahead = 1; ahead <= planner->options.max_draft - depth; ahead++)
        best_count(planner, &question, ahead, &best);
    return best;
}

/* ---- the choice of a drafter ---- */

/* Of one request's step, when all of `count` requests go `length` deep: its part of the
 * verification that drafts add. */
static double share_of_verify(const struct planner *planner, int count, int length)
{
    return (planner_verify_ms(planner, count * (1 + length)) - planner_verify_ms(planner, count)) /
           count;
}

/* Tokens gained less what their time is worth, at the best length. */
static double net_of_model(const struct planner *planner, const struct planner_request *request,
                           int count, double lambda)
{
    const struct acceptance *acceptance = &planner->stratum[request->stratum].acceptance;
    int read = request->catch_up > 1 ? request->catch_up : 1;
    double best = 0, reach = 1, value = 0, ms = planner_draft_ms(planner, count * read) / count;
    if (!planner->drafting) return 0;
    for (int k = 0; k < request->cap && k < planner->options.max_draft; k++) {
        reach *= acceptance_mean(acceptance, k);
        value += reach;
        if (k > 0) ms += planner_draft_ms(planner, count) / count;
        best = fmax(best, value - lambda * (ms + share_of_verify(planner, count, k + 1)));
    }
    return best;
}

/* The draft model reads later what was accepted without it. */
static double net_of_free(const struct planner *planner, const struct planner_request *request,
                          int count, double lambda)
{
    double best = 0, reach = 1, value = 0;
    double read_ms = planner->drafting ? planner_draft_ms(planner, count) / count : 0;
    for (int k = 0; k < request->cap && k < planner->options.max_draft; k++) {
        reach *= request->known[k];
        value += reach;
        best =
            fmax(best, value - lambda * (value * read_ms + share_of_verify(planner, count, k + 1)));
    }
    return best;
}

bool planner_prefers_free(const struct planner *planner, const struct planner_request *model,
                          const struct planner_request *free_draft, int count)
{
    double lambda = planner->lambda; /* of the step before */
    if (planner->mode != MODE_ADAPTIVE || planner->warming || !(lambda > 0)) return false;
    if (free_draft->cap < 1 || !free_draft->known || count < 1) return false;
    return net_of_free(planner, free_draft, count, lambda) >
           net_of_model(planner, model, count, lambda);
}
