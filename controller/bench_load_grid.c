/* bench_load_grid.c - the lists that span the grid; see bench_load.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "controller/bench_load.h"
#include "controller/number.h"

/* The words of a list `a,b,c`; each goes to take(state, word). False when it was refused. */
static bool each_word(const char *list, bool (*take)(void *state, const char *word), void *state)
{
    char *copy = strdup(list), *rest = copy, *word;
    bool taken = copy != NULL;

    while (taken && (word = strsep(&rest, ","))) taken = take(state, word);
    free(copy);
    return taken;
}

static bool take_form(void *state, const char *word)
{
    struct load_grid *grid = state;
    struct load_form *form = &grid->form[grid->forms];

    if (grid->forms == LOAD_MOST_FORMS || !word[0] || strlen(word) >= sizeof form->name) {
        fprintf(stderr,
                "trimtab bench load: --forms wants at most %d names such as BF16, Q8_0 or "
                "%s, not \"%s\"\n",
                LOAD_MOST_FORMS, LOAD_FORM_AS_IS, word);
        return false;
    }
    strcpy(form->name, word);
    grid->forms++;
    return true;
}

static bool take_mix(void *state, const char *word)
{
    struct load_grid *grid = state;

    if (grid->mixes == LOAD_MOST_MIXES || !word[0] || strlen(word) >= sizeof grid->mix[0]) {
        fprintf(stderr,
                "trimtab bench load: --mixes wants at most %d of the prompts' categories, "
                "or mixed, not \"%s\"\n",
                LOAD_MOST_MIXES, word);
        return false;
    }
    strcpy(grid->mix[grid->mixes++], word);
    return true;
}

static bool take_temperature(void *state, const char *word)
{
    struct load_grid *grid = state;
    double value;

    if (grid->temperatures == LOAD_MOST_TEMPERATURES || !number_read_real(word, 0, 2, &value)) {
        fprintf(stderr,
                "trimtab bench load: --temperatures wants at most %d numbers from 0 to 2, "
                "not \"%s\"\n",
                LOAD_MOST_TEMPERATURES, word);
        return false;
    }
    grid->temperature[grid->temperatures++] = value;
    return true;
}

bool load_grid_read(struct load_grid *grid, const char *forms, const char *mixes,
                    const char *temperatures)
{
    return each_word(forms, take_form, grid) && each_word(mixes, take_mix, grid) &&
           each_word(temperatures, take_temperature, grid);
}

bool load_in_mix(const struct bench_prompt *prompt, const char *mix)
{
    return strcmp(mix, "mixed") == 0 || strcmp(mix, prompt->category) == 0;
}

bool load_grid_has_prompts(const struct load_grid *grid, const struct bench_prompt *prompts,
                           int count, const char *path)
{
    for (size_t m = 0; m < grid->mixes; m++) {
        bool any = false;

        for (int i = 0; i < count && !any; i++) any = load_in_mix(&prompts[i], grid->mix[m]);
        if (any) continue;
        fprintf(stderr, "trimtab bench load: %s has no prompt of category \"%s\"\n", path,
                grid->mix[m]);
        return false;
    }
    return true;
}
