#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- queue pause|resume name: from then on take begins nothing of the queue, or
-- does again. The set has when each was paused.
-- queue limit name places rate: how many of the queue's tasks may run at a time
-- in this shard, and in the space begin in 1000 s; 0: any number. This shard
-- has its part of the rate. Both are 0: the queue has no limits.
--
-- P:limits has the queues with limits, and P:l:QUEUE these: places; rate, as it
-- was given; interval, the ms between two tasks that begin in this shard; full,
-- when the bucket of the rate is full; asks, when a worker will ask again;
-- held, when entries were last seen to wait for a place or a token.

local VERBS = {pause = 4, resume = 4, limit = 6}
local LEASES_MAX = 10000 -- that are looked at for what runs already
local RATE_MAX = 1000000000 -- tasks in 1000 s
local BUCKET_LEAST = 1000 -- ms, in which a bucket without tokens is full

local function pause(queue)
	return sure("ZADD", prefix .. ":paused", "NX", now, queue)
end

local function resume(queue)
	return sure("ZREM", prefix .. ":paused", queue)
end

-- What has begun before counts as well.
local function find_places(queue)
	local ids = sure("ZRANGE", inflight_key(), 0, LEASES_MAX - 1)
	local read = read_headers(ids)
	for i, id in ipairs(ids) do
		local task = unpack_record(read(i) or "")
		if task and task.state == RUNNING and task.queue == queue then
			sure("ZADD", places_key(queue), "NX", now, id)
		end
	end
end

-- Of another rate, the bucket may have been empty for longer than this one can
-- be: it has no tokens then, and not less than none.
local function set_limits(queue, places, rate)
	local key = limits_key(queue)
	local shards = call("HGET", KEYS[1], "shards")
	local interval = rate > 0 and 1000000 * shards / rate or 0
	sure("HSET", key, "places", places, "rate", rate,
		"interval", format("%.17g", interval), "asks", 0)
	local full = tonumber(call("HGET", key, "full") or "") or 0
	call("HSET", key, "full", format("%.6f",
		min(full, now + max(interval, BUCKET_LEAST))))
end

local function limit(queue, places, rate)
	if places == 0 then
		call("UNLINK", places_key(queue))
	end
	if places + rate == 0 then
		call("UNLINK", limits_key(queue))
		sure("ZREM", prefix .. ":limits", queue)
		return
	end
	sure("ZADD", prefix .. ":limits", "NX", now, queue)
	set_limits(queue, places, rate)
	if places > 0 then
		find_places(queue)
	end
end

local refused = open()
if refused then
	return refused
end
local verb, queue = ARGV[3] or "", ARGV[4] or ""
if #ARGV ~= (VERBS[verb] or 4) then
	return refuse_argument(0, "the number of arguments")
end
if not VERBS[verb] then
	return refuse_argument(1, "pause, resume or limit")
end
if not is_name(queue) then
	return refuse_argument(2, "queue")
end
local places = whole(ARGV[5] or "0", 0, WHOLE_MAX)
if not places then
	return refuse_argument(3, "places")
end
local rate = whole(ARGV[6] or "0", 0, RATE_MAX)
if not rate then
	return refuse_argument(4, "rate")
end
refused = admit("GETRANGE", "HGET", "MGET", "UNLINK", "ZADD", "ZRANGE", "ZREM")
if refused then
	return refused
end
if verb == "limit" then
	limit(queue, places, rate)
	commit("format", places + rate > 0 and FORMAT_LANES or shard_format)
elseif (verb == "pause" and pause or resume)(queue) == 1 then
	commit()
end
return 0
