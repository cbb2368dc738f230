#!/usr/bin/env bash
# Ray on machines without a scheduler; each needs the same environment (VENV).
#
#   configs/cluster/by-hand.sh first                  # on the first machine
#   ssh SECOND mkdir -p -m 700 .ray && scp ~/.ray/auth_token SECOND:.ray/     # Ray's token, to each further machine
#   configs/cluster/by-hand.sh join FIRST             # on each further machine; FIRST is the first one's address
#   configs/cluster/by-hand.sh run FIRST audit configs/adult.yaml --output runs/adult     # on the first machine
#   configs/cluster/by-hand.sh stop                   # on every machine
#
# Anyone with the token can run code on the machines; connections are not encrypted.

set -euo pipefail

VENV=${VENV:-.venv}
PORT=${PORT:-6379}
export PATH="$VENV/bin:$PATH" RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=token

case "${1:-}" in
    first)
        ray get-auth-token --generate > /dev/null
        ray start --head --port="$PORT" "${@:2}"
        ;;
    join) ray start --address="$2:$PORT" "${@:3}" ;;
    run) lightleak "${@:3}" --engine ray --ray-address "$2:$PORT" ;;
    stop) ray stop ;;
    *) echo "usage: $0 first | join FIRST | run FIRST COMMAND... | stop" >&2; exit 2 ;;
esac
