# trimtab.bash - completion for trimtab(1) and trimtabd(8); tests/docs/docs.test compares it with their tables.
# shellcheck shell=bash

_trimtab_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2"); }
_trimtab_files() {
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$1")
}

# The benchmarks and their options, as trimtab-bench itself lists them.
_trimtab_bench() { # PLACE BENCHMARK WORD
    case $1:$3 in
    1:*) _trimtab_words "$(trimtab bench help 2>/dev/null | sed -n 's/^  \([a-z]*\) .*/\1/p')" "$3" ;;
    *:-*) _trimtab_words "$(trimtab bench "$2" --help 2>/dev/null | sed -n 's/^  \(--[a-z-]*\).*/\1/p')" "$3" ;;
    *) _trimtab_files "$3" ;;
    esac
}

_trimtab() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} verb='' i
    local verbs='status top nodes mode ab set query export inspect bench help'
    local options='--socket --token-file --key-env --key-file --node --read-only --interval --once --json --plain --utc --ascii --no-color --scheme --mouse
        --script --count --reason --effect --minutes --window --db --csv --jsonl --limit --timeout --to --since --overwrite --dump-keys --help --version'
    case $before in
    --socket | -s | --token-file | --key-file | --script | --db | --to) _trimtab_files "$word" && return ;;
    --scheme) _trimtab_words 'default safe mono' "$word" && return ;;
    --since) _trimtab_words '1h 24h 7d' "$word" && return ;;
    --key-env | --node | -n | --interval | -i | --count | -c | --reason | --minutes | --window | --limit | --timeout) COMPREPLY=() && return ;;
    mode | ab | set) _trimtab_words "$(trimtab nodes --json 2>/dev/null | sed -n 's/.*"id": *"\([^"]*\)".*/\1/p')" "$word" && return ;;
    esac
    for ((i = 1; i < COMP_CWORD; i++)); do
        case " $verbs " in *" ${COMP_WORDS[i]} "*) verb=${COMP_WORDS[i]} && break ;; esac
    done
    case $verb:$word in
    bench:*) _trimtab_bench "$((COMP_CWORD - i))" "${COMP_WORDS[i + 1]}" "$word" ;;
    *:-*) _trimtab_words "$options" "$word" ;;
    :*) _trimtab_words "$verbs" "$word" ;;
    mode:*) _trimtab_words 'adaptive fixed off shadow' "$word" ;;
    set:*) _trimtab_words 'max_draft= fixed_draft= exploration= estimator= refit_interval_steps= min_gain= draft=' "$word" ;;
    *) _trimtab_files "$word" ;;
    esac
}

_trimtabd() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local options='--model --draft --replay --cost --speed --name --listen --socket --state --cache --mode --parallel --ctx --threads
        --queue --prefill-chunk --max-draft --fixed-draft --estimator --refit-interval-steps --min-gain --no-exploration --device
        --exact --record --api-key-file --read-token-file --token-file --node --node-key-env --node-key-file --node-ca-file
        --node-interval-ms --node-timeout-ms --max-connections --drain-timeout-s --config
        --version --help'
    case $before in
    --mode) _trimtab_words 'adaptive fixed off shadow' "$word" ;;
    --estimator) _trimtab_words 'online parity' "$word" ;;
    --device) _trimtab_words 'auto cpu cuda:0' "$word" ;;
    --listen) _trimtab_words '127.0.0.1:8080 none' "$word" ;;
    --model | --draft | --replay | --cost | --socket | --state | --cache | --record | --*-file | --config) _trimtab_files "$word" ;;
    --no-exploration | --exact | --version | --help) _trimtab_words "$options" "$word" ;;
    --*) COMPREPLY=() ;;
    *) _trimtab_words "$options" "$word" ;;
    esac
}

complete -F _trimtab trimtab
complete -F _trimtabd trimtabd
