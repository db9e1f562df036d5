/* vllm_rpc_probe.c - see vllm_rpc_internal.h: what the configuration and the workers tell. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "controller/cause.h"
#include "controller/vllm_rpc_internal.h"

static void warn_if_open(struct vllm_rpc *rpc)
{
    if (remote_is_loopback(rpc->remote.url)) return;
    pthread_mutex_lock(&rpc->lock);
    rpc->view.open = true;
    pthread_mutex_unlock(&rpc->lock);
    rpc_say(
        rpc, "warning", "rpc",
        "vLLM's dev mode asks nobody for a key, and %s is not this machine: whoever reaches it can "
        "command the engine; let it listen on loopback and use a tunnel",
        rpc->remote.url);
}

/* Can this engine be steered, as far as its configuration tells? */
static bool configuration_allows(struct vllm_rpc *rpc)
{
    const struct vllm_info *info = &rpc->info;

    if (!info->extension[0])
        rpc_enter(rpc, VLLM_RPC_UNABLE,
                  "the node was started without the trimtab worker extension: add "
                  "--worker-extension-cls " VLLM_EXTENSION);
    else if (strcmp(info->extension, VLLM_EXTENSION) != 0)
        rpc_enter(rpc, VLLM_RPC_UNABLE,
                  "the node was started with another worker extension (%s), not " VLLM_EXTENSION,
                  info->extension);
    else if (info->engines > 1)
        rpc_enter(
            rpc, VLLM_RPC_UNABLE,
            "%lld data parallel engines answer at this address and a call reaches one of them: "
            "steer engines that have an address each",
            (long long)info->engines);
    else
        return true;
    return false;
}

/* Why an engine whose workers have the extension does not trim. */
static void explain_not_adaptive(struct vllm_rpc *rpc, const struct vllm_reply *status)
{
    const struct vllm_info *info = &rpc->info;
    const char *runner = status->runner[0] ? status->runner : "its model runner";

    if (!info->method[0])
        rpc_enter(rpc, VLLM_RPC_UNABLE, "the engine was started without speculative decoding");
    else if (!info->adaptive && info->excluded[0])
        rpc_enter(rpc, VLLM_RPC_UNABLE,
                  "the engine was not started with adaptive verification, and could not be as it "
                  "is: %s",
                  info->excluded);
    else if (!info->adaptive)
        rpc_enter(
            rpc, VLLM_RPC_UNABLE,
            "the engine was not started with adaptive verification, and it cannot be turned on "
            "later: add \"enable_adaptive_verification\": true to --speculative-config");
    else if (info->excluded[0])
        rpc_enter(rpc, VLLM_RPC_UNABLE, "adaptive verification was asked for but does not run: %s",
                  info->excluded);
    else
        rpc_enter(rpc, VLLM_RPC_UNABLE,
                  "adaptive verification was asked for but does not run: it needs model runner V2 "
                  "(this is %s) and an attention backend that takes lengths decided on the device; "
                  "missing: %s",
                  runner, status->missing);
}

void rpc_probe(struct vllm_rpc *rpc)
{
    struct fetch_answer answer = {0};
    struct vllm_reply reply = {0};
    char *cause = NULL;

    if (monotonic_ms() < rpc->probe_due_ms) return;
    if (!rpc_get(rpc, "/version", &answer) ||
        !rpc_get(rpc, "/server_info?config_format=json", &answer))
        return;
    warn_if_open(rpc);
    if (vllm_info_read(answer.body, answer.length, &rpc->info, &cause) != 0)
        rpc_enter(rpc, VLLM_RPC_UNABLE, "%s", cause ? cause : "out of memory");
    else if (configuration_allows(rpc) &&
             rpc_call(rpc, "trimtab_echo", json_array(), VLLM_RPC_DEADLINE_MS, &reply)) {
        vllm_reply_clear(&reply);
        if (rpc_call(rpc, "trimtab_read", json_pack("[i, i]", 0, 0), VLLM_RPC_DEADLINE_MS,
                     &reply)) {
            rpc_publish(rpc, &reply);
            if (reply.error[0] || reply.disagree[0])
                rpc_enter(rpc, VLLM_RPC_UNABLE, "%s",
                          reply.error[0] ? reply.error : reply.disagree);
            else if (!reply.adaptive || !reply.mode_known)
                explain_not_adaptive(rpc, &reply);
            else
                rpc_enter(rpc, VLLM_RPC_READY, "%s", "");
        }
    }
    vllm_reply_clear(&reply);
    free(cause);
}
