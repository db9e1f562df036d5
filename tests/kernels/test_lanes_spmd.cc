// test_lanes_spmd.cc - the SPMD flavour of the row bodies gives the bits of the loop flavour,
// without a GPU.
//
// The text that nvcc compiles is compiled here against warp_shim.h and run as a warp of fibres in
// several thread orders; partials of chunks and the arrivals of races must equal those of the CPU
// objects bit for bit. TAP.
#include "config.h"

#include "tests/kernels/warp_shim.h"

#include "kernels/race_body.h"

#include <cstdio>
#include <cstdlib>

extern "C" {
#include "tests/kernels/row_kinds.h"
#include "tests/kernels/spmd_reference.h"
}

static int count, failed;

static void report(bool fine, const char *what)
{
    failed += !fine;
    std::printf("%s %d - %s\n", fine ? "ok" : "not ok", ++count, what);
}

static row_partial partial_of_warp(const float *row, size_t from, size_t end, float scale,
                                   uint32_t order)
{
    row_partial partial[warp::THREADS];
    warp::run([&](unsigned t) { partial[t] = chunk_losers(row, ROW_F32, from, end, row_ahead{}, scale); },
              order);
    for (unsigned t = 1; t < warp::THREADS; t++)
        if (std::memcmp(&partial[t], &partial[0], sizeof partial[0]) != 0 &&
            partial[0].rest == partial[0].rest)
            partial[0].max = -1234.5f; // threads disagree: no reference has this
    return partial[0];
}

static bool same(const row_partial &a, const row_partial &b)
{
    if (a.rest != a.rest || b.rest != b.rest) return a.rest != a.rest && b.rest != b.rest;
    // The sign of a zero maximum depends on the order in which equal zeros meet; nothing is
    // computed from it.
    if (a.max == 0.0f && b.max == 0.0f) return std::memcmp(&a.rest, &b.rest, sizeof a.rest) == 0;
    return std::memcmp(&a, &b, sizeof a) == 0;
}

static void check_chunks()
{
    static const size_t sizes[] = {1, 2, 31, 32, 127, 128, 129, 1000, 4095, 4096};
    static float row[4096];
    bool fine = true, together = true;
    for (size_t size : sizes)
        for (int kind = 0; kind < ROW_KINDS; kind++)
            for (uint32_t order = 0; order < 3; order++) {
                row_fill(row, size, static_cast<row_kind>(kind), 7);
                const row_partial got = partial_of_warp(row, 0, size, 1.25f, order);
                together = together && warp::divergent == 0;
                fine = fine && same(got, reference_partial(row, 0, size, 1.25f));
            }
    report(fine, "partials of a warp are those of the CPU");
    report(together, "every exchange is taken by the whole warp");
}

static void check_races()
{
    bool fine = true;
    for (uint32_t group = 0; group < 40; group++) {
        float want[ROW_GROUP], got[ROW_GROUP];
        uint32_t word, place;
        race_first(99, 5, group, &word, &place);
        const float first = race_first_arrival(word);
        reference_arrivals(99, 5, group, first, place, want);
        warp::run(
            [&](unsigned t) {
                float own[LANE_WIDTH];
                race_expand(99, 5, group, first, place, own);
                for (int j = 0; j < LANE_WIDTH; j++)
                    got[LANE_WIDTH * t + static_cast<unsigned>(j)] = own[j];
            },
            group % 3);
        fine = fine && std::memcmp(want, got, sizeof want) == 0;
    }
    report(fine, "arrivals of a warp are those of the CPU");
}

// The shim itself: an exchange that one thread skips must not go unnoticed.
static void check_divergence()
{
    warp::run(
        [](unsigned t) {
            float value = static_cast<float>(t);
            if (t != 17) value = warp::exchange(value, 1);
            (void)value;
        },
        0);
    report(warp::divergent > 0, "a missing thread in an exchange is noticed");
}

int main()
{
    std::printf("1..4\n");
    check_chunks();
    check_races();
    check_divergence();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
