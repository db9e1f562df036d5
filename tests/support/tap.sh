# shellcheck shell=sh
# tap.sh - TAP for shell tests: source it, call ok/not_ok/skip or `check "name" command…`, end with `done_testing`.
tap_count=0
tap_failed=0
ok() { tap_count=$((tap_count + 1)); echo "ok $tap_count - $1"; }
not_ok() { tap_count=$((tap_count + 1)); tap_failed=$((tap_failed + 1)); echo "not ok $tap_count - $1"; }
skip() { tap_count=$((tap_count + 1)); echo "ok $tap_count - $1 # SKIP $2"; } # $2 names what is missing
skip_all() { echo "1..0 # SKIP $1"; exit 0; }
diag() { sed 's/^/# /'; }
# check NAME COMMAND...: ok when the command succeeds; its output becomes diagnostics when it does not
check() {
    tap_name=$1
    shift
    if tap_out=$("$@" 2>&1); then ok "$tap_name"; else
        not_ok "$tap_name"
        printf '%s\n' "$tap_out" | diag
    fi
}
# wait_for TENTHS COMMAND...: until it succeeds; status 1 when it did not within that many tenths of a second. The limit is there
# so that a broken program ends the test, not to measure: take one that a machine busy with something else does not reach.
wait_for() {
    wait_left=$1
    shift
    until "$@" >/dev/null 2>&1; do
        wait_left=$((wait_left - 1))
        [ "$wait_left" -gt 0 ] || return 1
        sleep 0.1
    done
}
done_testing() { echo "1..$tap_count"; [ "$tap_failed" -eq 0 ]; }
