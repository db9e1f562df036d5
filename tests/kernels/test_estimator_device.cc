// test_estimator_device.cc - the estimator and the allocation on a device against the CPU's, bit by
// bit: the blob after every stretch of a stream, the bits of every step, every prediction, survival
// and admitted length. TAP. Runs against the shim, where the threads of a block run in several
// orders, and against a device.
#include "config.h"

#include "kernels/estimator_handle.h"
#include "kernels/trimtab_cuda.h"

#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#ifdef LANE_SHIM
#include "tests/kernels/shim/shim.h"
#endif

#ifdef SHIM_THREADS // dear: every thread of a block is one
static const bool threads_are_real = true;
#else
static const bool threads_are_real = false;
#endif

static int count, failed;

static void report(bool fine, const char *what, int kind, int positions, int rows, unsigned order)
{
    failed += !fine;
    std::printf("%s %d - %s (%s, %d positions, %d requests, order %u)\n", fine ? "ok" : "not ok",
                ++count, what, kind == TT_PARITY ? "parity" : "online", positions, rows, order);
}

static tt *handle;

static void set_order(uint32_t order)
{
#ifdef LANE_SHIM
    shim_set_order(order);
#else
    (void)order;
#endif
}

// Copies wait for everything that was enqueued before.
static bool send(const void *to, const void *from, size_t bytes)
{
    return cudaDeviceSynchronize() == cudaSuccess &&
           cudaMemcpy(const_cast<void *>(to), from, bytes, cudaMemcpyHostToDevice) == cudaSuccess;
}

static bool receive(void *to, const void *from, size_t bytes)
{
    return cudaDeviceSynchronize() == cudaSuccess &&
           cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
}

// splitmix64 (Steele, Lea, Flood 2014).
static uint64_t generator;
static double uniform()
{
    uint64_t z = generator += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return static_cast<double>((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static int below(int n)
{
    return static_cast<int>(uniform() * n);
}

// One step's numbers on the host, and where they lie on the device.
struct batch {
    int rows, positions;
    std::vector<float> feature, predicted;
    std::vector<int32_t> admitted, drafted;
    std::vector<tt_verdict> verdict;
    int64_t budget;

    struct tt_cuda_outcomes outcomes;
    struct tt_cuda_drafts drafts;
    bool fine;

    batch(int rows_, int positions_);
    batch(const batch &) = delete;
    ~batch()
    {
        for (void *placed : memory) (void)cudaFree(placed);
    }
    void draw(double level, bool hostile);
    void upload();

  private:
    size_t cells() const { return static_cast<size_t>(rows) * static_cast<size_t>(positions); }
    std::vector<void *> memory;
    template <typename T> T *place(size_t n)
    {
        void *placed = nullptr;
        fine = fine && cudaMalloc(&placed, n * sizeof(T)) == cudaSuccess;
        memory.push_back(placed);
        return static_cast<T *>(placed);
    }
    template <typename T> void put(const T *to, const std::vector<T> &from)
    {
        fine = fine && send(to, from.data(), from.size() * sizeof(T));
    }
};

batch::batch(int rows_, int positions_)
    : rows(rows_), positions(positions_), feature(cells()), predicted(cells()), admitted(rows),
      drafted(rows), verdict(rows), budget(0), outcomes(), drafts(), fine(true)
{
    const size_t r = static_cast<size_t>(rows), k = static_cast<size_t>(positions);
    outcomes.rows = drafts.rows = r;
    outcomes.feature = drafts.feature = place<float>(cells());
    outcomes.feature_stride = outcomes.predicted_stride = drafts.feature_stride =
        drafts.predicted_stride = drafts.survival_stride = k;
    outcomes.predicted = drafts.predicted = place<float>(cells());
    outcomes.admitted = drafts.admitted = place<int32_t>(r);
    outcomes.verdict = place<tt_verdict>(r);
    outcomes.step_bits = place<int32_t>(1);
    drafts.drafted = place<int32_t>(r);
    drafts.budget = place<int64_t>(1);
    drafts.total = place<int32_t>(1);
    drafts.survival = place<double>(cells());
}

void batch::draw(double level, bool hostile)
{
    for (size_t r = 0; r < verdict.size(); r++) {
        float *f = &feature[r * static_cast<size_t>(positions)];
        float *p = &predicted[r * static_cast<size_t>(positions)];
        for (int k = 0; k < positions; k++) {
            f[k] = static_cast<float>(7.0 * uniform() - 2.0);
            p[k] = uniform() < 0.2 ? NAN : static_cast<float>(uniform());
            if (hostile && uniform() < 0.05) f[k] = uniform() < 0.5 ? NAN : INFINITY;
        }
        std::memset(&verdict[r], 0, sizeof verdict[r]);
        admitted[r] = below(positions + 1);
        drafted[r] = below(positions + 1);
        int accepted = 0;
        for (int k = 0; k < admitted[r]; k++) {
            const double truth = 1.0 / (1.0 + std::exp(-0.6 * f[k] - level));
            verdict[r].soft[k] = static_cast<float>(truth >= 0.0 ? truth : 0.5);
            if (accepted == k && uniform() < truth) accepted++;
        }
        verdict[r].accepted = accepted;
        verdict[r].labels = accepted < admitted[r] ? accepted + 1 : admitted[r];
        if (!hostile) continue;
        if (uniform() < 0.1) verdict[r].labels = accepted; // the block ended at a flagged row
        if (uniform() < 0.05) verdict[r].accepted = -1;
        if (uniform() < 0.05) verdict[r].soft[0] = 1.5f;
        if (uniform() < 0.05) admitted[r] = positions + 1;
    }
    budget = below(rows * positions + 2);
}

void batch::upload()
{
    put(outcomes.feature, feature);
    put(outcomes.predicted, predicted);
    put(outcomes.admitted, admitted);
    put(outcomes.verdict, verdict);
    put(drafts.drafted, drafted);
    fine = fine && send(drafts.budget, &budget, sizeof budget);
}

static tt_estimator *estimator_new(int kind, int positions)
{
    struct tt_estimator_options options = {};
    options.kind = static_cast<enum tt_estimator_kind>(kind);
    options.positions = positions;
    options.refit_interval_steps = threads_are_real ? 3 : kind == TT_PARITY ? 10 : 0;
    options.prior_slope = options.prior_level = NAN;
    tt_estimator *estimator = nullptr;
    if (tt_estimator_new(&estimator, &options) != TT_OK) std::abort();
    return estimator;
}

static std::vector<unsigned char> blob_of(const tt_estimator *estimator)
{
    size_t size = 0;
    if (tt_estimator_save(estimator, nullptr, 0, &size) != TT_OK) std::abort();
    std::vector<unsigned char> blob(size);
    if (tt_estimator_save(estimator, blob.data(), size, nullptr) != TT_OK) std::abort();
    return blob;
}

// The CPU's answer to one step. Returns the bits; *refused counts rows it would not take.
static int cpu_step(tt_estimator *estimator, const batch &batch, uint64_t *refused)
{
    for (size_t r = 0; r < batch.verdict.size(); r++) {
        const struct tt_verdict *verdict = &batch.verdict[r];
        struct tt_observation observation = {};
        observation.feature = &batch.feature[r * static_cast<size_t>(batch.positions)];
        observation.predicted = &batch.predicted[r * static_cast<size_t>(batch.positions)];
        observation.soft = verdict->soft;
        observation.admitted = batch.admitted[r];
        observation.accepted = verdict->accepted;
        if (verdict->labels <= verdict->accepted) observation.admitted = verdict->accepted;
        *refused += tt_estimator_observe(estimator, &observation) != TT_OK;
    }
    return tt_estimator_end_step(estimator);
}

static bool same_state(tt_cuda_estimator *on_device, const tt_estimator *host, uint64_t refused)
{
    struct tt_cuda_estimator_counts counts;
    tt_estimator *read = estimator_new(host->kind, host->positions);
    bool same = tt_cuda_estimator_read(on_device, read, &counts, nullptr) == TT_OK &&
                counts.refused_rows == refused && blob_of(read) == blob_of(host);
    tt_estimator_free(read);
    return same;
}

// Predictions, survivals and admissions of the device against the CPU's.
static bool same_allocation(const tt_estimator *host, const batch &batch)
{
    const size_t width = static_cast<size_t>(batch.positions), cells = batch.feature.size();
    std::vector<double> survival(cells), read_survival(cells);
    std::vector<float> read_predicted(cells);
    std::vector<int32_t> admitted(batch.drafted.size()), read_admitted(batch.drafted.size());
    int32_t total = -1;
    bool same = receive(read_survival.data(), batch.drafts.survival, cells * 8) &&
                receive(read_predicted.data(), batch.drafts.predicted, cells * 4) &&
                receive(read_admitted.data(), batch.drafts.admitted, read_admitted.size() * 4) &&
                receive(&total, batch.drafts.total, 4);
    for (size_t r = 0; r < batch.drafted.size(); r++) {
        double p[TT_MAX_POSITIONS] = {0};
        for (int32_t k = 0; k < batch.drafted[r]; k++) {
            const size_t i = r * width + static_cast<size_t>(k);
            if (tt_estimator_predict(host, k, &batch.feature[i], 1, &p[k]) != TT_OK) return false;
            same = same && read_predicted[i] == static_cast<float>(p[k]);
        }
        if (tt_survival(p, width, &survival[r * width]) != TT_OK) return false;
        same = same && std::memcmp(&survival[r * width], &read_survival[r * width],
                                   static_cast<size_t>(batch.drafted[r]) * 8) == 0;
    }
    const int admitted_total = tt_allocate(survival.data(), batch.drafted.size(), width,
                                           batch.drafted.data(), batch.budget, admitted.data());
    return same && total == admitted_total && admitted == read_admitted;
}

// One stream through both: the level jumps halfway, so that the drift alarm is among the decisions.
static void check_stream(int kind, int positions, int rows, int steps, bool hostile, uint32_t order)
{
    tt_estimator *host = estimator_new(kind, positions);
    tt_cuda_estimator *on_device = nullptr;
    uint64_t refused = 0;
    int alarms = 0;
    bool states = true, bits = true, allocations = true;
    generator = 99 + static_cast<uint64_t>(positions);
    set_order(order);
    batch batch(rows, positions);
    bool fine = tt_cuda_estimator_new(handle, host, static_cast<size_t>(rows), &on_device) == 0;
    for (int t = 0; fine && t < steps; t++) {
        int32_t step_bits = -1;
        batch.draw(t < 2 * steps / 3 ? 0.4 : -1.6, hostile);
        batch.upload();
        fine = batch.fine && tt_cuda_estimator_step(on_device, &batch.outcomes, nullptr) == 0 &&
               tt_cuda_estimator_allocate(on_device, &batch.drafts, nullptr) == 0 &&
               receive(&step_bits, batch.outcomes.step_bits, 4);
        const int expected = cpu_step(host, batch, &refused);
        alarms += (expected & TT_STEP_DRIFT) != 0;
        bits = bits && step_bits == expected;
        allocations = allocations && same_allocation(host, batch);
        if (t % 7 == 0 || t == steps - 1) states = states && same_state(on_device, host, refused);
    }
    report(fine && states, "the state has the CPU's bits", kind, positions, rows, order);
    report(fine && bits, "every step's outcome too", kind, positions, rows, order);
    report(fine && allocations, "predictions, survivals and admissions too", kind, positions, rows,
           order);
    if (kind == TT_ONLINE && rows > 8 && steps > 300)
        report(alarms > 0, "the stream holds a drift alarm", kind, positions, rows, order);
    tt_cuda_estimator_free(on_device);
    tt_estimator_free(host);
}

// Where the growing unit of the calibration's sums is divided out again.
static void check_rescale()
{
    enum { POSITIONS = 3, ROWS = 4 };
    tt_estimator *host = estimator_new(TT_ONLINE, POSITIONS);
    tt_cuda_estimator *on_device = nullptr;
    uint64_t refused = 0;
    bool passed = false;
    batch batch(ROWS, POSITIONS);
    host->calibration.unit = 0.999e9;
    bool fine = tt_cuda_estimator_new(handle, host, ROWS, &on_device) == 0;
    for (int t = 0; fine && t < 3; t++) {
        batch.draw(0.0, false);
        batch.upload();
        fine = batch.fine && tt_cuda_estimator_step(on_device, &batch.outcomes, nullptr) == 0 &&
               cpu_step(host, batch, &refused) >= 0 && same_state(on_device, host, refused);
        passed = passed || host->calibration.unit < 2.0;
    }
    report(fine && passed, "long runs are rescaled alike", TT_ONLINE, POSITIONS, ROWS, 0);
    tt_cuda_estimator_free(on_device);
    tt_estimator_free(host);
}

// A step captured once and replayed over new numbers decides by itself when to refit; nothing but
// three launches was enqueued.
static void check_graph()
{
    enum { POSITIONS = 6, ROWS = 10, STEPS = 70 };
    tt_estimator *host = estimator_new(TT_ONLINE, POSITIONS);
    tt_cuda_estimator *on_device = nullptr;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    uint64_t refused = 0;
    batch batch(ROWS, POSITIONS);
    generator = 5;
    cudaStream_t stream = nullptr;
    bool fine = tt_cuda_estimator_new(handle, host, ROWS, &on_device) == 0 && batch.fine &&
                cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess;
#ifdef LANE_SHIM
    const struct shim_counters before = shim_count();
#endif
    fine = fine && cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess &&
           tt_cuda_estimator_step(on_device, &batch.outcomes, stream) == 0 &&
           tt_cuda_estimator_allocate(on_device, &batch.drafts, stream) == 0;
#ifdef LANE_SHIM
    const struct shim_counters after = shim_count();
    report(fine && after.launches - before.launches <= 3 && after.copies == before.copies &&
               after.synchronisations == before.synchronisations &&
               after.allocations == before.allocations,
           "a step is three launches and nothing else", TT_ONLINE, POSITIONS, ROWS, 0);
#endif
    fine = fine && cudaStreamEndCapture(stream, &graph) == cudaSuccess &&
           cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess;
    for (int t = 0; fine && t < STEPS; t++) {
        batch.draw(0.2, true);
        batch.upload();
        fine = batch.fine && cudaGraphLaunch(exec, stream) == cudaSuccess &&
               cpu_step(host, batch, &refused) >= 0 && same_allocation(host, batch);
    }
    fine = fine && same_state(on_device, host, refused);
    report(fine && host->u.online.refits == STEPS / ONLINE_REFIT_INTERVAL_STEPS,
           "a captured step can be replayed, refits and all", TT_ONLINE, POSITIONS, ROWS, 0);
    (void)cudaGraphExecDestroy(exec);
    (void)cudaGraphDestroy(graph);
    (void)cudaStreamDestroy(stream);
    tt_cuda_estimator_free(on_device);
    tt_estimator_free(host);
}

// What a caller may get wrong, and a budget out of range.
static void check_bad_input()
{
    enum { POSITIONS = 4, ROWS = 3 };
    tt_estimator *host = estimator_new(TT_ONLINE, POSITIONS), *other = estimator_new(TT_PARITY, 4);
    tt_cuda_estimator *on_device = nullptr;
    batch batch(ROWS, POSITIONS);
    batch.draw(0.0, false);
    bool fine = tt_cuda_estimator_new(handle, nullptr, ROWS, &on_device) == TT_EINVAL &&
                tt_cuda_estimator_new(handle, host, 0, &on_device) == TT_EINVAL &&
                tt_cuda_estimator_new(handle, host, SIZE_MAX, &on_device) == TT_ELIMIT &&
                !on_device && tt_cuda_estimator_new(handle, host, ROWS, &on_device) == TT_OK;
    struct tt_cuda_outcomes outcomes = batch.outcomes;
    struct tt_cuda_drafts drafts = batch.drafts;
    outcomes.rows = drafts.rows = ROWS + 1;
    fine = fine && tt_cuda_estimator_step(on_device, &outcomes, nullptr) == TT_ELIMIT &&
           tt_cuda_estimator_allocate(on_device, &drafts, nullptr) == TT_ELIMIT;
    outcomes = batch.outcomes;
    outcomes.admitted = nullptr;
    drafts = batch.drafts;
    drafts.budget = nullptr;
    fine = fine && tt_cuda_estimator_step(on_device, &outcomes, nullptr) == TT_EINVAL &&
           tt_cuda_estimator_allocate(on_device, &drafts, nullptr) == TT_EINVAL &&
           tt_cuda_estimator_read(on_device, other, nullptr, nullptr) == TT_EINVAL &&
           tt_cuda_estimator_write(on_device, other, nullptr) == TT_EINVAL;
    report(fine, "bad arguments are refused", TT_ONLINE, POSITIONS, ROWS, 0);

    struct tt_cuda_estimator_counts counts;
    int32_t admitted[ROWS];
    batch.drafted = {-1, POSITIONS + 1, POSITIONS};
    batch.budget = INT64_MAX;
    batch.upload();
    fine = batch.fine && tt_cuda_estimator_allocate(on_device, &batch.drafts, nullptr) == 0 &&
           receive(admitted, batch.drafts.admitted, sizeof admitted) && admitted[0] == 0 &&
           admitted[1] == 0 && admitted[2] == POSITIONS &&
           tt_cuda_estimator_read(on_device, host, &counts, nullptr) == 0 &&
           counts.refused_rows == 2;
    batch.budget = -5;
    batch.upload();
    fine = fine && batch.fine &&
           tt_cuda_estimator_allocate(on_device, &batch.drafts, nullptr) == 0 &&
           receive(admitted, batch.drafts.admitted, sizeof admitted) && admitted[2] == 0;
    report(fine, "numbers out of range do no harm", TT_ONLINE, POSITIONS, ROWS, 0);
    tt_cuda_estimator_free(on_device);
    tt_estimator_free(other);
    tt_estimator_free(host);
}

int main()
{
    const struct tt_options options = {"cuda", nullptr, 16, 1};
    const uint32_t orders[] = {0, 1, 20261130};
    if (tt_open(&handle, &options) != TT_OK) {
        std::printf("1..0 # SKIP no CUDA device to open\n");
        return 0;
    }
    for (int kind = TT_ONLINE; threads_are_real && kind <= TT_PARITY; kind++)
        check_stream(kind, 3, 5, 8, true, 0);
    for (uint32_t order : orders) {
        for (int kind = TT_ONLINE; !threads_are_real && kind <= TT_PARITY; kind++) {
            check_stream(kind, 6, 37, 330, false, order);
            check_stream(kind, 5, 6, 60, true, order);
            check_stream(kind, 1, 1, 60, false, order);
            check_stream(kind, TT_MAX_POSITIONS, 3, 45, true, order);
        }
    }
    check_stream(TT_ONLINE, 8, 300, threads_are_real ? 2 : 8, true, 0); // more rows than threads
    set_order(0);
    check_rescale();
    if (!threads_are_real) check_graph();
    check_bad_input();
    tt_close(handle);
#ifdef LANE_SHIM
    report(shim_count().live_bytes == 0, "all device memory is freed", TT_ONLINE, 0, 0, 0);
#endif
    std::printf("1..%d\n", count);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
