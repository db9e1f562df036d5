/* vllm_reply.h - reads what a vLLM engine answers: /server_info, and /collective_rpc when trimtab's
 * worker extension answered it (controller/vllm/trimtab_vllm/worker.py).
 *
 * An answer counts only when every rank's part carries the nonce of the call: one that does not
 * belongs to another call, and so will all later ones. Texts from the engine are cut and made
 * printable.
 */
#ifndef CONTROLLER_VLLM_REPLY_H
#define CONTROLLER_VLLM_REPLY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "controller/snapshot.h"

#define VLLM_EXTENSION "trimtab_vllm.Worker"
#define VLLM_PROTOCOL 1
#define VLLM_REPLY_MAX (1u << 20) /* bytes; 1,024 rows of labels need a tenth of it */
#define VLLM_RANKS_MAX 1024

struct vllm_info { /* of /server_info?config_format=json */
    char extension[96];
    char method[32];    /* of speculation; empty = none */
    bool adaptive;      /* was asked for at the start; whether it runs only a worker knows */
    int64_t engines;    /* data parallel */
    char excluded[160]; /* what of its configuration excludes trimming; empty = nothing that is
                           known */
};
/* 0, or -1 with *cause. */
int vllm_info_read(const char *body, size_t length, struct vllm_info *out, char **cause);

struct vllm_coefficients {
    int positions; /* 0 = unknown */
    double slope, intercept[SNAPSHOT_MAX_POSITIONS];
};
bool vllm_coefficients_equal(const struct vllm_coefficients *a, const struct vllm_coefficients *b);

struct vllm_reply { /* of the first rank, where ranks agree */
    int ranks;
    char error[400];    /* of the first rank that has one, with its number; empty = done */
    char disagree[200]; /* how ranks differ; empty = they agree */
    bool adaptive;
    bool mode_known;
    enum mode mode;
    bool held;
    int64_t generation;
    /* Of trimtab_status and trimtab_read; -1 = not told. */
    int64_t steps, scheduled, admitted, faults, refits;
    char runner[96],
        missing[200]; /* runner: its class with its module, by which V1 and V2 differ */
    struct vllm_coefficients coefficients; /* positions 0 where absent or not finite */
    int64_t label_steps, labels_dropped;   /* of the rows; -1 = none came */
    const json_t *rows;                    /* array, or NULL; belongs to `document` */
    json_t *document;
};
/* 0, or -1 with *cause: the answer is not this call's (or not the extension's). Clear in both
 * cases. */
int vllm_reply_read(const char *body, size_t length, const char *nonce, struct vllm_reply *out,
                    char **cause);
void vllm_reply_clear(struct vllm_reply *reply);

struct vllm_row { /* what one request's step revealed */
    int64_t step; /* since the last reading */
    int admitted, accepted;
    float feature[SNAPSHOT_MAX_POSITIONS]; /* NaN = none */
};
/* False when row i is malformed. */
bool vllm_reply_row(const struct vllm_reply *reply, size_t i, struct vllm_row *out);

#endif
