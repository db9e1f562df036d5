/* chart.c - see chart.h. Braille: Unicode 10.0, section 21.1; a cell is 2 × 4 dots. Round ranges
 * after Heckbert's nice numbers (Graphics Gems, 1990).
 */
#include "config.h"

#include "tui/chart.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#define SPARK_LEAST_SPAN 0.6 /* the low end is at most this part of the high end */

int chart_buckets(const struct screen *screen, int cols)
{
    return screen_is_ascii(screen) ? cols : 2 * cols;
}

/* The step of a round axis: 1, 2, 2.5 or 5 times a power of ten. */
static double nice_step(double span)
{
    double power = pow(10, floor(log10(span))), part = span / power;

    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 2.5 ? 2.5 : part <= 5 ? 5 : 10);
}

bool chart_choose_range(const double *bucket, int count, double least_span, double least_ratio,
                        struct chart_range *out)
{
    double low = INFINITY, high = -INFINITY, step;

    for (int i = 0; i < count; i++) {
        if (!isfinite(bucket[i])) continue;
        low = fmin(low, bucket[i]);
        high = fmax(high, bucket[i]);
    }
    if (low > high) return false;
    least_span = fmax(least_span, least_ratio * fabs(high));
    if (high - low < least_span) {
        double middle = (high + low) / 2;

        low = low >= 0 ? fmax(0, middle - least_span / 2) : middle - least_span / 2;
        high = fmax(high, low + least_span);
    }
    step = nice_step((high - low) / 4);
    out->low = step * floor(low / step + 1e-9);
    out->high = step * ceil(high / step - 1e-9);
    return true;
}

/* Level of a value in [0, levels - 1]. */
static int level_of(double value, const struct chart_range *range, int levels)
{
    double part = (value - range->low) / (range->high - range->low);
    int level = (int)lround(part * (levels - 1));

    return level < 0 ? 0 : level >= levels ? levels - 1 : level;
}

static const unsigned char dot_bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

/* Lowest and highest lit level of dot column i. A curve reaches half-way to both neighbours so that
 * it does not tear. */
static bool lit_levels(enum chart_form form, const double *bucket, int count, int i,
                       const struct chart_range *range, int levels, int *from, int *to)
{
    int own;

    if (!isfinite(bucket[i])) return false;
    own = *from = *to = level_of(bucket[i], range, levels);
    if (form == CHART_AREA) *from = 0;
    for (int j = i - 1; form == CHART_CURVE && j <= i + 1; j += 2) {
        int way, reach;

        if (j < 0 || j >= count || !isfinite(bucket[j])) continue;
        way = level_of(bucket[j], range, levels) - own;
        reach = (abs(way) - (j < i)) / 2; /* the left one of two takes the odd dot */
        if (way > 0 && own + reach > *to) *to = own + reach;
        if (way < 0 && own - reach < *from) *from = own - reach;
    }
    return true;
}

/* The ends of the interval around bucket i, every second one: it shall not look like a curve. */
static bool band_levels(const double *bucket, const double *half, int i,
                        const struct chart_range *range, int levels, int *low, int *high)
{
    if (half == NULL || i % 2 != 0 || !isfinite(bucket[i]) || !isfinite(half[i])) return false;
    *low = bucket[i] - half[i] < range->low ? -1 : level_of(bucket[i] - half[i], range, levels);
    *high = bucket[i] + half[i] > range->high ? -1 : level_of(bucket[i] + half[i], range, levels);
    return true;
}

struct column { /* lit levels of one dot column; from > to: none; an end of -1 is not drawn */
    int from, to, band_low, band_high;
};

static struct column column_of(enum chart_form form, const double *bucket, const double *half,
                               int count, int i, const struct chart_range *range, int levels)
{
    struct column column = {1, 0, -1, -1};

    if (i >= count) return column;
    if (!lit_levels(form, bucket, count, i, range, levels, &column.from, &column.to)) {
        column.from = 1;
        column.to = 0;
    }
    band_levels(bucket, half, i, range, levels, &column.band_low, &column.band_high);
    return column;
}

static void draw_braille(struct screen *screen, const struct rect *area, enum chart_form form,
                         enum element element, const double *bucket, const double *half, int count,
                         const struct chart_range *range)
{
    int levels = 4 * area->rows;

    for (int col = 0; col < area->cols; col++) {
        const struct column side[2] = {
            column_of(form, bucket, half, count, 2 * col, range, levels),
            column_of(form, bucket, half, count, 2 * col + 1, range, levels)};

        for (int row = 0; row < area->rows; row++) {
            unsigned bits = 0, band = 0;

            for (int i = 0; i < 2; i++)
                for (int dot = 0; dot < 4; dot++) {
                    int level = levels - 1 - (4 * row + dot);

                    if (level >= side[i].from && level <= side[i].to) bits |= dot_bit[dot][i];
                    if (level == side[i].band_low || level == side[i].band_high)
                        band |= dot_bit[dot][i];
                }
            if ((bits | band) != 0)
                screen_put_char(screen, area->row + row, area->col + col,
                                bits != 0 ? element : ELEMENT_FAINT, 0x2800 + (bits | band));
        }
    }
}

static void draw_ascii(struct screen *screen, const struct rect *area, enum chart_form form,
                       enum element element, const double *bucket, const double *half, int count,
                       const struct chart_range *range)
{
    static const char curve[3] = {'_', '-', '\''}, fill[3] = {'.', ':', '#'};
    int levels = 3 * area->rows;

    for (int col = 0; col < area->cols && col < count; col++) {
        int level, row, low, high;

        if (!isfinite(bucket[col])) continue;
        if (band_levels(bucket, half, col, range, levels, &low, &high)) {
            if (low >= 0)
                screen_put_char(screen, area->row + area->rows - 1 - low / 3, area->col + col,
                                ELEMENT_FAINT, '.');
            if (high >= 0)
                screen_put_char(screen, area->row + area->rows - 1 - high / 3, area->col + col,
                                ELEMENT_FAINT, '.');
        }
        level = level_of(bucket[col], range, levels);
        row = area->row + area->rows - 1 - level / 3;
        screen_put_char(screen, row, area->col + col, element,
                        (uint32_t)(form == CHART_CURVE ? curve : fill)[level % 3]);
        for (int below = row + 1; form == CHART_AREA && below < area->row + area->rows; below++)
            screen_put_char(screen, below, area->col + col, element, '#');
    }
}

void chart_draw(struct screen *screen, const struct rect *area, enum chart_form form,
                enum element element, const double *bucket, const double *half, int count,
                const struct chart_range *range)
{
    assert(range->high > range->low);
    if (screen_is_ascii(screen))
        draw_ascii(screen, area, form, element, bucket, half, count, range);
    else
        draw_braille(screen, area, form, element, bucket, half, count, range);
}

void chart_sparkline(struct screen *screen, int row, int col, enum element element,
                     const double *bucket, int cols)
{
    static const char steps[] = "_.:-=+*#";
    double low = INFINITY, high = -INFINITY;

    for (int i = 0; i < cols; i++) {
        if (!isfinite(bucket[i])) continue;
        low = fmin(low, bucket[i]);
        high = fmax(high, bucket[i]);
    }
    low = fmin(low, SPARK_LEAST_SPAN * high); /* so that noise stays small */
    for (int i = 0; i < cols; i++) {
        int step;

        if (!isfinite(bucket[i])) continue;
        step = high > low ? (int)lround((bucket[i] - low) / (high - low) * 7) : 0;
        screen_put_char(screen, row, col + i, element,
                        screen_is_ascii(screen) ? (uint32_t)steps[step] : 0x2581u + (uint32_t)step);
    }
}

int chart_axis_cell(const struct chart_range *axis, int cols, double value)
{
    double part = (value - axis->low) / (axis->high - axis->low);

    if (!(part >= 0 && part <= 1)) return -1;
    return (int)lround(part * (cols - 1));
}

void chart_interval(struct screen *screen, int row, int col, int cols,
                    const struct chart_range *axis, double value, double half)
{
    double scale = (cols - 1) / (axis->high - axis->low), middle = (value - axis->low) * scale;
    int point, reach, from, to;

    if (!isfinite(value) || cols < 1) return;
    point = (int)lround(fmin(fmax(middle, -2), cols + 1)); /* off the axis, on either side */
    reach = isfinite(half) ? (int)lround(fmin(half * scale, 2 * cols)) : 0;
    from = point - reach < 0 ? 0 : point - reach;
    to = point + reach > cols - 1 ? cols - 1 : point + reach;
    for (int i = from; i <= to && reach > 0; i++)
        screen_put_char(screen, row, col + i, ELEMENT_BAR, 0x2500);
    if (reach > 0 && from <= to) {
        screen_put_char(screen, row, col + from, ELEMENT_BAR, point - reach < 0 ? 0x25c0 : 0x251c);
        screen_put_char(screen, row, col + to, ELEMENT_BAR,
                        point + reach > cols - 1 ? 0x25b6 : 0x2524);
    }
    if (point < 0 || point >= cols)
        screen_put_char(screen, row, point < 0 ? col : col + cols - 1, ELEMENT_POINT,
                        point < 0 ? 0x25c0 : 0x25b6);
    else
        screen_put_char(screen, row, col + point, ELEMENT_POINT, 0x25cf);
}
