/* cuda_verify.cu - the verdicts of a ragged step on a CUDA device: the decisions of verify_body.h,
 * a block a request.
 *
 * Launches: every live row's chunks are measured (a warp a chunk), rows are merged (a block a row),
 * races are run where the coupled rule may occur (a warp a chunk), and the requests decide. Nothing
 * waits, nothing is allocated; which rows are live is found on the device.
 */
#include "config.h"

#include "kernels/cuda_step.h"
#include "kernels/verify_core.h"

#include <string.h>

#define MEASURE_THREADS 128
#define MEASURE_BLOCKS 3

struct step_task {
    struct tt_cuda_step step;
    size_t chunks, pitch; /* of the target's vocabulary; partials of a row */
    struct row_partial *partials, *draft_partials; /* (requests * positions + 1, or positions) */
    struct tt_row_stats *stats, *draft_stats;
    struct race_winner *winners;
    double *masses; /* (requests, pitch) */
};

/* One row of the step: first the target rows of every request, then their draft rows. */
struct step_row {
    size_t r, k, place; /* place: in the partials and statistics of its side */
    bool is_draft;
    const float *logits;
    size_t vocab;
    float inverse_temperature;
};

CUDA_FN size_t step_target_rows(const struct tt_cuda_step *step)
{
    return step->requests * (step->positions + 1);
}

/* Row number `index`; false where it has nothing to measure. */
CUDA_FN bool step_row_of(const struct tt_cuda_step *step, size_t index, struct step_row *out)
{
    const size_t targets = step_target_rows(step);
    struct step_request request;

    out->is_draft = index >= targets;
    out->place = out->is_draft ? index - targets : index;
    const size_t width = out->is_draft ? step->positions : step->positions + 1;
    out->r = out->place / width;
    out->k = out->place % width;
    if (!step_request_of(step, out->r, &request)) return false;
    out->inverse_temperature = request.inverse_temperature;
    if (out->is_draft) {
        if (!step_measures_draft(step, &request, out->k)) return false;
        out->logits = step_draft(step, out->r, out->k);
        out->vocab = step->draft_vocab;
        return true;
    }
    if (out->k > (size_t)request.admitted) return false;
    out->logits = step_target(step, out->r, out->k);
    out->vocab = step->vocab;
    return true;
}

/* Warp w of the grid measures chunk w % chunks of row w / chunks. */
static __global__ void __launch_bounds__(MEASURE_THREADS, MEASURE_BLOCKS)
    measure_step_kernel(struct step_task task)
{
    const size_t warp =
        (size_t)blockIdx.x * (MEASURE_THREADS / LANE_THREADS) + threadIdx.x / LANE_THREADS;
    const size_t chunk = warp % task.chunks;
    struct step_row row;
    if (warp / task.chunks >= task.step.requests * (2 * task.step.positions + 1)) return;
    if (!step_row_of(&task.step, warp / task.chunks, &row)) return;
    if (chunk * ROW_CHUNK >= row.vocab) return;
    const struct row_partial partial =
        warp_partial<ROW_F32>(row.logits, chunk, row.vocab, row.inverse_temperature);
    struct row_partial *partials = row.is_draft ? task.draft_partials : task.partials;
    LANE_ONCE partials[row.place * task.pitch + chunk] = partial;
}

static __global__ void __launch_bounds__(MEASURE_THREADS) merge_step_kernel(struct step_task task)
{
    struct step_row row;
    if (!step_row_of(&task.step, blockIdx.x, &row)) return;
    const struct row_partial *partials = row.is_draft ? task.draft_partials : task.partials;
    struct tt_row_stats *stats = row.is_draft ? task.draft_stats : task.stats;
    block_measure(row.logits, ROW_F32, row.vocab, row.inverse_temperature,
                  partials + row.place * task.pitch, &stats[row.place]);
}

/* Warp w of the grid runs the race of chunk w % chunks of target row w / chunks. */
static __global__ void __launch_bounds__(CUDA_ROW_THREADS) race_step_kernel(struct step_task task)
{
    const size_t warp =
        (size_t)blockIdx.x * (CUDA_ROW_THREADS / LANE_THREADS) + threadIdx.x / LANE_THREADS;
    const size_t index = warp / task.chunks, chunk = warp % task.chunks;
    struct step_request request;
    struct step_row row;
    if (index >= step_target_rows(&task.step) || !step_row_of(&task.step, index, &row)) return;
    if (!step_request_of(&task.step, row.r, &request) || request.rule != TT_COUPLED) return;
    if (task.stats[row.place].flags & TT_ROW_FLAGGED) return;
    const float max = warp_row_max(task.partials + row.place * task.pitch, task.chunks);
    const struct race_winner winner =
        warp_race(row.logits, ROW_F32, chunk, row.vocab, max, row.inverse_temperature,
                  task.step.key[row.r], task.step.token_index[row.r] + row.k);
    LANE_ONCE task.winners[row.place * task.pitch + chunk] = winner;
}

/* ---- decisions: what verify_body.h asks, answered by the whole block */

struct step_view {
    const struct step_task *task;
    size_t r;
    float inverse_temperature;
    struct row_law p, q; /* of the row at hand */
    int32_t mode;
};
#define VERIFY_VIEW struct step_view
#define VERIFY_FN static __device__

CUDA_FN size_t view_place(const struct step_view *view, int32_t k)
{
    return view->r * (view->task->step.positions + 1) + (size_t)k;
}

VERIFY_FN int view_reach(VERIFY_VIEW *view, int32_t k, int with_draft)
{
    const struct tt_cuda_step *step = &view->task->step;
    const struct tt_row_stats *stats = &view->task->stats[view_place(view, k)];

    if (stats->flags & TT_ROW_FLAGGED) return VERIFY_TARGET_FLAGGED;
    view->mode = stats->argmax;
    view->p = row_law_of(step_target(step, view->r, (size_t)k), step->vocab,
                         view->inverse_temperature, stats);
    if (!with_draft) return VERIFY_READY;
    stats = (step->draft_stats ? step->draft_stats : view->task->draft_stats) +
            view->r * step->positions + (size_t)k;
    if (stats->flags & TT_ROW_FLAGGED) return VERIFY_DRAFT_FLAGGED;
    view->q = row_law_of(step_draft(step, view->r, (size_t)k), step->draft_vocab,
                         view->inverse_temperature, stats);
    return VERIFY_READY;
}

VERIFY_FN int32_t view_mode(VERIFY_VIEW *view, int32_t k)
{
    (void)k;
    return view->mode;
}

VERIFY_FN double view_target(VERIFY_VIEW *view, int32_t k, int32_t token)
{
    (void)k;
    return law_probability(&view->p, token);
}

VERIFY_FN double view_draft(VERIFY_VIEW *view, int32_t k, int32_t token)
{
    (void)k;
    return law_probability(&view->q, token);
}

CUDA_FN struct draw_site view_site(const struct step_view *view, const struct choice_site *site)
{
    struct draw_site at;
    at.key = view->task->step.key[view->r];
    at.site = *site;
    return at;
}

VERIFY_FN int view_coin(VERIFY_VIEW *view, const struct choice_site *site, double probability)
{
    return choice_uniform(view->task->step.key[view->r], site, 0) < probability;
}

VERIFY_FN int32_t view_draw_whole(VERIFY_VIEW *view, int32_t k, float max,
                                  const struct draw_site *at)
{
    return block_draw(view->p.logits, ROW_F32, view->p.vocab, max, view->inverse_temperature,
                      view->task->partials + view_place(view, k) * view->task->pitch,
                      view->task->masses + view->r * view->task->pitch, at);
}

/* Take one token out of the row, measure its chunk again, draw, and put the token back; see
 * verify.c.
 */
VERIFY_FN int32_t view_draw_without(VERIFY_VIEW *view, int32_t k, int32_t without,
                                    const struct draw_site *at)
{
    __shared__ float max;
    struct row_partial *partials = view->task->partials + view_place(view, k) * view->task->pitch;
    float *row = step_target(&view->task->step, view->r, (size_t)k);
    const size_t chunk = (size_t)without / ROW_CHUNK, from = chunk * ROW_CHUNK;
    const struct row_partial whole = partials[chunk];
    const float kept = row[without];
    const struct row_ahead none = {0, 0};

    __syncthreads();
    if (threadIdx.x == 0) row[without] = -row_infinity();
    __syncthreads();
    if (threadIdx.x < LANE_THREADS) {
        const struct row_partial partial = chunk_losers(
            row, ROW_F32, from, chunk_end(from, view->p.vocab), none, view->inverse_temperature);
        if (threadIdx.x == 0) {
            double rest;
            partials[chunk] = partial;
            merge_partials(partials, view->task->chunks, view->inverse_temperature, &max, &rest);
            if (max == -row_infinity()) {
                row[without] = kept;
                partials[chunk] = whole;
                max = view->p.max;
            }
        }
    }
    __syncthreads();
    const int32_t token = view_draw_whole(view, k, max, at);
    if (threadIdx.x == 0) row[without] = kept;
    __syncthreads();
    return token;
}

VERIFY_FN int32_t view_draw(VERIFY_VIEW *view, int32_t k, enum verify_remainder remainder,
                            int32_t without, const struct choice_site *site)
{
    const struct draw_site at = view_site(view, site);
    if (remainder == VERIFY_WITHOUT) return view_draw_without(view, k, without, &at);
    if (remainder == VERIFY_RESIDUAL) {
        const int32_t token = block_draw_residual(
            &view->p, &view->q, view->task->masses + view->r * view->task->pitch, &at);
        if (token >= 0) return token;
        __syncthreads(); /* the masses are read by all before they are written again */
    }
    return view_draw_whole(view, k, view->p.max, &at);
}

VERIFY_FN int32_t view_race(VERIFY_VIEW *view, int32_t k, uint64_t token_index)
{
    (void)token_index;
    return race_winner_of(view->task->winners + view_place(view, k) * view->task->pitch,
                          view->task->chunks);
}

#include "kernels/verify_body.h"

static __global__ void __launch_bounds__(CUDA_ROW_THREADS) decide_kernel(struct step_task task)
{
    const size_t r = blockIdx.x;
    struct step_request request;
    struct step_view view;
    struct tt_verdict verdict;

    memset(&verdict, 0, sizeof verdict);
    if (step_request_of(&task.step, r, &request)) {
        const struct verify_task block = {request.rule, task.step.tokens + r * task.step.positions,
                                          request.admitted, task.step.token_index[r]};
        view.task = &task;
        view.r = r;
        view.inverse_temperature = request.inverse_temperature;
        (void)verify_block(&block, &view, &verdict);
    } else {
        verdict.next = -1;
        verdict.flags = TT_REQUEST_REFUSED;
    }
    if (threadIdx.x == 0) task.step.verdict[r] = verdict;
}

int cuda_step_verify(struct cuda_backend *backend, cudaStream_t stream,
                     const struct tt_cuda_step *step)
{
    const size_t chunks = (step->vocab + ROW_CHUNK - 1) / ROW_CHUNK;
    const struct step_task task = {*step,
                                   chunks,
                                   backend->chunks,
                                   backend->partials,
                                   backend->draft_partials,
                                   backend->stats,
                                   backend->draft_stats,
                                   backend->winners,
                                   backend->masses};
    const bool drafts = (step->rules >> TT_RATIO & 1u) && !step->draft_stats;
    const size_t targets = step->requests * (step->positions + 1);
    const size_t rows = targets + (drafts ? step->requests * step->positions : 0);
    const size_t measure = MEASURE_THREADS / LANE_THREADS, race = CUDA_ROW_THREADS / LANE_THREADS;
    struct cuda_device *device = &backend->device;
    int status = TT_OK;

    if (step->requests == 0) return TT_OK;
    if (step->transform) status = cuda_step_transform(backend, stream, step);
    if (!status)
        status = cuda_launch(device, stream, measure_step_kernel,
                             dim3((unsigned)((rows * chunks + measure - 1) / measure)),
                             MEASURE_THREADS, task, "measuring the rows of a step");
    if (!status)
        status = cuda_launch(device, stream, merge_step_kernel, dim3((unsigned)rows),
                             MEASURE_THREADS, task, "merging the rows of a step");
    if (!status && (step->rules >> TT_COUPLED & 1u))
        status = cuda_launch(device, stream, race_step_kernel,
                             dim3((unsigned)((targets * chunks + race - 1) / race)),
                             CUDA_ROW_THREADS, task, "running the races of a step");
    if (!status)
        status = cuda_launch(device, stream, decide_kernel, dim3((unsigned)step->requests),
                             CUDA_ROW_THREADS, task, "deciding a step");
    return status;
}
