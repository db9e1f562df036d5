/* record.c - see record.h. */
#include "config.h"

#include <math.h>

#include "controller/record.h"
#include "controller/ticks.h"

static void print_number(FILE *file, double value)
{
    if (isfinite(value))
        fprintf(file, "%.5g", value);
    else
        fputs("null", file);
}

static void print_slot(FILE *file, const struct slot *slot)
{
    fprintf(file,
            "{\"slot\":%d,\"index\":%d,\"stratum\":\"%s\",\"drafted\":%d,\"admitted\":%d,"
            "\"accepted\":%d,\"emitted\":%d,\"feature\":[",
            slot->sequence, slot_emitted(slot) - slot->emitted, strata_name(slot->stratum),
            slot->drafted, slot->admitted, slot->accepted, slot->emitted);
    for (int k = 0; k < slot->drafted; k++) {
        if (k > 0) fputc(',', file);
        print_number(file, slot->feature[k]);
    }
    fputs("],\"predicted\":[", file);
    for (int k = 0; k < slot->drafted; k++) {
        if (k > 0) fputc(',', file);
        print_number(file, slot->predicted[k]);
    }
    fputs("]}", file);
}

void record_step(FILE *file, const struct step *step, const struct slot *slot, int slots)
{
    bool first = true;

    fprintf(file,
            "{\"schema\":\"trimtab.record/"
            "1\",\"step\":%llu,\"time_ms\":%lld,\"decoding\":%d,\"draft_ms\":%.3f,\"verify_ms\":%."
            "3f,\"requests\":[",
            (unsigned long long)step->number, (long long)utc_ms(), step->decoding, step->draft_ms,
            step->verify_ms);
    for (int i = 0; i < slots; i++) {
        if (!slot[i].sampled) continue;
        if (!first) fputc(',', file);
        first = false;
        print_slot(file, &slot[i]);
    }
    fputs("]}\n", file);
}
