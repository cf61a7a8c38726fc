#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- pump limit version: moves what is due from the wheel to the queues. A tick is
-- left behind only when nothing due is in its slot, so after a stop at any
-- place the next pump goes on where this one was.

local bells = {} -- queues that got something

-- Whether the member leaves the bucket.
local function deliver(id, slot)
	local task = load(id)
	if not task then
		quarantine(id, "pending")
		return true
	end
	if task.state ~= PENDING or task.slot ~= slot then
		return true
	end
	if task.due > now then
		count("pending", -1)
		place(id, task, task.due)
		save(id, task)
		return task.slot ~= slot
	end
	enqueue(id, task)
	task.state = DELIVERED
	save(id, task)
	sure("ZADD", prefix .. ":fly", DELIVERED_FROM + now, id)
	count("pending", -1)
	count("delivered", 1)
	bells[task.queue] = true
	return true
end

-- How many members of the slot were looked at.
local function drain(slot, limit)
	local bucket = bucket_key(slot)
	local ids = sure("ZRANGEBYSCORE", bucket, "-inf", now, "LIMIT", 0,
		limit)
	local gone = {}
	for _, id in ipairs(ids) do
		if deliver(id, slot) then
			gone[#gone + 1] = id
		end
	end
	if gone[1] then
		sure("ZREM", bucket, unpack(gone))
	end
	return #ids
end

-- Up to the tick of now. Whether something may be left.
local function turn(limit)
	local last = floor(now / tick)
	cursor = max(cursor, last - slots + 1)
	local final = min(last, cursor + TICKS_MAX - 1)
	local looked = 0
	while true do
		looked = looked + drain(cursor % slots, limit - looked)
		if looked >= limit then
			return true
		end
		if cursor >= final then
			break
		end
		cursor = cursor + 1
	end
	return final < last
end

-- What is due next lies in the slots of the ticks until then; in that of the
-- cursor there is also what came too late for its own.
local function find_next()
	local found = now + WAIT_MAX
	if pending + (delta.pending or 0) <= 0 then
		return found
	end
	local first = cursor
	local last = min(floor(found / tick), first + slots - 1)
	for each = first, last do
		if each * tick >= found then
			break
		end
		local head = sure("ZRANGE", bucket_key(each % slots), 0, 0,
			"WITHSCORES")
		if head[2] then
			found = min(found, tonumber(head[2]))
		end
	end
	return max(found, now)
end

local refused = open() or expect(4)
if refused then
	return refused
end
local limit = whole(ARGV[3], 1, 1000)
if not limit then
	return refuse_argument(1, "limit")
end
local expected = ARGV[4] ~= "" and whole(ARGV[4], 0, WHOLE_MAX)
if ARGV[4] ~= "" and not expected then
	return refuse_argument(2, "version")
end
refused = admit("XADD", "SET", "SETRANGE", "ZADD", "ZREM", "ZRANGE", "GETRANGE",
	"ZRANGEBYSCORE")
if refused then
	return refused
end
if expected and expected ~= version then
	return {-1, 0, version}
end
local was_cursor, was_next = cursor, next_look
local more = turn(limit)
local looked_for = more and now or find_next()
if cursor ~= was_cursor or next(delta) then
	version = version + 1
end
next_look = looked_for
if cursor ~= was_cursor or next(delta) or next_look ~= was_next then
	commit()
end
for queue in pairs(bells) do
	try("PUBLISH", space .. ":work:" .. queue, shard)
end
return {delta.delivered or 0, looked_for - now, version, cursor, now,
	more and 1 or 0}
