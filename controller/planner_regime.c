/* planner_regime.c - whether to draft at all: warm-up, regime with hysteresis, probes, exploration,
 * and what is learned.
 *
 * Source: design, algorithm 5 (B = 0 runs no drafter; probes from off; hysteresis and a least gain;
 * the promise) and 4.2 (exploration of starved positions). Every random choice here is drawn before
 * the first draft of the step.
 *
 * The regime answers one question, is the draft model in use, because that is what costs something
 * to change: a draft model that stood still has to read up. It is entered after a few steps in a
 * row that promise more than the least gain and left after more steps in a row that promise a loss;
 * a single step may go without drafts at any time.
 */
#include "config.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "controller/planner_internal.h"

/* Design, algorithm 4.2: the first 60 labelled steps verify what they draft (here as deep as may
 * pay: every draft of six costs a fifth of the first minute where few are accepted). Without labels
 * it ends too. */
#define WARM_UP_STEPS 60
#define WARM_UP_MOST_STEPS 120
#define WARM_UP_LEAST_STEPS 20 /* one refit */
#define WARM_UP_ROWS 240       /* requests' steps that are as good as 60 steps of a small batch */
#define WARM_UP_LEAST_ROWS 24
#define WARM_UP_COST 1.8 /* a warm-up step must not take longer than this many plain ones */
#define ENTER_STEPS 3
#define LEAVE_STEPS 8
#define PROBE_RATE 0.005 /* of steps, and of request-steps for exploration */
#define PROBE_DEPTHS 3
#define PROBE_MOST_STEPS 8.0
#define PROBE_WEIGHT 8.0   /* a probe stands for several steps: returning must not take for ever */
#define PROBE_BUDGET 0.003 /* of all time */
#define CREDIT_LIMIT_STEPS 4000.0 /* credit that may pile up, in steps' worth of PROBE_BUDGET */
/* While drafts are in use, a step without any now and then, or what a plain step takes is an old
 * figure that nothing corrects. The closer the call, the more often: such steps take a fifth of a
 * per cent of the time at most. */
#define PLAIN_BUDGET 0.002
#define PLAIN_MOST_RATE 0.05
#define OWN_MEMORY_STEPS 100.0
#define OWN_TRUSTED 10.0
#define OWN_OUTLIER 4.0
#define GROUPS_MOST 6 /* of strata, tried one after another for the first draft forward */
#define READING_MEMORY_STEPS 100.0
#define SPELL_BEGINS 2.0
#define RULE_MEMORY 0.98 /* a step */
#define CALIBRATION_MEMORY 0.995
#define CALIBRATION_PRIOR 20.0 /* acceptances */
#define RULE_LEAST_BASE 10.0   /* remembered tokens before the rule's own record counts */
#define RULE_GAIN_LIMIT 1.5
/* What drafts make by the clock is compared over some 200 steps: a request's tokens a step scatter
 * by half, so less would be noise. A larger loss is believed sooner. */
#define RECORD_MEMORY 0.995
#define RECORD_STEPS 150
#define RECORD_LEAST_STEPS 24
#define RECORD_LOSS 0.05          /* after RECORD_STEPS; in inverse proportion before */
#define RECORD_TRUSTED_STEPS 1000 /* then an earlier failure is forgotten */
#define RECORD_OUTLIER 4.0
#define PAUSE_STEPS 64
#define PAUSE_MOST_STEPS 4096
#define STAY_PRIOR_STEPS 64.0
#define STAY_LEAST_STEPS 4.0
#define STAY_MOST_STEPS 256.0

/* Positions of the streams of exploration choices inside one step. */
enum { CHOICE_PROBE = 0, CHOICE_DEPTH = 1, CHOICE_PLAIN = 2, CHOICE_ROW = 3 };

static double choice_uniform(const struct planner *planner, uint32_t which)
{
    return tt_uniform(planner->options.key, planner->step, which, TT_EXPLORE);
}

/* ---- warm-up ---- */

/* How deep the warm-up goes: the best uniform K for one who hopes, as far as what was seen allows,
 * and within WARM_UP_COST plain steps; one draft at least while too little was seen to know how
 * much choosing gains. 0 = not at all: it is over, or even hope does not pay. */
static int warm_up_depth(const struct planner *planner)
{
    if (planner->labelled_steps >= WARM_UP_STEPS || planner->warm_steps >= WARM_UP_MOST_STEPS)
        return 0;
    if (planner->labelled_rows >= WARM_UP_ROWS && planner->labelled_steps >= WARM_UP_LEAST_STEPS)
        return 0;
    int best = 0;
    double rate = planner->labelled_rows < WARM_UP_LEAST_ROWS ? 0 : planner->plain_rate;
    for (int depth = 1; depth <= planner->options.max_draft; depth++) {
        if (planner->uniform_ms[depth] > WARM_UP_COST * planner->uniform_ms[0]) continue;
        double hoped = planner_hoped_value(planner, depth) / planner->uniform_ms[depth];
        if (hoped < rate) continue;
        best = depth;
        rate = hoped;
    }
    return best;
}

/* ---- regime ---- */

/* No prompt is read beside the requests that decode. */
static bool only_decodes(const struct planner *planner)
{
    return planner->base_tokens == planner->count;
}

/* How much the rule made of its steps over what the best uniform K would have made, as far as
 * planned acceptances came true; NaN without a record. */
static double rule_gain(const struct planner *planner)
{
    if (planner->rule_base < RULE_LEAST_BASE) return NAN;
    double truth =
        (planner->accepted_sum + CALIBRATION_PRIOR) / (planner->predicted_sum + CALIBRATION_PRIOR);
    double tokens = planner->rule_base + fmin(truth, 1) * planner->rule_survival;
    return fmin(tokens / planner->rule_uniform, RULE_GAIN_LIMIT);
}

static void set_regime(struct planner *planner, int regime, double gain)
{
    if (regime == planner->regime) return;
    double expected = planner->predicted_sum;
    planner->change = (struct planner_change){
        .from = planner->changed ? planner->change.from : planner->regime,
        .to = regime,
        .gain = gain,
        .plain_tps = 1000 * planner->plain_rate,
        .draft_tps = 1000 * planner_uniform_rate(planner, planner_best_drafting(planner)),
        .measured_tps = NAN,
        .accepted_ratio = expected > 0 ? planner->accepted_sum / expected : NAN,
        .steps = (int)planner->spell_steps,
    };
    planner->changed = true;
    planner->regime = regime;
    planner->regime_contrary_steps = 0;
}

static void enter(struct planner *planner, double gain)
{
    planner->drafting = true;
    planner->contrary_steps = 0;
    planner->spell_steps = planner->probe_steps = 0;
    planner->rule_base = planner->rule_survival = planner->rule_uniform = 0;
    memset(&planner->record, 0, sizeof planner->record);
    set_regime(planner, planner_best_drafting(planner), gain);
}

static void leave(struct planner *planner, double gain)
{
    planner->drafting = false;
    planner->contrary_steps = 0;
    planner->stay_steps += 0.2 * (planner->spell_steps - planner->stay_steps);
    planner->stay_steps = fmin(fmax(planner->stay_steps, STAY_LEAST_STEPS), STAY_MOST_STEPS);
    set_regime(planner, 0, gain);
}

/* What drafting made over what none would have made in the same time, relative, by the clock: true
 * whatever the cost table and the estimator believe. NaN while too little is known. */
static double measured_gain(const struct planner *planner)
{
    if (planner->record.steps < RECORD_LEAST_STEPS) return NAN;
    return planner->record.tokens / planner->record.ms * planner->record.plain_ms /
               planner->record.plain_tokens -
           1;
}

/* Drafting loses by the clock: no more of it for a while, which doubles when it happens again. */
static bool fall_back(struct planner *planner)
{
    double gain = measured_gain(planner);
    double doubt = fmax((double)RECORD_STEPS / planner->record.steps, 1);
    if (!(gain < -RECORD_LOSS * doubt)) return false;
    double rate = planner->record.tokens / planner->record.ms;
    planner->pause_steps = planner->next_pause_steps;
    planner->next_pause_steps = (int)fmin(2 * planner->next_pause_steps, PAUSE_MOST_STEPS);
    leave(planner, gain);
    planner->change.measured_tps = 1000 * rate;
    planner->change.pause_steps = planner->pause_steps;
    return true;
}

/* Count the steps that speak against the regime, and change it after enough of them. gain: of
 * drafting over not. */
static void update_regime(struct planner *planner, double gain)
{
    if (planner->drafting && fall_back(planner)) return;
    if (!planner->drafting && planner->pause_steps > 0) {
        planner->pause_steps--;
        return;
    }
    bool contrary = planner->drafting ? gain < 0 : gain > planner->options.min_gain;
    planner->contrary_steps = contrary ? planner->contrary_steps + 1 : 0;
    if (planner->drafting && planner->contrary_steps >= LEAVE_STEPS)
        leave(planner, -gain);
    else if (!planner->drafting && planner->contrary_steps >= ENTER_STEPS)
        enter(planner, gain);
    if (!planner->drafting) return;

    planner->spell_steps++;
    if (planner->record.steps >= RECORD_TRUSTED_STEPS) planner->next_pause_steps = PAUSE_STEPS;
    if (planner->regime < 1 || planner->regime > planner->options.max_draft)
        set_regime(planner, planner_best_drafting(planner), gain);
    int best = planner_best_drafting(planner);
    double over =
        planner_uniform_rate(planner, best) / planner_uniform_rate(planner, planner->regime) - 1;
    planner->regime_contrary_steps =
        over > planner->options.min_gain ? planner->regime_contrary_steps + 1 : 0;
    if (planner->regime_contrary_steps >= LEAVE_STEPS) set_regime(planner, best, over);
}

void planner_regime_init(struct planner *planner)
{
    planner->stay_steps = STAY_PRIOR_STEPS;
    planner->next_pause_steps = PAUSE_STEPS;
}

void planner_regime_enter(struct planner *planner, bool resuming)
{
    planner->drafting = !resuming;
    planner->probe_steps = 0;
    planner->contrary_steps = planner->regime_contrary_steps = 0;
    planner->rule_base = planner->rule_survival = planner->rule_uniform = 0;
    memset(&planner->record, 0, sizeof planner->record);
    planner->pause_steps = 0;
    planner->next_pause_steps = PAUSE_STEPS;
    planner->regime = resuming ? 0 : planner->best_uniform;
}

/* ---- depth 0 ---- */

/* Rows that may draft, in the order of what their strata promise; those the draft model has lost
 * come last among equals. */
static int order_first(struct planner *planner, bool model)
{
    int count = 0;
    for (int r = 0; r < planner->count; r++) {
        struct row *row = &planner->row[r];
        if (row->request.cap < 1 || !(model || row->request.free_draft)) continue;
        row->worth =
            planner_chain(planner, row)[row->known ? row->request.cap : planner->options.max_draft];
        if (row->request.free_draft)
            row->worth *= 1.05;
        else if (row->request.catch_up > PLANNER_IN_STEP_TOKENS)
            row->worth *= 0.95;
        planner->order[count++] = r;
    }
    planner_sort(planner, planner->order, count);
    return count;
}

/* Should depth 0 be drafted, and for whom? The alternative is a plain step, so time is worth
 * plain_rate here. */
static struct candidate choose_first(struct planner *planner, bool model)
{
    struct candidate best = {0};
    int count = order_first(planner, model), groups = 0;
    for (int end = 1; end <= count; end++) {
        bool group_ends = end == count || planner->row[planner->order[end]].worth <
                                              planner->row[planner->order[end - 1]].worth;
        if (!group_ends || (end < count && ++groups > GROUPS_MOST)) continue;
        double forward_ms =
            planner_first_draft_ms(planner, planner->order, end, planner->stay_steps) +
            planner_own_ms(planner, true) - planner_own_ms(planner, false);
        struct candidate found = planner_value_best(planner, planner->order, end, 0, false,
                                                    forward_ms, planner->plain_rate);
        if (found.score > best.score) best = found;
    }
    return best;
}

/* ---- probes and exploration ---- */

static bool spend(struct planner *planner, double ms)
{
    if (!(ms <= planner->credit_ms)) return false;
    planner->credit_ms -= ms;
    return true;
}

/* From off, now and then everyone drafts a little, so that a return of acceptance is seen. Where
 * the draft model has to read up first, a probe goes on for some steps: reading is the dear part.
 */
static bool choose_probe(struct planner *planner)
{
    if (planner->probe_steps > 0) {
        planner->probe_steps--;
        return true;
    }
    if (!planner->options.exploration || choice_uniform(planner, CHOICE_PROBE) >= PROBE_RATE)
        return false;
    int depth = 1 + (int)(choice_uniform(planner, CHOICE_DEPTH) * PROBE_DEPTHS);
    if (depth > planner->options.max_draft) depth = planner->options.max_draft;
    double once_ms = planner_first_draft_ms(planner, NULL, planner->count, 1);
    double spread_ms = planner_first_draft_ms(planner, NULL, planner->count, HUGE_VAL);
    double reading_ms = once_ms - spread_ms; /* beyond what a draft model in step reads */
    double step_ms = fmax(planner->uniform_ms[depth] - planner->uniform_ms[0], 0);
    int steps = (int)fmin(fmax(reading_ms / fmax(step_ms, 1e-3), 1), PROBE_MOST_STEPS);
    if (!spend(planner, reading_ms + steps * step_ms)) return false;
    planner->probe_depth = depth;
    planner->probe_steps = steps - 1;
    return true;
}

/* Is this a step to measure what no drafts take? gain: of drafting over none, relative. */
static bool choose_plain(struct planner *planner, double gain)
{
    if (!planner->options.exploration || planner->mode != MODE_ADAPTIVE) return false;
    double lot = choice_uniform(planner, CHOICE_PLAIN);
    return lot < PLAIN_MOST_RATE && lot * gain < PLAIN_BUDGET &&
           spend(planner, gain / (1 + gain) * planner->uniform_ms[0]);
}

/* Starved positions: a request draws by lot whether it goes down to its first one in this step. */
static void choose_exploration(struct planner *planner)
{
    for (int r = 0; planner->options.exploration && r < planner->count; r++) {
        struct row *row = &planner->row[r];
        int depth = row->request.starved + 1;
        if (row->request.starved < 0 || depth > planner->options.max_draft ||
            depth > row->request.cap)
            continue;
        if (choice_uniform(planner, CHOICE_ROW + (uint32_t)r) >= PROBE_RATE) continue;
        double ms = planner_verify_ms(planner, planner->tokens + depth) -
                    planner_verify_ms(planner, planner->tokens) +
                    depth * planner_draft_ms(planner, 1);
        if (!spend(planner, fmax(ms, 0))) continue;
        row->forced = depth;
        planner->exploring = true;
    }
}

/* ---- choice ---- */

/* Of the way that depth 0 promises over a plain step, relative. New requests make the draft
 * model read up time and again; that is part of what drafting costs. */
static double gain_of(const struct planner *planner, const struct candidate *first)
{
    double reading_ms = planner->reading_each_ms * planner->count;
    double score = first->score - planner->plain_rate * reading_ms;
    if (first->score <= 0) return -1e-9;
    return score / (planner->count + planner->plain_rate * (first->ms + reading_ms));
}

void planner_choose(struct planner *planner)
{
    planner->uniform_depth = warm_up_depth(planner);
    if (planner->uniform_depth > 0) {
        planner->warming = true;
        planner->warm_steps++;
        planner->plan = PLAN_UNIFORM;
        if (!planner->drafting) enter(planner, 0);
        planner->spell_steps++;
        return;
    }
    struct candidate first = choose_first(planner, true);
    double gain = gain_of(planner, &first);
    double record = rule_gain(planner);
    if (planner->drafting && !isnan(record)) {
        if (only_decodes(planner)) /* the record is of such steps */
            gain = fmax(gain, record * planner->lambda / planner->plain_rate - 1);
        planner->lambda *= fmax(record, 1);
    }
    update_regime(planner, gain);
    if (!planner->drafting) {
        if (choose_probe(planner)) {
            planner->probing = true;
            planner->plan = PLAN_UNIFORM;
            planner->uniform_depth = planner->probe_depth;
            return;
        }
        first = choose_first(planner, false);
        planner->plan = first.score > 0 ? PLAN_RULE : PLAN_NONE;
    } else {
        planner->probing = gain >= 0 && choose_plain(planner, gain);
        planner->plan = gain >= 0 && !planner->probing ? PLAN_RULE : PLAN_NONE;
        if (planner->plan == PLAN_NONE)
            first = (struct candidate){0};
        else if (first.forward == 0) /* the rule's own record says more than the expectation */
            first.forward = order_first(planner, true);
        if (!planner->probing) choose_exploration(planner);
        if (planner->exploring) planner->plan = PLAN_RULE;
    }
    planner->first = first;
}

/* ---- learning ---- */

static void learn_own(struct planner *planner, bool drafted, double ms)
{
    if (planner->count == 0 || !(ms >= 0) || !isfinite(ms)) return;
    double each = ms / planner->count;
    double *mean = &planner->own[drafted].ms, *weight = &planner->own[drafted].weight;
    if (*weight >= OWN_TRUSTED)
        each = fmin(each, OWN_OUTLIER * *mean); /* the rest was someone else's time slice */
    *weight = fmin(*weight + 1, OWN_MEMORY_STEPS);
    *mean += (each - *mean) / *weight;
}

/* What the rule made of a step, beside what the best uniform K would have made in the same time. */
static void learn_rule(struct planner *planner)
{
    if (planner->exploring || !only_decodes(planner)) return; /* not what the rule alone makes */
    double uniform = planner_uniform_rate(planner, planner->best_uniform) * planner->report.cost_ms;
    double survival = planner->report.value - planner->count - planner->finishing;
    planner->rule_base = RULE_MEMORY * planner->rule_base + planner->count;
    planner->rule_survival = RULE_MEMORY * planner->rule_survival + survival;
    planner->rule_uniform = RULE_MEMORY * planner->rule_uniform + uniform;
}

/* What the clock says of a step while drafts are in use, beside what none would have made of it. */
static void learn_record(struct planner *planner, const struct planner_outcome *outcome,
                         double step_ms)
{
    if (!planner->drafting || planner->warming || planner->exploring || planner->count == 0 ||
        !only_decodes(planner) || planner->spell_steps <= SPELL_BEGINS)
        return;
    double tokens = planner->count;
    for (int r = 0; r < planner->count; r++) tokens += outcome->accepted[r];
    planner->record.steps++;
    planner->record.tokens = RECORD_MEMORY * planner->record.tokens + tokens;
    planner->record.ms = RECORD_MEMORY * planner->record.ms +
                         fmin(step_ms, RECORD_OUTLIER * planner->report.cost_ms);
    planner->record.plain_tokens = RECORD_MEMORY * planner->record.plain_tokens + planner->count;
    planner->record.plain_ms = RECORD_MEMORY * planner->record.plain_ms + planner->uniform_ms[0];
}

/* Labels of one request. A block cut short by the end of its text, or without labels, says nothing
 * about the plan. */
static void learn_row(struct planner *planner, const struct row *row, int admitted, int accepted)
{
    assert(accepted >= 0 && accepted <= admitted);
    struct acceptance *acceptance = &planner->stratum[row->request.stratum].acceptance;
    double skipped = admitted == row->admitted ? row->skipped : NAN;
    if (admitted > planner->options.max_draft) admitted = planner->options.max_draft;
    if (accepted > admitted) accepted = admitted;
    if (admitted > 0 || !isnan(skipped))
        acceptance_observe(acceptance, admitted, accepted, skipped,
                           planner->probing && planner->mode == MODE_ADAPTIVE ? PROBE_WEIGHT : 1);
    if (planner->plan != PLAN_RULE || admitted != row->admitted) return;
    planner->accepted_sum += accepted;
    planner->predicted_sum += row->expected;
}

void planner_learn(struct planner *planner, const struct planner_outcome *outcome)
{
    int labelled = 0, drafted = 0;
    planner->accepted_sum *= CALIBRATION_MEMORY;
    planner->predicted_sum *= CALIBRATION_MEMORY;
    for (int r = 0; r < planner->count; r++) {
        learn_row(planner, &planner->row[r], outcome->admitted[r], outcome->accepted[r]);
        labelled += outcome->admitted[r] > 0;
        drafted += outcome->admitted[r] > 0 || planner->row[r].drafted > 0;
    }
    planner->labelled_steps += labelled > 0;
    planner->labelled_rows += labelled;
    if (planner->mode == MODE_ADAPTIVE && planner->plan == PLAN_RULE) learn_rule(planner);
    learn_own(planner, drafted > 0, outcome->own_ms);
    /* Not the steps that begin a spell: what they read is priced into entering it. */
    if (planner->drafting && drafted > 0 && planner->spell_steps > SPELL_BEGINS)
        planner->reading_each_ms +=
            (planner->reading_now_ms / planner->count - planner->reading_each_ms) /
            READING_MEMORY_STEPS;

    double step_ms = outcome->draft_ms + outcome->verify_ms + outcome->own_ms;
    if (!(step_ms > 0) || !isfinite(step_ms)) return;
    if (planner->mode == MODE_ADAPTIVE && !isnan(planner->lambda))
        learn_record(planner, outcome, step_ms);
    planner->credit_ms = fmin(planner->credit_ms + PROBE_BUDGET * step_ms,
                              CREDIT_LIMIT_STEPS * PROBE_BUDGET * step_ms);
}
