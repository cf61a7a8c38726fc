#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- clock: sets what is ahead of the engine's clock back to it, after that was
-- ahead for a while: the mark, the cursor, the leases. The fence stays, for it
-- must grow; so does each due time. Answers for how many ms time stood still;
-- or, less than 0, for how many tasks in queues a worker must come first: they
-- are due by the mark alone.

local LEASES_MAX = 10000

-- The tasks that the old cursor has kept back.
local function place_again(old)
	local bucket = bucket_key(old % slots)
	for _, member in ipairs(sure("ZRANGE", bucket, 0, -1)) do
		local lane, due, id = read_member(member)
		local task = lane and load(id)
		if task and task.state == PENDING and task.due == due and
			slot_of(due) ~= task.slot then
			call("ZREM", bucket, member)
			count_waiting(-1, 0)
			place(id, task, due)
			save(id, task)
		end
	end
end

-- Buckets of tokens are full then, and nobody is waited for.
local function fill_buckets()
	for _, queue in ipairs(sure("ZRANGE", prefix .. ":limits", 0, -1)) do
		sure("HSET", limits_key(queue), "full", 0, "asks", 0,
			"held", 0)
	end
end

local function set_back()
	local inflight = inflight_key()
	local leases = sure("ZRANGE", inflight, 0, LEASES_MAX - 1, "WITHSCORES")
	local old = cursor
	now, now_up = real, real
	cursor = min(cursor, floor(now / tick))
	place_again(old)
	fill_buckets()
	for i = 1, #leases, 2 do
		call("ZADD", inflight, max(leases[i + 1] - ahead, now),
			leases[i])
	end
	next_poll = now
	version = version + 1
	commit("resumed", now, "doubted", 0, "turn", "")
end

local refused = open() or expect(2)
if refused then
	return refused
end
refused = admit("GETRANGE", "SETRANGE", "ZADD", "ZREM", "ZRANGE")
if refused then
	return refused
end
if ahead > 0 and delivered > 0 then
	return -delivered
end
if ahead > 0 then
	set_back()
end
return ahead
