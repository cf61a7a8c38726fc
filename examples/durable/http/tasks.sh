#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# tasks.sh [URL]: adds a task by curl, looks at it, moves it, and cancels it.
# What may have happened (504, or no answer) is repeated: the id is the same.
set -eu
url=${1:-http://127.0.0.1:8080}
json='Content-Type: application/json'
id=order-$$-close

# --retry: after 408, 429, 500, 502, 503, 504, and what is no answer at all.
ask() {
	curl --silent --show-error --fail --noproxy '*' --max-time 10 \
		--retry 5 --retry-all-errors "$@"
}

ask -X PUT "$url/v1/tasks/$id" -H "$json" \
	-d '{"queue": "orders", "in": 1800, "payload": "close unless paid"}'
ask "$url/v1/tasks/$id"
ask -X POST "$url/v1/tasks/$id/reschedule" -H "$json" -d '{"in": 3600}'
ask -X POST "$url/v1/tasks/$id/cancel"
ask "$url/v1/queues/orders"
