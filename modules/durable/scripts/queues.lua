#!lua flags=no-writes
-- SPDX-License-Identifier: Apache-2.0
--
-- queues [NAME...]: now, and for each {queue, entries, due, paused, running,
-- places, rate, held}; due is of the oldest entry, as the janitor knows it
-- where the first entries are of tasks that are gone, 0 if there is none;
-- paused is since when, or 0; running is counted, or beyond RUNNING_MAX of the
-- shard estimated; places of this shard and rate of the space are limits, or 0;
-- held is whether one of these keeps the entries waiting.
-- Without names: of up to 64 queues, those with the oldest entries as far as
-- the janitor knows, and if there is room others that are paused, have limits,
-- or running ones; and before them whether these are all.

local NAMES_MAX = 64
local RUNNING_MAX = 256 -- records that are read
local PARTS = 16 -- of the set: from so many places
local HELD_MS = 5000 -- since a limit last kept an entry waiting

local running = {} -- by queue

-- Whether all places are taken, or were, or the tokens, when an attempt last
-- began or ended. Workers that wait for tokens ask once a second.
local function is_held(queue, places, held)
	local taken = places > 0 and try("ZCARD", places_key(queue)) or 0
	return places > 0 and not is_foreign(taken) and taken >= places or
		now - held < HELD_MS
end

local function describe(queue, since)
	local entries = count_entries(queue)
	local due = entries > 0 and (oldest_in(queue) or since) or 0
	local limits = try("HMGET", limits_key(queue), "places", "rate",
		"held")
	local limit = {}
	for i = 1, 3 do
		limit[i] = not is_foreign(limits) and
			tonumber(limits[i] or "") or 0
	end
	return {queue, entries, due, paused_since(queue) or 0,
		running[queue] or 0, limit[1], limit[2],
		is_held(queue, limit[1], limit[3]) and 1 or 0}
end

-- All that run, or RUNNING_MAX of them, from all over the set: what a worker
-- took together has the same end of its leases, and stands together.
local function read_running(size)
	local inflight = inflight_key()
	if size <= RUNNING_MAX then
		return call("ZRANGE", inflight, 0, -1)
	end
	local ids = {}
	for part = 0, PARTS - 1 do
		local first = floor((part + now % 1000 / 1000) *
			(size - RUNNING_MAX / PARTS) / PARTS)
		local page = call("ZRANGE", inflight, first,
			first + RUNNING_MAX / PARTS - 1)
		for _, id in ipairs(page) do
			ids[#ids + 1] = id
		end
	end
	return ids
end

local function count_running()
	local size = try("ZCARD", inflight_key())
	if is_foreign(size) or size == 0 then
		return
	end
	local ids = read_running(size)
	local read = read_headers(ids)
	for i = 1, #ids do
		local task = unpack_record(read(i) or "")
		if task then
			running[task.queue] = (running[task.queue] or 0) + 1
		end
	end
	for queue, found in pairs(running) do
		running[queue] = floor(found * size / #ids + 0.5)
	end
end

local function known_since(queue)
	local since = try("ZSCORE", prefix .. ":queues", queue)
	return not is_foreign(since) and tonumber(since or "") or now
end

-- The first of a set of queues, with their times; one more than are listed.
local function read_set(name)
	local found = try("ZRANGE", prefix .. name, 0, NAMES_MAX, "WITHSCORES")
	return is_foreign(found) and {} or found
end

local function find_queues()
	local results, listed, all = {}, {}, 1
	local function list(queue, since)
		if not listed[queue] and #results == NAMES_MAX then
			all = 0
		elseif not listed[queue] then
			listed[queue] = true
			results[#results + 1] = describe(queue, since)
		end
	end
	for _, set in ipairs({":queues", ":paused", ":limits"}) do
		local found = read_set(set)
		for i = 1, #found, 2 do
			list(found[i], tonumber(found[i + 1]))
		end
	end
	for queue in pairs(running) do
		list(queue, now)
	end
	return results, all
end

local refused = open()
if refused then
	return refused
end
if #ARGV > 2 + NAMES_MAX then
	return refuse_argument(0, "the number of arguments")
end
refused = check_each(3, is_name, "queue")
if refused then
	return refused
end
count_running()
if #ARGV == 2 then
	local results, all = find_queues()
	return {now, all, unpack(results)}
end
local results = {}
for i = 3, #ARGV do
	results[i - 2] = describe(ARGV[i], known_since(ARGV[i]))
end
return {now, 1, unpack(results)}
