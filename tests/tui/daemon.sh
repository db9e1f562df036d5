# shellcheck shell=sh
# daemon.sh - the stand-in daemon for shell tests: source it after tap.sh. Needs $work; one daemon at a time.
daemon_pid=
# start_daemon OPTION...: on the socket $work/sock; waits until it answers
start_daemon() {
    stop_daemon
    rm -f "$work/sock"
    "$PYTHON3" "$SRC/tests/tui/fake_daemon.py" --socket "$work/sock" "$@" &
    daemon_pid=$!
    wait_for 300 test -S "$work/sock"
}
stop_daemon() {
    [ -n "$daemon_pid" ] || return 0
    kill -CONT "$daemon_pid" 2>/dev/null
    kill "$daemon_pid" 2>/dev/null
    wait "$daemon_pid" 2>/dev/null
    daemon_pid=
}
