/* cost_cells.h - inside of the cost model: its cells and tables, shared by cost.c (learning,
 * prediction) and cost_file.c (cache, trace tables, JSON). Nothing else includes it.
 */
#ifndef CONTROLLER_COST_CELLS_H
#define CONTROLLER_COST_CELLS_H

#include <stdbool.h>
#include <stdint.h>

#include "controller/cost.h"

#define COST_RECENT                                                                                \
    9 /* observations whose median gates the next ones: 5 of them make a new level */
#define COST_MOMENTS 3 /* ratios whose median moves the tempo */

struct cell {
    double ms;        /* forgotten mean of the accepted observations at tempo 1; meaningless while n
                         == 0 */
    double spread_ms; /* median absolute deviation of the recent observations */
    double weight;    /* observations the mean stands for, for its gain */
    int64_t n;        /* accepted observations ever; 0 = not measured */
    int64_t dropped;  /* outliers ever */
    uint64_t stamp;   /* the part's clock at the last observation */
    double base_ms;   /* what it was at pace 1: as loaded, or as first believed; 0 = not yet */
    double pace;      /* of the curve at the last observation */
    double recent[COST_RECENT];
    uint8_t recent_count, recent_next;
    bool changed; /* since the last cost_take_changed */
};

/* One curve: cells 1 .. size, and the curve through the measured ones. */
struct curve {
    int size;
    int first, last; /* smallest and largest measured size; 0 = none */
    uint64_t clock;  /* observations ever */
    double pace;     /* of the machine now against that of base_ms: what stale cells follow */
    double tempo;    /* of now: of the last few observations against the means of their sizes */
    double moment[COST_MOMENTS]; /* the last of these ratios */
    struct cell *cell;           /* (size + 1); [0] is not used */
    double *ms; /* (size + 1) value at every size: measured, or linear between neighbours; NaN when
                   empty */
    double *ratio; /* (size + 1) scratch of the pace */
    double slope;  /* ms per unit beyond `last`; never negative */
};

struct cost_model {
    char unsteady[96]; /* why it is thought to be measured on a busy machine; empty = it is not */
    struct curve verify[COST_CONTEXT_BANDS];
    struct curve draft, own;
    int base; /* the band whose curve stands in for cells the other bands lack; -1 = none yet */
    double scale[COST_CONTEXT_BANDS]; /* forgotten mean of band over base at the same size; base has
                                         1 */
    double scale_weight[COST_CONTEXT_BANDS];
};

/* What is believed of a measured cell now: its mean, at the present pace where it is stale. */
double curve_cell_ms(const struct curve *curve, int size);
/* Take a cell as measured (from a file). */
void curve_set(struct curve *curve, int size, double ms, double spread_ms, int64_t n,
               int64_t dropped);
/* Make every table agree with the cells, after curve_set. */
void cost_settle(struct cost_model *cost);

#endif
