/* estimator.cu - an estimator whose state stays on a CUDA device, and the allocation that follows
 * from it. The arithmetic is that of the CPU (estimator_body.h, allocate_body.h), and so are the
 * bits.
 *
 * Three launches a step, nothing else: step_kernel (one block: read the labels, add them to the
 * sums, refit when that is due), predict_kernel (a thread a request), allocate_kernel (one block).
 * Whether a refit is due is found on the device: a captured graph serves every step.
 *
 * Every sum has one thread that adds its terms in the CPU's order, request by request; the terms
 * were computed in parallel before. Owns one allocation on the device, made in
 * tt_cuda_estimator_new: state, labels of a step, survivals of a step.
 */
#include "config.h"

#include "kernels/cuda_device.h" /* the runtime, before the bodies */
#include "kernels/allocate_body.h"
#include "kernels/estimator_body.h"
#include "kernels/trimtab_cuda.h"

#include <limits.h>
#include <new>

#define STEP_THREADS 512
#define PREDICT_THREADS 128
#define ALLOCATE_THREADS ALLOCATE_DIGIT_VALUES /* a thread a digit's value */

static_assert(TT_MAX_POSITIONS <= LANE_THREADS, "a lane a position");

/* ------------------------------------------------------------------------------------- the step */

/* One position of one request of a step, read and graded. */
struct estimator_cell {
    enum { NOTHING, FLAGGED, LABEL } content;
    struct calibration_label calibration;
    struct online_grade grade; /* of `online` only */
};

/* A launch is a template over its task: no other file may have one of this name. */
struct estimator_step_task {
    struct tt_estimator *estimator;
    struct tt_cuda_estimator_counts *counts;
    struct estimator_cell *cells; /* (rows, positions) */
    struct tt_cuda_outcomes outcomes;
};

static __device__ void count_refused(struct tt_cuda_estimator_counts *counts)
{
    static_assert(sizeof(unsigned long long) == sizeof counts->refused_rows, "one 64-bit atomic");
    atomicAdd((unsigned long long *)&counts->refused_rows, 1ULL);
}

/* Request r as the CPU's estimator would be shown it. */
static __device__ struct tt_observation step_observation(const struct estimator_step_task &task,
                                                         size_t r)
{
    const struct tt_cuda_outcomes &from = task.outcomes;
    struct tt_observation to;
    to.feature = from.feature + r * from.feature_stride;
    to.predicted = from.predicted ? from.predicted + r * from.predicted_stride : NULL;
    to.admitted = from.admitted[r];
    if (!from.verdict) {
        to.accepted = from.accepted[r];
        to.soft = from.soft ? from.soft + r * from.soft_stride : NULL;
        return to;
    }
    const struct tt_verdict *verdict = from.verdict + r;
    to.accepted = verdict->accepted < to.admitted ? verdict->accepted : to.admitted;
    to.soft = verdict->soft;
    /* The block ended at a flagged row, which is no label. */
    if (verdict->labels <= verdict->accepted) to.admitted = to.accepted;
    return to;
}

static __device__ void read_cells(const struct estimator_step_task &task)
{
    const struct tt_estimator *estimator = task.estimator;
    const int32_t positions = estimator->positions;
    const size_t cells = task.outcomes.rows * (size_t)positions;
    for (size_t i = threadIdx.x; i < cells; i += blockDim.x) {
        const int32_t k = (int32_t)(i % (size_t)positions);
        const struct tt_observation observation = step_observation(task, i / (size_t)positions);
        struct estimator_cell *cell = &task.cells[i];
        struct estimator_label label;
        cell->content = estimator_cell::NOTHING;
        if (!observation_valid(&observation, positions)) {
            if (k == 0) count_refused(task.counts);
            continue;
        }
        if (k >= observation_reached(&observation)) continue;
        cell->content = estimator_cell::FLAGGED;
        if (!estimator_read_label(estimator, &observation, k, &label)) continue;
        cell->content = estimator_cell::LABEL;
        calibration_sort(label.feature, label.predicted, label.hard, &cell->calibration);
        if (estimator->kind == TT_ONLINE)
            online_grade_label(&estimator->u.online, k, label.feature, label.soft,
                               (double)label.hard, &cell->grade);
    }
}

/* Call add(cell) for the labels of one position, in the order of the requests. */
template <typename Add>
static __device__ void each_label_of(const struct estimator_step_task &task, int32_t position,
                                     Add add)
{
    const size_t positions = (size_t)task.estimator->positions;
    for (size_t r = 0; r < task.outcomes.rows; r++) {
        const struct estimator_cell *cell = &task.cells[r * positions + (size_t)position];
        if (cell->content == estimator_cell::LABEL) add(cell);
    }
}

/* For the labels of all positions, request by request. */
template <typename Add>
static __device__ void each_label(const struct estimator_step_task &task, Add add)
{
    const size_t cells = task.outcomes.rows * (size_t)task.estimator->positions;
    for (size_t i = 0; i < cells; i++)
        if (task.cells[i].content == estimator_cell::LABEL) add(&task.cells[i]);
}

/* A warp takes a job; within it a lane takes a position, a bin, or lane 0 takes all. */
enum step_job {
    JOB_SLOPE,                                  /* per speed: the sums that positions share */
    JOB_WINDOW = JOB_SLOPE + ONLINE_SPEEDS,     /* drift and centre */
    JOB_SCORES,                                 /* calibration over all positions, label counts */
    JOB_PARITY,                                 /* a lane a position */
    JOB_POSITIONS,                              /* per speed, a lane a position */
    JOB_COUNTS = JOB_POSITIONS + ONLINE_SPEEDS, /* a lane a position */
    JOB_BINS,                                   /* per bin, a lane a position */
    JOB_FEATURES = JOB_BINS + TT_CALIBRATION_BINS, /* a lane a bin of one outcome's histogram */
    STEP_JOBS = JOB_FEATURES + 2 * CALIBRATION_FEATURE_BINS / LANE_THREADS
};

static __device__ void add_parity(const struct estimator_step_task &task, int32_t k)
{
    struct parity *parity = &task.estimator->u.parity;
    uint32_t row = parity->rows;
    for (size_t r = 0; r < task.outcomes.rows; r++) {
        const struct tt_observation observation = step_observation(task, r);
        if (observation_valid(&observation, parity->positions))
            parity_push(parity, &observation, row++, k);
    }
    parity_fold(parity, row, k);
}

static __device__ void add_scores(const struct estimator_step_task &task)
{
    struct tt_estimator *estimator = task.estimator;
    struct calibration *calibration = &estimator->calibration;
    const double unit = calibration->unit;
    const size_t cells = task.outcomes.rows * (size_t)estimator->positions;
    for (size_t i = 0; i < cells; i++) {
        const struct estimator_cell *cell = &task.cells[i];
        estimator->flagged += cell->content == estimator_cell::FLAGGED;
        estimator->labels += cell->content == estimator_cell::LABEL;
        if (cell->content == estimator_cell::LABEL)
            calibration_add_scores(calibration, unit, &cell->calibration);
    }
}

static __device__ void add_counts(const struct estimator_step_task &task, int32_t k)
{
    struct tt_estimator *estimator = task.estimator;
    struct calibration *calibration = &estimator->calibration;
    const double unit = calibration->unit;
    each_label_of(task, k, [=](const struct estimator_cell *cell) {
        calibration_add_position(calibration, unit, k, &cell->calibration);
        estimator_count_label(estimator, k);
    });
    estimator_age_position(estimator, k);
}

static __device__ void add_bin(const struct estimator_step_task &task, int32_t k, int b)
{
    struct calibration *calibration = &task.estimator->calibration;
    const double unit = calibration->unit;
    struct tt_calibration_bin *bin = &calibration->bin[k][b];
    each_label_of(task, k, [=](const struct estimator_cell *cell) {
        if (cell->calibration.bin == b) calibration_add_bin(bin, unit, &cell->calibration);
    });
}

static __device__ void add_feature(const struct estimator_step_task &task, int outcome, int b)
{
    struct calibration *calibration = &task.estimator->calibration;
    const double unit = calibration->unit;
    double sum = calibration->by_feature[outcome][b];
    each_label(task, [=, &sum](const struct estimator_cell *cell) {
        if ((cell->calibration.outcome > 0.0) == outcome && cell->calibration.feature_bin == b)
            sum += unit;
    });
    calibration->by_feature[outcome][b] = sum;
}

static __device__ void run_online_job(const struct estimator_step_task &task, int job, int32_t lane)
{
    struct online *online = &task.estimator->u.online;
    const int active = online->active;
    if (job < JOB_WINDOW && lane == 0) {
        const int s = job - JOB_SLOPE;
        struct online_speed *speed = &online->speed[s];
        each_label(task, [=](const struct estimator_cell *cell) {
            online_add_slope(speed, s, &cell->grade);
        });
    } else if (job == JOB_WINDOW && lane == 0) {
        each_label(task, [=](const struct estimator_cell *cell) {
            online_add_window(online, active, &cell->grade);
        });
    } else if (job >= JOB_POSITIONS && job < JOB_COUNTS && lane < online->positions) {
        const int s = job - JOB_POSITIONS;
        struct online_speed *speed = &online->speed[s];
        each_label_of(task, lane, [=](const struct estimator_cell *cell) {
            online_add_position(speed, s, lane, &cell->grade);
        });
    }
}

static __device__ void add_sums(const struct estimator_step_task &task)
{
    const int32_t lane = (int32_t)(threadIdx.x % LANE_THREADS);
    const int32_t positions = task.estimator->positions;
    const bool online = task.estimator->kind == TT_ONLINE;
    for (int job = (int)(threadIdx.x / LANE_THREADS); job < STEP_JOBS;
         job += (int)(blockDim.x / LANE_THREADS)) {
        if (job >= JOB_FEATURES) {
            const int bin = (job - JOB_FEATURES) * LANE_THREADS + lane;
            add_feature(task, bin / CALIBRATION_FEATURE_BINS, bin % CALIBRATION_FEATURE_BINS);
        } else if (job >= JOB_BINS) {
            if (lane < positions) add_bin(task, lane, job - JOB_BINS);
        } else if (job == JOB_COUNTS) {
            if (lane < positions) add_counts(task, lane);
        } else if (job == JOB_SCORES) {
            if (lane == 0) add_scores(task);
        } else if (job == JOB_PARITY) {
            if (!online && lane < positions) add_parity(task, lane);
        } else if (online) {
            run_online_job(task, job, lane);
        }
    }
}

static __device__ void rescale_calibration(struct calibration *calibration, double scale)
{
    for (int i = (int)threadIdx.x; i < calibration->positions; i += (int)blockDim.x)
        calibration_scale_position(calibration, scale, i);
    for (int i = (int)threadIdx.x; i < CALIBRATION_FEATURE_BINS; i += (int)blockDim.x)
        calibration_scale_feature(calibration, scale, i);
}

static __device__ void end_step(const struct estimator_step_task &task)
{
    __shared__ struct online_fold fold;
    __shared__ double scale; /* of the calibration's sums; 0: none is due */
    __shared__ bool due;
    struct tt_estimator *estimator = task.estimator;
    struct calibration *calibration = &estimator->calibration;
    struct online *online = &estimator->u.online;

    if (threadIdx.x == 0) {
        estimator->steps++;
        scale = calibration_age(calibration) ? 1.0 / calibration->unit : 0.0;
        due = estimator->kind == TT_ONLINE && online_window_due(online);
        if (due) online_fold_open(online, &fold);
    }
    __syncthreads();
    if (scale > 0.0) rescale_calibration(calibration, scale);
    const unsigned warp = threadIdx.x / LANE_THREADS;
    if (due && warp < ONLINE_SPEEDS && threadIdx.x % LANE_THREADS == 0)
        online_fold_speed(online, &online->speed[warp], &fold);
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (scale > 0.0) calibration_scale_scores(calibration, scale);
    task.counts->step_bits = estimator->kind == TT_PARITY ? parity_close_step(&estimator->u.parity)
                             : due                        ? online_fold_close(online, &fold)
                                                          : 0;
    if (task.outcomes.step_bits) *task.outcomes.step_bits = task.counts->step_bits;
}

static __global__ void __launch_bounds__(STEP_THREADS) step_kernel(struct estimator_step_task task)
{
    read_cells(task);
    __syncthreads();
    add_sums(task);
    __syncthreads();
    end_step(task);
}

/* ------------------------------------------------------------------- survivals and allocation */

struct estimator_allocate_task {
    const struct tt_estimator *estimator;
    struct tt_cuda_estimator_counts *counts;
    double *survival; /* (rows, positions) */
    struct tt_cuda_drafts drafts;
};

/* Drafts of request r; a number out of range counts as none. */
static __device__ int32_t drafted_of(const struct estimator_allocate_task &task, size_t r)
{
    const int32_t drafted = task.drafts.drafted[r];
    return drafted < 0 || drafted > task.estimator->positions ? 0 : drafted;
}

static __global__ void __launch_bounds__(PREDICT_THREADS)
    predict_kernel(struct estimator_allocate_task task)
{
    const size_t r = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= task.drafts.rows) return;
    const int32_t drafted = drafted_of(task, r);
    const float *feature = task.drafts.feature + r * task.drafts.feature_stride;
    double *survival = task.survival + r * (size_t)task.estimator->positions;
    double product = 1.0;
    if (drafted != task.drafts.drafted[r]) count_refused(task.counts);
    for (int32_t k = 0; k < drafted; k++) {
        const double p = estimator_probability(task.estimator, k, feature[k]);
        survival[k] = product = survival_next(product, p);
        if (task.drafts.predicted)
            task.drafts.predicted[r * task.drafts.predicted_stride + (size_t)k] = (float)p;
        if (task.drafts.survival)
            task.drafts.survival[r * task.drafts.survival_stride + (size_t)k] = product;
    }
}

/* Sum of the values of all earlier threads of the block; *total of all of them. Every thread calls
 * it. */
static __device__ unsigned sum_before(unsigned value, unsigned *total)
{
    __shared__ unsigned of_warp[ALLOCATE_THREADS / LANE_THREADS];
    const unsigned lane = threadIdx.x % LANE_THREADS, warp = threadIdx.x / LANE_THREADS;
    unsigned sum = value, before = 0;
    for (unsigned hop = 1; hop < LANE_THREADS; hop *= 2) {
        const unsigned other = __shfl_up_sync(0xffffffffu, sum, hop);
        if (lane >= hop) sum += other;
    }
    if (lane == LANE_THREADS - 1) of_warp[warp] = sum;
    __syncthreads();
    *total = 0;
    for (unsigned w = 0; w < ALLOCATE_THREADS / LANE_THREADS; w++) {
        if (w < warp) before += of_warp[w];
        *total += of_warp[w];
    }
    __syncthreads(); /* of_warp is written again by the next call */
    return before + sum - value;
}

/* Key of the budget-th best draft; *better receives how many are above it. 1 <= budget <= all. */
static __device__ uint64_t select_threshold(const struct estimator_allocate_task &task,
                                            unsigned budget, unsigned *better)
{
    __shared__ unsigned count[ALLOCATE_DIGIT_VALUES];
    __shared__ unsigned chosen, above_chosen;
    /* thread t looks at the t-th largest value of the digit */
    const unsigned value = ALLOCATE_DIGIT_VALUES - 1 - threadIdx.x;
    uint64_t prefix = 0, mask = 0;
    *better = 0;
    for (int digit = ALLOCATE_DIGITS - 1; digit >= 0; digit--) {
        const int shift = digit * ALLOCATE_DIGIT_BITS;
        unsigned all;
        count[threadIdx.x] = 0;
        __syncthreads();
        for (size_t r = threadIdx.x; r < task.drafts.rows; r += blockDim.x) {
            const double *row = task.survival + r * (size_t)task.estimator->positions;
            const int32_t drafted = drafted_of(task, r);
            uint64_t key = UINT64_MAX;
            for (int32_t k = 0; k < drafted; k++) {
                key = allocate_key(row[k], key);
                if ((key & mask) == prefix)
                    atomicAdd(&count[(key >> shift) % ALLOCATE_DIGIT_VALUES], 1u);
            }
        }
        __syncthreads();
        const unsigned own = count[value], above = sum_before(own, &all);
        if (*better + above < budget && budget <= *better + above + own) {
            chosen = value;
            above_chosen = above;
        }
        __syncthreads();
        prefix |= (uint64_t)chosen << shift;
        mask |= (uint64_t)(ALLOCATE_DIGIT_VALUES - 1) << shift;
        *better += above_chosen;
        __syncthreads();
    }
    return prefix;
}

/* Of `ties` drafts that tie with the threshold, by position and row, the last one's position, and
 * how many of that position are among them. */
struct tie_cut {
    int32_t position;
    unsigned rows;
};

static __device__ struct tie_cut cut_ties(const struct estimator_allocate_task &task,
                                          uint64_t threshold, unsigned ties)
{
    __shared__ unsigned at[TT_MAX_POSITIONS];
    struct tie_cut cut = {0, ties};
    if (threadIdx.x < TT_MAX_POSITIONS) at[threadIdx.x] = 0;
    __syncthreads();
    for (size_t r = threadIdx.x; r < task.drafts.rows; r += blockDim.x) {
        const double *row = task.survival + r * (size_t)task.estimator->positions;
        const int32_t drafted = drafted_of(task, r);
        int32_t k = allocate_above(row, drafted, threshold);
        for (; allocate_ties(row, drafted, k, threshold); k++) atomicAdd(&at[k], 1u);
    }
    __syncthreads();
    while (cut.rows > at[cut.position] && cut.position < TT_MAX_POSITIONS - 1)
        cut.rows -= at[cut.position++];
    return cut;
}

/* Admit what is above the threshold, the ties before the cut, and those at the cut by row. */
static __device__ void admit_ties(const struct estimator_allocate_task &task, uint64_t threshold,
                                  struct tie_cut cut)
{
    unsigned before = 0, here;
    for (size_t from = 0; from < task.drafts.rows; from += blockDim.x) {
        const size_t r = from + threadIdx.x;
        bool at_cut = false;
        int32_t k = 0;
        if (r < task.drafts.rows) {
            const double *row = task.survival + r * (size_t)task.estimator->positions;
            const int32_t drafted = drafted_of(task, r);
            k = allocate_above(row, drafted, threshold);
            while (k < cut.position && allocate_ties(row, drafted, k, threshold)) k++;
            at_cut = k == cut.position && allocate_ties(row, drafted, k, threshold);
        }
        const unsigned rank = before + sum_before(at_cut, &here);
        if (r < task.drafts.rows) task.drafts.admitted[r] = k + (at_cut && rank < cut.rows);
        before += here;
    }
}

static __global__ void __launch_bounds__(ALLOCATE_THREADS)
    allocate_kernel(struct estimator_allocate_task task)
{
    unsigned all, mine = 0, better;
    for (size_t r = threadIdx.x; r < task.drafts.rows; r += blockDim.x)
        mine += (unsigned)drafted_of(task, r);
    (void)sum_before(mine, &all);
    const int64_t asked = *task.drafts.budget;
    const unsigned budget = asked < 0 ? 0 : asked < (int64_t)all ? (unsigned)asked : all;
    if (threadIdx.x == 0 && task.drafts.total) *task.drafts.total = (int32_t)budget;
    if (budget == 0 || budget == all) {
        for (size_t r = threadIdx.x; r < task.drafts.rows; r += blockDim.x)
            task.drafts.admitted[r] = budget > 0 ? drafted_of(task, r) : 0;
        return;
    }
    const uint64_t threshold = select_threshold(task, budget, &better);
    admit_ties(task, threshold, cut_ties(task, threshold, budget - better));
}

/* -------------------------------------------------------------------------------------- the host
 */

struct tt_cuda_estimator {
    struct cuda_device *device;
    size_t max_rows;
    enum tt_estimator_kind kind;
    int32_t positions;
    /* in device memory, one allocation that begins at `estimator` */
    struct tt_estimator *estimator;
    struct tt_cuda_estimator_counts *counts;
    struct estimator_cell *cells; /* (max_rows, positions) */
    double *survival;             /* (max_rows, positions) */
};

static cudaStream_t stream_of(const tt_cuda_estimator *estimator, void *stream)
{
    return stream ? (cudaStream_t)stream : estimator->device->stream;
}

/* Sizes of what is allocated, each at a multiple of 256 bytes. */
static size_t padded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static int allocate(tt_cuda_estimator *estimator)
{
    const size_t cells = estimator->max_rows * (size_t)estimator->positions;
    const size_t state = padded(sizeof(struct tt_estimator));
    const size_t counts = padded(sizeof(struct tt_cuda_estimator_counts));
    const size_t labels = padded(cells * sizeof(struct estimator_cell));
    const size_t all = state + counts + labels + padded(cells * sizeof(double));
    void *memory = NULL;
    int status = cuda_check(estimator->device, cudaMalloc(&memory, all),
                            "allocating an estimator on the device");
    if (status) return status;
    unsigned char *at = (unsigned char *)memory;
    estimator->estimator = (struct tt_estimator *)(void *)at;
    estimator->counts = (struct tt_cuda_estimator_counts *)(void *)(at + state);
    estimator->cells = (struct estimator_cell *)(void *)(at + state + counts);
    estimator->survival = (double *)(void *)(at + state + counts + labels);
    return cuda_check(estimator->device, cudaMemsetAsync(memory, 0, all, estimator->device->stream),
                      "clearing an estimator on the device");
}

extern "C" int tt_cuda_estimator_new(tt *handle, const tt_estimator *from, size_t max_rows,
                                     tt_cuda_estimator **out)
{
    if (!out) return TT_EINVAL;
    *out = NULL;
    if (!handle || !from || max_rows == 0) return TT_EINVAL;
    struct cuda_device *device = cuda_device_of(handle);
    if (!device) return TT_ENOTSUP;
    if (max_rows > INT_MAX / TT_MAX_POSITIONS || max_rows >= 1U << PARITY_TREE_LEVELS)
        return TT_ELIMIT;
    tt_cuda_estimator *estimator = new (std::nothrow) tt_cuda_estimator();
    if (!estimator) return TT_ENOMEM;
    estimator->device = device;
    estimator->max_rows = max_rows;
    estimator->kind = from->kind;
    estimator->positions = from->positions;
    int status = allocate(estimator);
    if (!status) status = tt_cuda_estimator_write(estimator, from, NULL);
    if (status) {
        tt_cuda_estimator_free(estimator);
        return status;
    }
    *out = estimator;
    return TT_OK;
}

extern "C" void tt_cuda_estimator_free(tt_cuda_estimator *estimator)
{
    if (!estimator) return;
    if (estimator->estimator) (void)cudaFree(estimator->estimator);
    delete estimator;
}

/* Wait for a stream; the copies run on the device's own. */
static int wait_for(const tt_cuda_estimator *estimator, void *stream)
{
    return cuda_check(estimator->device, cudaStreamSynchronize(stream_of(estimator, stream)),
                      "waiting for the estimator");
}

extern "C" int tt_cuda_estimator_write(tt_cuda_estimator *estimator, const tt_estimator *from,
                                       void *stream)
{
    if (!estimator || !from || from->kind != estimator->kind ||
        from->positions != estimator->positions)
        return TT_EINVAL;
    int status = wait_for(estimator, stream);
    if (!status) status = cuda_upload(estimator->device, estimator->estimator, from, sizeof *from);
    return status ? status : cuda_synchronize(estimator->device);
}

extern "C" int tt_cuda_estimator_read(tt_cuda_estimator *estimator, tt_estimator *into,
                                      struct tt_cuda_estimator_counts *counts, void *stream)
{
    struct tt_cuda_estimator_counts read;
    if (!estimator || !into || into->kind != estimator->kind ||
        into->positions != estimator->positions)
        return TT_EINVAL;
    int status = wait_for(estimator, stream);
    if (!status) status = cuda_download(estimator->device, &read, estimator->counts, sizeof read);
    if (!status)
        status = cuda_download(estimator->device, into, estimator->estimator, sizeof *into);
    if (!status && counts) *counts = read;
    return status;
}

extern "C" int tt_cuda_estimator_step(tt_cuda_estimator *estimator,
                                      const struct tt_cuda_outcomes *outcomes, void *stream)
{
    if (!estimator || !outcomes) return TT_EINVAL;
    if (outcomes->rows > estimator->max_rows) return TT_ELIMIT;
    if (outcomes->rows > 0 &&
        (!outcomes->feature || !outcomes->admitted || (!outcomes->verdict && !outcomes->accepted)))
        return TT_EINVAL;
    const struct estimator_step_task task = {estimator->estimator, estimator->counts,
                                             estimator->cells, *outcomes};
    return cuda_launch(estimator->device, stream_of(estimator, stream), step_kernel, dim3(1),
                       STEP_THREADS, task, "the estimator's step");
}

extern "C" int tt_cuda_estimator_allocate(tt_cuda_estimator *estimator,
                                          const struct tt_cuda_drafts *drafts, void *stream)
{
    if (!estimator || !drafts) return TT_EINVAL;
    if (drafts->rows > estimator->max_rows) return TT_ELIMIT;
    if (!drafts->budget ||
        (drafts->rows > 0 && (!drafts->feature || !drafts->drafted || !drafts->admitted)))
        return TT_EINVAL;
    const struct estimator_allocate_task task = {estimator->estimator, estimator->counts,
                                                 estimator->survival, *drafts};
    const cudaStream_t on = stream_of(estimator, stream);
    const unsigned blocks = (unsigned)((drafts->rows + PREDICT_THREADS - 1) / PREDICT_THREADS);
    int status = TT_OK;
    if (blocks > 0)
        status = cuda_launch(estimator->device, on, predict_kernel, dim3(blocks), PREDICT_THREADS,
                             task, "predicting acceptance");
    if (status) return status;
    return cuda_launch(estimator->device, on, allocate_kernel, dim3(1), ALLOCATE_THREADS, task,
                       "allocating the budget");
}
