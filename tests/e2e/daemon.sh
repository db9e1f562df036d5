# shellcheck shell=sh
# daemon.sh - a trimtabd of its own for one model test: source it, call need_models, start_daemon; it is stopped at exit.
#
# Owns a private folder (socket, store, log) and the daemon in it. Models come from the environment, as tests/e2e/local.mk
# says; what is missing skips the test and is named. Nothing here waits without a limit.
: "${SRC:?}" "${BUILD:?}"
# shellcheck source=tests/support/tap.sh
. "$SRC/tests/support/tap.sh"

program() { # NAME - its path in the build folder
    for candidate in "$BUILD/$1" "$BUILD/controller/$1" "$BUILD/tui/$1"; do
        if [ -x "$candidate" ]; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    return 1
}

# need_models VARIABLE… - skips the whole test unless each names a file that is there
need_models() {
    for variable in "$@"; do
        eval "value=\${$variable:-}"
        [ -n "$value" ] || skip_all "$variable is not set (./bootstrap check sets it; or: eval \"\$(./bootstrap env)\")"
        [ -e "$value" ] || skip_all "$variable names $value, which is not there"
    done
}

# Tests share their cores with whatever else runs: the engine's threads should soon sleep, not spin, when they wait for one
# that lost its core. Measured costs are kept in the build folder, so that only the first test measures.
GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-1000}
export GOMP_SPINCOUNT

daemon_pid=''
work=$(mktemp -d "${TMPDIR:-/tmp}/trimtab-e2e.XXXXXX")
stop_daemon() {
    [ -n "$daemon_pid" ] || return 0
    kill -TERM "$daemon_pid" 2>/dev/null
    tries=200
    while kill -0 "$daemon_pid" 2>/dev/null && [ "$tries" -gt 0 ]; do
        sleep 0.1
        tries=$((tries - 1))
    done
    kill -KILL "$daemon_pid" 2>/dev/null
    wait "$daemon_pid" 2>/dev/null
    daemon_pid=''
}
at_exit() {
    status=$?
    stop_daemon
    rm -rf "$work"
    exit "$status"
}
trap at_exit EXIT
trap 'exit 130' INT TERM HUP

# start_daemon OPTIONS… - trimtabd on a free port, with its socket and store in $work; sets url, socket and daemon_pid once
# it answers. The models are the caller's options. Without an answer within five minutes the whole test fails.
start_daemon() {
    socket=$work/trimtab.sock
    log=$work/trimtabd.log
    : >"$log"
    "$(program trimtabd)" --listen 127.0.0.1:0 --socket "$socket" --state "$work/state" --cache "$BUILD/tests/e2e/costs" \
        "$@" >"$log" 2>&1 &
    daemon_pid=$!
    tries=3000
    url=''
    while [ "$tries" -gt 0 ] && kill -0 "$daemon_pid" 2>/dev/null; do
        url=$(sed -n 's/^trimtabd: listening on \(http:[^ ]*\) and .*/\1/p' "$log")
        [ -z "$url" ] || return 0
        sleep 0.1
        tries=$((tries - 1))
    done
    echo "Bail out! trimtabd did not start"
    diag <"$log"
    exit 1
}
