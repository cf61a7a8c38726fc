#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- janitor limit random keys

local GRACE = 10000 -- ms after a pause, in which leases can be extended
local KEYS_FOR_ALL = 1024 -- with which a call does all the rest, too
local SLOTS_MAX = 64 -- that it scans
local QUEUES = 32 -- that it looks at
local PLACES_MAX = 16 -- of each
local SEARCHED = 128 -- a queue with more entries is not searched for one
local LEASE = 30000 -- ms, of a running task that was in no set
local LOST = "- the lease ended: nothing was heard of its worker"

local inflight
local walk -- the cursor of the walk
local keys -- that this call walks over; with fewer, it does less of the rest

-- The attempt counts, unless its worker says later that it has called nobody.
local function end_lease(id)
	local task = load(id)
	if not task then
		quarantine(id)
	elseif task.state == RUNNING then
		count("expired", 1)
		free_places(task.queue, id)
		task.doubt, task.doubt_before = task.fence, task.doubt
		again(id, task, due_after(back_off(task)), LOST)
		return 1
	end
	return 0
end

-- How many, and whether there may be more.
local function end_leases(limit)
	if resumed ~= 0 and now - resumed < GRACE and resumed <= base then
		return 0, false
	end
	local ids = sure("ZRANGEBYSCORE", inflight, "-inf", now, "LIMIT", 0,
		limit)
	local ended = 0
	for _, id in ipairs(ids) do
		ended = ended + end_lease(id)
	end
	if ids[1] then
		call("ZREM", inflight, unpack(ids))
	end
	return ended, #ids == limit
end

-- A pending task that is not in its bucket is in its queue; this one is not, or
-- that is not known now.
local function is_lost(id, lane)
	local key = lane_key(lane)
	local length = sure("LLEN", key)
	return length == 0 or length <= SEARCHED and
		not call("LPOS", key, id)
end

-- The record of a task that was kept for its entry, which is gone. It may have
-- had another priority when the entry was left.
local function expire(id, task)
	if call("PTTL", record_key(id)) ~= -1 then
		return 0
	end
	for _, lane in ipairs(lanes_of(task.queue)) do
		if not is_lost(id, lane) then
			return 0
		end
	end
	return call("PEXPIRE", record_key(id), retention)
end

-- Records are what counts: a task is put back to where its record says that it
-- is, if something has taken it from there.
local function restore(id)
	local task = load(id)
	if not task then
		return 0
	end
	if task.state == RUNNING then
		if places_of(task.queue) then
			sure("ZADD", places_key(task.queue), "NX", now, id)
		end
		return sure("ZADD", inflight, "NX", now + LEASE, id)
	end
	if task.state == FAILED then
		return sure("ZADD", prefix .. ":dead", "NX", now, id)
	end
	if task.state == CANCELLED or
		task.state == SUCCEEDED and task.has_entry then
		return expire(id, task)
	end
	if task.state ~= PENDING or is_in_bucket(id, task) then
		return 0
	end
	if task.due > now then
		return sure("ZADD", bucket_key(task.slot), 0,
			member_of(id, task))
	end
	if not is_lost(id, lane_of(task)) then
		sure("ZADD", prefix .. ":queues", "NX", now, task.queue)
		return 0
	end
	append(lane_of(task), id)
	return 1
end

-- Those with the oldest entries, as far as is known: see append().
local function order_queues()
	local key = prefix .. ":queues"
	for _, queue in ipairs(sure("ZRANGE", key, 0, QUEUES - 1)) do
		local due = is_name(queue) and oldest_in(queue)
		if due then
			call("ZADD", key, "XX", due, queue)
		elseif not is_name(queue) or count_entries(queue) == 0 then
			call("ZREM", key, queue)
		end
	end
end

local function part_of(most)
	return max(1, floor(most * min(keys / KEYS_FOR_ALL, 1)))
end

-- So many members of a set, each time from another place, so that all come.
local function some_of(key, most)
	local parts = -floor(-sure("ZCARD", key) / most)
	local first = floor(math.random() * parts) * most
	return sure("ZRANGE", key, first, first + most - 1)
end

-- A place whose task does not run goes back.
local function mend_places()
	if shard_format < FORMAT_LANES then
		return
	end
	for _, queue in ipairs(some_of(prefix .. ":limits", QUEUES)) do
		local key = places_key(queue)
		for _, id in ipairs(some_of(key, part_of(PLACES_MAX))) do
			local task = load(id)
			if not task or task.state ~= RUNNING or
				task.queue ~= queue then
				call("ZREM", key, id)
			end
		end
	end
end

-- A part of the walk over the engine's keys, for the records of this shard.
local function restore_some()
	local first = record_key("")
	local reply = call("SCAN", walk, "MATCH",
		string.gsub(first, "[][*?^\\-]", "\\%0") .. "*",
		"COUNT", keys)
	local restored = 0
	for _, key in ipairs(reply[2]) do
		restored = restored + restore(sub(key, #first + 1))
	end
	walk = reply[1]
	changed = changed or restored > 0
	return restored
end

-- What is due in a slot that no pump will look at in time goes in again; a
-- member that no record names is dropped.
local function mend(slot, member, id)
	local task = id and load(id)
	call("ZREM", bucket_key(slot), member)
	if not id then
		return 0
	end
	if not task then
		quarantine(id)
		count_waiting(-1, 0)
		return 0
	end
	if task.state ~= PENDING or member_of(id, task) ~= member or
		task.slot ~= slot then
		return 0
	end
	count_waiting(-1, 0)
	count("missed", 1)
	place(id, task, task.due)
	save(id, task)
	return 1
end

-- Looks at the first of each lane. How many were missed, and looked at.
local function mend_slot(slot, limit)
	local at, missed, looked = "-", 0, 0
	for _ = 1, limit do
		local member = sure("ZRANGEBYLEX", bucket_key(slot), at, "+",
			"LIMIT", 0, 1)[1]
		if not member then
			break
		end
		local lane, due, id = read_member(member)
		if lane and due > now then
			at = behind(lane)
		else
			at = "(" .. member
			missed = missed + mend(slot, member, id)
			looked = looked + 1
		end
	end
	return missed, looked
end

-- Looks for what is due in slots that no pump will look at before the next
-- rotation.
local function find_missed(limit)
	local missed, looked = 0, 0
	for _ = 1, min(part_of(SLOTS_MAX), slots) do
		if not is_covered(scan) then
			local found, seen = mend_slot(scan, limit - looked)
			missed, looked = missed + found, looked + seen
			if looked == limit then
				return missed, true
			end
		end
		scan = (scan + 1) % slots
	end
	return missed, false
end

local refused = open() or expect(5)
if refused then
	return refused
end
local limit = whole(ARGV[3], 1, 1000)
local random = whole(ARGV[4], 0, WHOLE_MAX)
if not limit then
	return refuse_argument(1, "limit")
end
if not random then
	return refuse_argument(2, "random")
end
keys = whole(ARGV[5], 1, 8000)
if not keys then
	return refuse_argument(3, "keys")
end
refused = admit("GETRANGE", "HGET", "LLEN", "LPOS", "LRANGE", "PEXPIRE", "PTTL",
	"RPUSH", "SCAN", "SET", "SETRANGE", "ZADD", "ZCARD", "ZRANGE",
	"ZRANGEBYLEX", "ZRANGEBYSCORE", "ZREM", "ZSCORE")
if refused then
	return refused
end
inflight = inflight_key()
math.randomseed(random % 2147483647)
walk = call("HGET", KEYS[1], "walk")
walk = whole(walk or "", 0, WHOLE_MAX) and walk or "0"
local over, more_over = end_leases(limit)
local restored = restore_some()
local missed, more_missed = find_missed(limit)
order_queues()
mend_places()
commit("scan", scan, "walk", walk)
return {over, restored, missed, (more_over or more_missed) and 1 or 0}
