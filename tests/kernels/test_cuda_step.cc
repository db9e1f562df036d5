// test_cuda_step.cc - trimtab_cuda.h for rows and ragged steps: the bits of the synchronous calls
// on the CPU, no allocation and no wait inside, a graph captured once and replayed, refusals, and
// what becomes of a handle whose device fails. Runs against the shim, and against a device. TAP.
#include "config.h"

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
extern "C" {
#include "tests/kernels/row_kinds.h"
}

static int count, failed;

static void report(bool fine, const char *what)
{
    failed += !fine;
    std::printf("%s %d - %s\n", fine ? "ok" : "not ok", ++count, what);
}

// An array on the device, filled from the host.
template <typename T> class device_array
{
  public:
    explicit device_array(const std::vector<T> &from) : size(from.size())
    {
        if (cudaMalloc(&data, size * sizeof(T)) != cudaSuccess) std::abort();
        put(from);
    }
    device_array(const device_array &) = delete;
    ~device_array() { cudaFree(data); }

    T *at() const { return static_cast<T *>(data); }
    void put(const std::vector<T> &from)
    {
        cudaMemcpy(data, from.data(), size * sizeof(T), cudaMemcpyHostToDevice);
    }
    std::vector<T> get() const
    {
        std::vector<T> to(size);
        cudaMemcpy(to.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost);
        return to;
    }

  private:
    void *data = nullptr;
    size_t size;
};

#ifdef SHIM_THREADS // dear: every thread of a block is one
enum { REQUESTS = 6, POSITIONS = 2, VOCAB = 4200 };
#else
enum { REQUESTS = 9, POSITIONS = 4, VOCAB = 9000 };
#endif
enum { DRAFT_VOCAB = VOCAB - 100, STRIDE = VOCAB + 4 };

// A ragged step: every rule, every length, padding, transforms, a flagged row, a bad request.
struct world {
    std::vector<float> target, draft, temperature;
    std::vector<int32_t> rule, tokens, admitted;
    std::vector<uint64_t> key, index;
    std::vector<tt_logit_bias> bias;
    std::vector<tt_token_count> counts;
};

static world world_new()
{
    world w;
    w.target.assign(static_cast<size_t>(REQUESTS) * (POSITIONS + 1) * STRIDE, NAN);
    w.draft.assign(static_cast<size_t>(REQUESTS) * POSITIONS * STRIDE, NAN);
    for (uint32_t i = 0; i < REQUESTS * (POSITIONS + 1); i++)
        row_fill(&w.target[static_cast<size_t>(i) * STRIDE], VOCAB,
                 i == 12 ? ROW_NAN_LAST : ROW_NORMAL, i + 1);
    for (uint32_t i = 0; i < REQUESTS * POSITIONS; i++)
        row_fill(&w.draft[static_cast<size_t>(i) * STRIDE], DRAFT_VOCAB, ROW_NORMAL, i + 1);
    for (int r = 0; r < REQUESTS; r++) {
        w.rule.push_back(r % 4);
        w.admitted.push_back(r % (POSITIONS + 1));
        w.temperature.push_back(r % 4 == TT_GREEDY ? 0.0f : 0.9f);
        w.key.push_back(1000 + static_cast<uint64_t>(r));
        w.index.push_back(static_cast<uint64_t>(r) * 10);
        for (int k = 0; k < POSITIONS; k++) {
            const float *row = &w.target[static_cast<size_t>(r * (POSITIONS + 1) + k) * STRIDE];
            int32_t mode = 0;
            for (int32_t i = 1; i < DRAFT_VOCAB; i++) mode = row[i] > row[mode] ? i : mode;
            w.tokens.push_back((r + k) % 3 ? mode : 17 * (r + 1));
        }
    }
    w.tokens[(REQUESTS - 2) * POSITIONS + 1] = -1; // padding inside
    w.tokens[(REQUESTS - 1) * POSITIONS] = VOCAB;  // outside the vocabulary
    w.bias = {{3, 1.0f}, {5, -1.0f}, {3, 0.5f}};
    w.counts = {{7, 2}, {11, 1}};
    return w;
}

static tt_transform transform_of(const world &w, int r, const tt_logit_bias *bias,
                                 const tt_token_count *counts)
{
    tt_transform t = {};
    t.temperature = w.temperature[static_cast<size_t>(r)];
    t.top_p = r % 2 ? 0.95f : 1.0f;
    t.top_k = r % 3 ? 50 : 0;
    t.min_p = r % 5 == 4 ? 0.01f : 0.0f;
    t.presence_penalty = r % 2 ? 0.3f : 0.0f;
    t.bias = bias;
    t.bias_count = w.bias.size();
    t.counts = counts;
    t.counts_count = w.counts.size();
    return t;
}

// The same blocks one by one on the CPU; the target rows as they are left.
static std::vector<tt_verdict> verdicts_of_cpu(world &w, bool transforms)
{
    std::vector<tt_verdict> verdicts(REQUESTS);
    tt_options options = {};
    tt *handle;
    options.backend = "cpu";
    options.vocab = VOCAB;
    options.max_rows = 1;
    if (tt_open(&handle, &options) != TT_OK) std::abort();
    for (int r = 0; r < REQUESTS; r++) {
        const size_t i = static_cast<size_t>(r);
        const tt_transform t = transform_of(w, r, w.bias.data(), w.counts.data());
        tt_block block = {};
        block.rule = static_cast<tt_rule>(w.rule[i]);
        block.target = &w.target[i * (POSITIONS + 1) * STRIDE];
        block.target_stride = STRIDE;
        block.vocab = VOCAB;
        block.draft = &w.draft[i * POSITIONS * STRIDE];
        block.draft_stride = STRIDE;
        block.draft_vocab = DRAFT_VOCAB;
        block.tokens = &w.tokens[i * POSITIONS];
        block.admitted = w.admitted[i];
        block.temperature = w.temperature[i];
        block.transform = transforms ? &t : nullptr;
        block.key = w.key[i];
        block.token_index = w.index[i];
        if (tt_verify(handle, &block, &verdicts[i]) != TT_OK) {
            std::memset(&verdicts[i], 0, sizeof verdicts[i]);
            verdicts[i].next = -1;
            verdicts[i].flags = TT_REQUEST_REFUSED;
        }
    }
    tt_close(handle);
    return verdicts;
}

// A step on the device with everything it points to.
class device_step
{
  public:
    explicit device_step(const world &w, bool transforms)
        : target(w.target), draft(w.draft), temperature(w.temperature), rule(w.rule),
          tokens(w.tokens), admitted(w.admitted), key(w.key), index(w.index), bias(w.bias),
          counts(w.counts), transform(transforms_of(w)), verdict(std::vector<tt_verdict>(REQUESTS))
    {
        step = tt_cuda_step();
        step.requests = REQUESTS;
        step.positions = POSITIONS;
        step.rule = rule.at();
        step.target = target.at();
        step.target_stride = STRIDE;
        step.vocab = VOCAB;
        step.draft = draft.at();
        step.draft_stride = STRIDE;
        step.draft_vocab = DRAFT_VOCAB;
        step.tokens = tokens.at();
        step.admitted = admitted.at();
        step.temperature = temperature.at();
        step.key = key.at();
        step.token_index = index.at();
        step.transform = transforms ? transform.at() : nullptr;
        step.verdict = verdict.at();
    }

    tt_cuda_step step;
    device_array<float> target, draft, temperature;
    device_array<int32_t> rule, tokens, admitted;
    device_array<uint64_t> key, index;
    device_array<tt_logit_bias> bias;
    device_array<tt_token_count> counts;
    device_array<tt_transform> transform;
    device_array<tt_verdict> verdict;

  private:
    std::vector<tt_transform> transforms_of(const world &w) const
    {
        std::vector<tt_transform> list;
        for (int r = 0; r < REQUESTS; r++)
            list.push_back(transform_of(w, r, bias.at(), counts.at()));
        return list;
    }
};

static bool same_verdicts(const std::vector<tt_verdict> &a, const std::vector<tt_verdict> &b)
{
    for (size_t r = 0; r < a.size(); r++)
        if (std::memcmp(&a[r], &b[r], sizeof a[r]) != 0) {
            std::printf("# request %zu: accepted %d, next %d, flags %u; expected %d, %d, %u\n", r,
                        a[r].accepted, a[r].next, a[r].flags, b[r].accepted, b[r].next, b[r].flags);
            return false;
        }
    return true;
}

static tt *device_handle()
{
    tt_options options = {};
    tt *handle = nullptr;
    options.backend = "cuda";
    options.vocab = VOCAB;
    options.max_rows = REQUESTS * (POSITIONS + 1);
    return tt_open(&handle, &options) == TT_OK ? handle : nullptr;
}

static void check_step(tt *handle, bool transforms)
{
    world w = world_new();
    device_step device(w, transforms);
    const std::vector<tt_verdict> want = verdicts_of_cpu(w, transforms);
#ifdef LANE_SHIM
    const shim_counters before = shim_count();
#endif
    bool fine = tt_cuda_verify(handle, &device.step, nullptr) == TT_OK;
#ifdef LANE_SHIM
    const shim_counters after = shim_count();
    report(after.allocations == before.allocations && after.copies == before.copies &&
               after.synchronisations == before.synchronisations &&
               after.launches - before.launches == (transforms ? 5 : 4),
           "a step allocates nothing, copies nothing, waits for nothing, in few launches");
#endif
    fine = fine && cudaDeviceSynchronize() == cudaSuccess;
    report(fine && same_verdicts(device.verdict.get(), want),
           transforms ? "verdicts of a transformed ragged step" : "verdicts of a ragged step");
}

// Captured once, replayed with other contents: what a step changes lies in device memory alone.
[[maybe_unused]] static void check_graph(tt *handle)
{
    world first = world_new(), second = world_new();
    device_step device(first, false);
    cudaStream_t stream;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    bool fine = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
                cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    fine = fine && tt_cuda_verify(handle, &device.step, stream) == TT_OK;
    fine = fine && cudaStreamEndCapture(stream, &graph) == cudaSuccess &&
           cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess;
    for (size_t r = 0; r < REQUESTS; r++) {
        second.admitted[r] = static_cast<int32_t>((r + 2) % (POSITIONS + 1));
        second.key[r] += 5;
        second.rule[r] = static_cast<int32_t>((r + 1) % 4);
        second.temperature[r] = second.rule[r] == TT_GREEDY ? 0.0f : 1.1f;
    }
    for (world *w : {&first, &second, &first}) {
        device.target.put(w->target);
        device.admitted.put(w->admitted);
        device.key.put(w->key);
        device.rule.put(w->rule);
        device.temperature.put(w->temperature);
        world scratch = *w;
        const std::vector<tt_verdict> want = verdicts_of_cpu(scratch, false);
        fine = fine && cudaGraphLaunch(exec, stream) == cudaSuccess &&
               cudaStreamSynchronize(stream) == cudaSuccess &&
               same_verdicts(device.verdict.get(), want);
    }
    report(fine, "a captured step, replayed with other rules, lengths and streams");
    if (exec) cudaGraphExecDestroy(exec);
    if (graph) cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
}

// Batched statistics, features and draws against one row after another on the CPU.
static void check_rows(tt *handle)
{
    enum { ROWS = 6 };
    const world w = world_new();
    const std::vector<float> scales = {1.0f, 0.5f, 2.0f, 1.0f / 0.7f, 1.0f, 1.0f};
    const std::vector<uint64_t> key(w.key.begin(), w.key.begin() + ROWS),
        index(w.index.begin(), w.index.begin() + ROWS);
    std::vector<float> data(w.target.begin() + 8 * STRIDE, w.target.begin() + 14 * STRIDE);
    device_array<float> rows(data), scale(scales), feature(std::vector<float>(ROWS, -1.0f));
    device_array<uint64_t> keys(key), indices(index);
    device_array<int32_t> drawn(std::vector<int32_t>(ROWS, -7)), raced(drawn.get());
    device_array<tt_row_stats> stats((std::vector<tt_row_stats>(ROWS)));
    const tt_cuda_rows batch = {rows.at(), TT_F32, ROWS, VOCAB, STRIDE, scale.at()};
    const tt_cuda_sites sites = {keys.at(), indices.at(), nullptr, TT_DRAFT};
    tt_options options = {};
    tt *cpu;
    options.backend = "cpu";
    options.vocab = VOCAB;
    options.max_rows = 1;
    if (tt_open(&cpu, &options) != TT_OK) std::abort();
    bool fine = tt_cuda_sample(handle, &batch, &sites, drawn.at(), stats.at(), feature.at(), 3.0f,
                               nullptr) == TT_OK &&
                tt_cuda_sample_coupled(handle, &batch, &sites, raced.at(), nullptr, nullptr, 0.0f,
                                       nullptr) == TT_OK &&
                cudaDeviceSynchronize() == cudaSuccess;
    const std::vector<int32_t> tokens = drawn.get(), winners = raced.get();
    const std::vector<float> features = feature.get();
    const std::vector<tt_row_stats> measured = stats.get();
    for (size_t r = 0; fine && r < ROWS; r++) {
        const tt_rows row = {&data[r * STRIDE], TT_F32, 1, VOCAB, STRIDE};
        tt_row_stats want;
        int32_t token = -1, winner = -1;
        if (tt_row_statistics(cpu, &row, &scales[r], &want) != TT_OK) std::abort();
        (void)!tt_sample(cpu, &row, scales[r], &want, key[r], index[r], 0, TT_DRAFT, &token);
        (void)!tt_sample_coupled(cpu, &row, scales[r], key[r], index[r], &winner);
        const float clamped = tt_feature(&want, 3.0f);
        fine = tokens[r] == token && winners[r] == winner && measured[r].flags == want.flags &&
               (want.flags
                    ? std::isnan(features[r])
                    : features[r] == clamped && std::memcmp(&measured[r], &want, sizeof want) == 0);
    }
    report(fine, "batched statistics, features and draws");
    tt_close(cpu);
}

// The synchronous calls take device rows where they lie.
[[maybe_unused]] static void check_device_rows(tt *handle)
{
    world w = world_new();
    device_array<float> target(w.target);
    std::vector<tt_verdict> verdict(2);
    const std::vector<float> kept = w.target;
    const tt_transform t = transform_of(w, 1, w.bias.data(), w.counts.data());
    tt_block block = {};
    block.rule = TT_POINT_MASS;
    block.target_stride = STRIDE;
    block.vocab = VOCAB;
    block.tokens = &w.tokens[0];
    block.admitted = POSITIONS;
    block.temperature = 0.9f;
    block.transform = &t;
    block.key = 5;
    block.target = w.target.data();
    bool fine = tt_verify(handle, &block, &verdict[0]) == TT_OK;
    block.target = target.at();
    fine = fine && tt_verify(handle, &block, &verdict[1]) == TT_OK &&
           std::memcmp(&verdict[0], &verdict[1], sizeof verdict[0]) == 0;
    report(fine && std::memcmp(target.get().data(), w.target.data(),
                               w.target.size() * sizeof(float)) == 0,
           "device rows: the reached ones are transformed, as on the host");
    const size_t beyond = static_cast<size_t>(verdict[0].accepted + 1) * STRIDE;
    report(std::memcmp(&kept[beyond], &w.target[beyond], (kept.size() - beyond) * sizeof(float)) ==
               0,
           "rows that were not reached stay as they were");
    tt_row_stats stats[2];
    int32_t token[2] = {-1, -2};
    const tt_rows host = {w.target.data(), TT_F32, 1, VOCAB, STRIDE};
    const tt_rows there = {target.at(), TT_F32, 1, VOCAB, STRIDE};
    fine = tt_row_statistics(handle, &host, nullptr, &stats[0]) == TT_OK &&
           tt_sample(handle, &host, 1.0f, &stats[0], 3, 4, 0, TT_BONUS, &token[0]) == TT_OK &&
           tt_row_statistics(handle, &there, nullptr, &stats[1]) == TT_OK &&
           tt_sample(handle, &there, 1.0f, &stats[1], 3, 4, 0, TT_BONUS, &token[1]) == TT_OK;
    report(fine && token[0] == token[1] && std::memcmp(&stats[0], &stats[1], sizeof stats[0]) == 0,
           "statistics and draws of device rows");
}

static void check_refusals(tt *handle)
{
    const world w = world_new();
    device_step device(w, false);
    tt_cuda_step step = device.step;
    tt_options options = {};
    tt *cpu;
    options.backend = "cpu";
    options.vocab = 4;
    options.max_rows = 1;
    if (tt_open(&cpu, &options) != TT_OK) std::abort();
    bool fine = tt_cuda_verify(cpu, &step, nullptr) == TT_ENOTSUP &&
                std::strstr(tt_message(cpu), "backend cuda") != nullptr;
    tt_close(cpu);
    fine = fine && tt_cuda_verify(nullptr, &step, nullptr) == TT_EINVAL;
    fine = fine && tt_cuda_verify(handle, nullptr, nullptr) == TT_EINVAL;
    step.requests = REQUESTS * (POSITIONS + 1) + 1;
    fine = fine && tt_cuda_verify(handle, &step, nullptr) == TT_ELIMIT;
    step = device.step;
    step.positions = TT_MAX_POSITIONS + 1;
    fine = fine && tt_cuda_verify(handle, &step, nullptr) == TT_ELIMIT;
    step = device.step;
    step.vocab = VOCAB + 1;
    fine = fine && tt_cuda_verify(handle, &step, nullptr) == TT_ELIMIT;
    step = device.step;
    step.target_stride = VOCAB - 1;
    fine = fine && tt_cuda_verify(handle, &step, nullptr) == TT_EINVAL;
    step = device.step;
    step.draft = nullptr;
    fine = fine && tt_cuda_verify(handle, &step, nullptr) == TT_EINVAL;
    step = device.step;
    step.verdict = nullptr;
    fine = fine && tt_cuda_verify(handle, &step, nullptr) == TT_EINVAL;
    step = device.step;
    step.rules = 16;
    fine = fine && tt_cuda_verify(handle, &step, nullptr) == TT_EINVAL;
    step = device.step;
    step.requests = 0;
    fine = fine && tt_cuda_verify(handle, &step, nullptr) == TT_OK;
    fine = fine && tt_cuda_transform(handle, &device.step, nullptr) == TT_EINVAL;
    const tt_cuda_rows rows = {device.target.at(), TT_F32, 2, VOCAB, VOCAB - 1, nullptr};
    fine =
        fine && tt_cuda_row_statistics(handle, &rows, nullptr, nullptr, 0.0f, nullptr) == TT_EINVAL;
    report(fine, "what cannot be is refused, with a status");
}

#ifndef SHIM_THREADS
static void check_all(tt *handle)
{
    check_step(handle, false);
    check_step(handle, true);
    check_graph(handle);
    check_rows(handle);
    check_device_rows(handle);
}
#endif

#if defined(LANE_SHIM) && !defined(SHIM_THREADS)
// Whichever call of the runtime fails: open gives no handle; a step gives a status, the handle
// stays shut and can be closed; nothing leaks.
static void check_faults()
{
    const uint64_t live = shim_count().live_bytes;
    unsigned failures = 0;
    bool fine = true;
    for (;; failures++) {
        shim_fail(failures + 1);
        tt *handle = device_handle();
        (void)shim_fail(0);
        if (handle) {
            tt_close(handle);
            break;
        }
        fine = fine && tt_message(nullptr)[0] != '\0' && shim_count().live_bytes == live;
    }
    report(fine && failures >= 20 && shim_count().live_bytes == live,
           "whichever call fails, an open says so and leaves nothing");

    const std::vector<float> row(VOCAB, 1.0f);
    const tt_rows rows = {row.data(), TT_F32, 1, VOCAB, VOCAB};
    tt_row_stats stats;
    fine = true;
    for (unsigned n = 1; n <= 5; n++) {
        tt *handle = device_handle();
        shim_fail(n);
        const int status = tt_row_statistics(handle, &rows, nullptr, &stats);
        const bool struck = shim_fail(0) == 0;
        // What only asks where a pointer lies may fail without harm.
        if (struck && status != TT_OK)
            fine = fine && tt_message(handle)[0] != '\0' &&
                   tt_row_statistics(handle, &rows, nullptr, &stats) == status;
        tt_close(handle);
    }
    report(fine && shim_count().live_bytes == live, "a failed device stays failed, and closes");
}
#endif

#ifdef LANE_SHIM
// What the seeded faults must spoil: steps and draws, in every order of the threads.
static int run_seeded(const char *seed)
{
    const enum shim_seed kind = !std::strcmp(seed, "race")      ? SHIM_RACE
                                : !std::strcmp(seed, "barrier") ? SHIM_NO_BARRIER
                                : !std::strcmp(seed, "memory")  ? SHIM_SHORT_MEMORY
                                                                : SHIM_SOUND;
    const char *site = std::getenv("SHIM_SITE");
    shim_seed(kind, site ? static_cast<unsigned>(std::atoi(site)) : 0);
#ifdef SHIM_THREADS
    const uint32_t orders = 1;
#else
    const uint32_t orders = 4;
#endif
    for (uint32_t order = 0; order < orders && failed == 0; order++) {
        tt *handle = device_handle();
        if (!handle) return EXIT_FAILURE;
        shim_set_order(order);
        check_step(handle, true);
        check_rows(handle);
        tt_close(handle);
    }
    std::printf("# %u places with a barrier\n", shim_barrier_sites());
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
#endif

int main(int argc, char **argv)
{
#ifdef LANE_SHIM
    if (argc == 3 && !std::strcmp(argv[1], "--seed")) return run_seeded(argv[2]);
#endif
    (void)argc;
    (void)argv;
    tt *handle = device_handle();
    if (!handle) {
        std::printf("1..0 # SKIP %s\n", tt_message(nullptr));
        return EXIT_SUCCESS;
    }
#ifdef SHIM_THREADS // dear: what meets every kernel
    std::printf("1..4\n");
    check_step(handle, true);
    check_rows(handle);
#else
#ifdef LANE_SHIM
    std::printf("1..30\n");
    for (const uint32_t order : {0u, 1u, 4711u}) {
        shim_set_order(order);
        check_all(handle);
    }
#else
    std::printf("1..8\n");
    check_all(handle);
#endif
#endif
    check_refusals(handle);
    tt_close(handle);
#if defined(LANE_SHIM) && !defined(SHIM_THREADS)
    check_faults();
#endif
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
