/* chart.h - small charts made of characters: curve, area, sparkline, interval; braille, with ASCII
 * where the screen is.
 *
 * Pure drawing: values come as buckets, one a dot column, NaN where nothing is known (a gap is
 * drawn as a gap).
 */
#ifndef TUI_CHART_H
#define TUI_CHART_H

#include <stdbool.h>

#include "tui/screen.h"

#define CHART_MAX_BUCKETS (2 * SCREEN_MAX_COLS)

/* Dot columns of a chart that is `cols` wide on this screen: two a cell in braille, one in ASCII.
 */
int chart_buckets(const struct screen *screen, int cols);

struct chart_range {
    double low, high;
};
/* A round range that holds all buckets, at least `least_span` and `least_ratio` of the highest
 * value wide, so that noise does not look like news. False: no value. */
bool chart_choose_range(const double *bucket, int count, double least_span, double least_ratio,
                        struct chart_range *out);

enum chart_form { CHART_CURVE, CHART_AREA };
/* Draw `count` = chart_buckets(area->cols) buckets into the area. half (count) may be NULL: the
 * interval around each value, its ends as dots. */
void chart_draw(struct screen *screen, const struct rect *area, enum chart_form form,
                enum element element, const double *bucket, const double *half, int count,
                const struct chart_range *range);

/* One row of eighths (or ASCII steps), one value a cell, scaled between the lowest and the highest,
 * noise kept small. */
void chart_sparkline(struct screen *screen, int row, int col, enum element element,
                     const double *bucket, int cols);

/* value ± half as ├─●─┤ on an axis of `cols` cells; what leaves the axis ends in an arrow. */
void chart_interval(struct screen *screen, int row, int col, int cols,
                    const struct chart_range *axis, double value, double half);
/* Cell of a value on that axis, -1 when it is off. */
int chart_axis_cell(const struct chart_range *axis, int cols, double value);

#endif
