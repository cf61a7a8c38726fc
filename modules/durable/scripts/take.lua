#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- take queue worker token limit visibility

local LOOKED_MAX = 4 -- entries per task that is asked for

local taken, kept = {}, {}
local bytes = 0
local fence -- the last one of the shard

local function hand_over(id, task, text)
	bytes = bytes + #text
	taken[#taken + 1] = {id, task.generation, task.attempts, task.due,
		task.max_attempts, sub(text, HEADER + #task.queue + 1),
		task.fence}
end

-- What the same take got before, as far as it is still this worker's. The
-- worker counts the leases from when it asked again.
local function repeat_take(before, key, visibility)
	for i = 2, #before, 2 do
		local task, text = load(before[i], true)
		if task and task.state == RUNNING and
			task.fence == before[i + 1] then
			sure("ZADD", prefix .. ":fly", now + visibility,
				before[i])
			hand_over(before[i], task, text)
		end
	end
	if taken[1] then
		call("PEXPIRE", key, visibility)
		commit()
	end
	return taken
end

local function begin(id, queue, entry, visibility)
	local task, text = load(id, true)
	if not task or task.state ~= DELIVERED then
		local score = not task and sure("ZSCORE", prefix .. ":fly", id)
		if score and tonumber(score) >= DELIVERED_FROM then
			sure("ZREM", prefix .. ":fly", id)
			quarantine(id, "delivered")
		end
		return
	end
	-- Of before a reschedule, or of a task that had this id before.
	if task.queue ~= queue or entry_of(task) ~= entry then
		return
	end
	task.state = RUNNING
	task.attempts = task.attempts + 1
	task.ms, task.sequence = 0, 0
	fence = fence + 1
	task.fence = fence
	save(id, task)
	sure("ZADD", prefix .. ":fly", now + visibility, id)
	count("delivered", -1)
	count("running", 1)
	count("begun", 1)
	hand_over(id, task, text)
	kept[#kept + 1] = id
	kept[#kept + 1] = fence
end

-- No fence is used twice: it is greater than the last one, which meta has; and
-- if that is gone with the shard's data, than those of before, by the clock.
local function read_fence()
	local last = call("HGET", KEYS[1], "fence")
	return max(whole(last or "", 0, WHOLE_MAX) or 0, now * 1000)
end

-- Entries that nobody waits for any more are dropped on the way.
local function take(queue, limit, visibility)
	local looked = 0
	while #taken < limit and looked < limit * LOOKED_MAX and
		bytes < BYTES_MAX do
		local entries = sure("XRANGE", queue_key(queue), "-", "+",
			"COUNT", limit - #taken)
		if not entries[1] then
			break
		end
		local names = {}
		for i, entry in ipairs(entries) do
			if bytes >= BYTES_MAX then
				break
			end
			names[i] = entry[1]
			local fields = entry[2]
			if fields[1] == "i" then
				begin(fields[2], queue, entry[1], visibility)
			end
		end
		drop_entries(queue, names)
		looked = looked + #names
	end
end

local refused = open() or expect(7)
if refused then
	return refused
end
local queue, worker = ARGV[3], ARGV[4]
local token = whole(ARGV[5], 1, WHOLE_MAX)
local limit = whole(ARGV[6], 1, BATCH_MAX)
local visibility = whole(ARGV[7], 1, DAY)
if not is_name(queue) then
	return refuse_argument(1, "queue")
end
if not is_name(worker) then
	return refuse_argument(2, "worker")
end
if not token then
	return refuse_argument(3, "token")
end
if not limit then
	return refuse_argument(4, "limit")
end
if not visibility then
	return refuse_argument(5, "visibility")
end
refused = admit("GET", "GETRANGE", "SET", "SETRANGE", "XRANGE", "XDEL", "XLEN",
	"UNLINK", "ZADD", "ZREM", "ZSCORE", "PEXPIRE")
if refused then
	return refused
end
local last_key = prefix .. ":t:" .. worker
local last = try("GET", last_key)
local sound, before = pcall(cmsgpack.unpack, last)
if sound and type(before) == "table" and type(before[1]) == "number" then
	if token == before[1] then
		return repeat_take(before, last_key, visibility)
	end
	-- It comes so late that nobody waits for it.
	if token < before[1] then
		return {}
	end
end
fence = read_fence()
take(queue, limit, visibility)
if taken[1] then
	call("HSET", KEYS[1], "fence", fence)
	call("SET", last_key, cmsgpack.pack({token, unpack(kept)}), "PX",
		visibility)
end
if next(delta) then
	commit()
end
return taken
