#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- take queue worker token limit visibility

local LOOKED_MAX = 4 -- entries per task that is asked for
local PAGE = 16 -- records that are read at once: up to a MiB

local taken, kept = {}, {}
local bytes = 0
local seen = {} -- ids that it has begun
local leases = {} -- ends and ids
local in_buckets = {} -- members by slot

local function hand_over(id, task, text, visibility)
	bytes = bytes + #text
	taken[#taken + 1] = {id, task.generation, task.attempts, task.due,
		task.max_attempts, sub(text, HEADER + #task.queue + 1),
		task.fence}
	kept[#kept + 1] = id
	kept[#kept + 1] = task.fence
	leases[#leases + 1] = now + visibility
	leases[#leases + 1] = id
end

-- What the same take got before, as far as it is still this worker's. The
-- worker counts the leases from when it asked again.
local function repeat_take(before, key, visibility)
	for i = 2, #before, 2 do
		local task, text = load(before[i], true)
		if task and task.state == RUNNING and
			task.fence == before[i + 1] then
			hand_over(before[i], task, text, visibility)
		end
	end
	if taken[1] then
		sure("ZADD", prefix .. ":fly", unpack(leases))
		call("PEXPIRE", key, visibility)
		commit()
	end
	return taken
end

-- The bucket has it too if the entry is of before: of a task that was put into
-- the wheel again, and has not been pumped yet.
local function note_bucket(id, task)
	if is_covered(task.slot) then
		in_buckets[task.slot] = in_buckets[task.slot] or {}
		table.insert(in_buckets[task.slot], member_of(id, task))
	end
end

-- An entry that nobody waits for. If its record was kept for it, it is no more.
local function drop_entry(id, task)
	if task and (task.state == SUCCEEDED or task.state == CANCELLED) and
		call("PTTL", record_key(id)) == -1 then
		call("PEXPIRE", record_key(id), retention)
	end
end

-- Whatever the entry is, the record says whether it is to be executed.
local function begin(id, text, queue, visibility)
	if seen[id] then
		return
	end
	local task = text and unpack_record(text)
	if not task then
		task, text = load(id, true)
	end
	if not task then
		quarantine(id)
		count_waiting(0, -1)
		return
	end
	if task.state ~= PENDING or task.due > now or task.queue ~= queue then
		drop_entry(id, task)
		return
	end
	note_bucket(id, task)
	task.state = RUNNING
	task.attempts = task.attempts + 1
	fence = fence + 1
	task.fence = fence
	save(id, task)
	seen[id] = true
	count("begun", 1)
	count_waiting(0, -1)
	hand_over(id, task, text, visibility)
end

local function read_records(ids, first, last)
	local keys = {}
	for i = first, last do
		keys[#keys + 1] = record_key(ids[i])
	end
	return call("MGET", unpack(keys))
end

-- Begins what the entries name, until there is enough. How many it looked at.
local function begin_some(ids, queue, visibility)
	local looked = 0
	local texts
	for i, id in ipairs(ids) do
		if bytes >= BYTES_MAX then
			break
		end
		if (i - 1) % PAGE == 0 then
			texts = read_records(ids, i, min(i + PAGE - 1, #ids))
		end
		begin(id, texts[(i - 1) % PAGE + 1], queue, visibility)
		looked = looked + 1
	end
	return looked
end

local function take(queue, limit, visibility)
	local key = queue_key(queue)
	local looked = 0
	while #taken < limit and looked < limit * LOOKED_MAX and
		bytes < BYTES_MAX do
		local ids = sure("LRANGE", key, 0, limit - #taken - 1)
		if not ids[1] then
			break
		end
		local count = begin_some(ids, queue, visibility)
		call("LTRIM", key, count, -1)
		looked = looked + count
		changed = true
	end
	for slot, members in pairs(in_buckets) do
		local gone = sure("ZREM", bucket_key(slot), unpack(members))
		count_waiting(-gone, gone)
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
refused = admit("GET", "GETRANGE", "LRANGE", "LTRIM", "MGET", "PEXPIRE", "PTTL",
	"SET", "SETRANGE", "ZADD", "ZREM")
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
take(queue, limit, visibility)
if taken[1] then
	sure("ZADD", prefix .. ":fly", unpack(leases))
	call("SET", last_key, cmsgpack.pack({token, unpack(kept)}), "PX",
		visibility)
	commit("fence", fence)
elseif changed then
	commit()
end
return taken
