#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- janitor limit random

local GRACE = 10000 -- ms after a pause, in which leases can be extended
local BACK_OFF, BACK_OFF_MAX = 1000, 600000
local SLOTS_MAX = 64 -- that a call scans

local fly

local function back_off(attempts)
	local longest = BACK_OFF_MAX
	if attempts <= 10 then
		longest = min(longest, BACK_OFF * 2 ^ (attempts - 1))
	end
	return floor(math.random() * longest)
end

local function end_lease(id)
	local task = load(id)
	if task and task.state == DELIVERED then
		sure("ZADD", fly, DELIVERED_FROM + now, id)
		return 0
	end
	sure("ZREM", fly, id)
	if not task then
		quarantine(id, "running")
	elseif task.state == RUNNING then
		count("expired", 1)
		again(id, task, due_after(back_off(task.attempts)))
		return 1
	end
	return 0
end

-- How many, and whether there may be more.
local function end_leases(limit)
	if resumed ~= 0 and now - resumed < GRACE then
		return 0, false
	end
	local ids = sure("ZRANGEBYSCORE", fly, "-inf", now, "LIMIT", 0, limit)
	local ended = 0
	for _, id in ipairs(ids) do
		ended = ended + end_lease(id)
	end
	return ended, #ids == limit
end

local function check_delivered(id)
	local task = load(id)
	if task and task.state == DELIVERED then
		if is_in_queue(id, task) then
			return 0
		end
		enqueue(id, task)
		save(id, task)
		try("PUBLISH", space .. ":work:" .. task.queue, shard)
		return 1
	end
	if task and task.state == RUNNING then
		sure("ZADD", fly, now, id)
		return 0
	end
	sure("ZREM", fly, id)
	if not task then
		quarantine(id, "delivered")
	end
	return 0
end

-- Looks at limit delivered ones, from a random one on.
local function deliver_again(limit)
	local first = sure("ZCOUNT", fly, "-inf", format("(%.0f",
		DELIVERED_FROM))
	local total = sure("ZCARD", fly) - first
	if total <= 0 then
		return 0, false
	end
	local from = total > limit and floor(math.random() * total) or 0
	local ids = call("ZRANGE", fly, first + from, first + from + limit - 1)
	if #ids < limit and from > 0 then
		for _, id in ipairs(call("ZRANGE", fly, first,
			first + limit - #ids - 1)) do
			ids[#ids + 1] = id
		end
	end
	local again = 0
	for _, id in ipairs(ids) do
		again = again + check_delivered(id)
	end
	return again, again > 0 and total > limit
end

local function remove_ended(limit)
	local key = prefix .. ":ended"
	local ids = sure("ZRANGEBYSCORE", key, "-inf", now, "LIMIT", 0, limit)
	for _, id in ipairs(ids) do
		local task = load(id)
		if not task or task.state == SUCCEEDED or
			task.state == CANCELLED then
			call("UNLINK", record_key(id))
		end
	end
	if ids[1] then
		sure("ZREM", key, unpack(ids))
	end
	return #ids, #ids == limit
end

local function is_covered(slot)
	return (slot - cursor) % slots <= floor(now / tick) - cursor
end

local function mend(id, slot)
	local task = load(id)
	sure("ZREM", bucket_key(slot), id)
	if not task then
		quarantine(id, "pending")
		return 0
	end
	if task.state ~= PENDING or task.slot ~= slot then
		return 0
	end
	count("pending", -1)
	count("missed", 1)
	place(id, task, task.due)
	save(id, task)
	return 1
end

-- Looks for what is due in slots that no pump will look at before the next
-- rotation.
local function find_missed(limit)
	local missed, looked = 0, 0
	for _ = 1, min(SLOTS_MAX, slots) do
		if not is_covered(scan) then
			local ids = sure("ZRANGEBYSCORE", bucket_key(scan),
				"-inf", now, "LIMIT", 0, limit - looked)
			for _, id in ipairs(ids) do
				missed = missed + mend(id, scan)
			end
			looked = looked + #ids
			if looked == limit then
				return missed, true
			end
		end
		scan = (scan + 1) % slots
	end
	return missed, false
end

local refused = open() or expect(4)
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
refused = admit("GETRANGE", "SET", "SETRANGE", "UNLINK", "XADD", "XRANGE",
	"ZADD", "ZCARD", "ZCOUNT", "ZRANGE", "ZRANGEBYSCORE", "ZREM")
if refused then
	return refused
end
fly = prefix .. ":fly"
math.randomseed(random % 2147483647)
local over, more_over = end_leases(limit)
local again, more_again = deliver_again(limit)
local removed, more_removed = remove_ended(limit)
local missed, more_missed = find_missed(limit)
call("HSET", KEYS[1], "scan", scan)
commit()
return {over, again, removed, missed, (more_over or more_again or
	more_removed or more_missed) and 1 or 0}
