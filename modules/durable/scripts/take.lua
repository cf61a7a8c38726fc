#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- take queue worker token received limit visibility: what it got; and behind
-- that, if it stopped before the limit and before the end of the queue: after
-- how many ms this worker is to ask again; 1: at once.
--
-- LIMITS of the queue. places: no attempt begins while so many run; who ends
-- one learns from finish that there is room. rate: a bucket of tokens, one
-- for each attempt, which holds as many as a second brings, but at least one;
-- it is kept as the time when it will be full. Of the workers that come too
-- early one learns when to ask again, and asks has that time; others get an
-- empty answer, as from an empty queue.

local LOOKED_MAX = 2048 -- entries: what nobody waits for goes fast
local PAGE = 16 -- records that are read at once: up to a MiB
local KEPT = 600000 -- ms, for which a take is remembered behind its leases

local taken, kept = {}, {}
local bytes, passed = 0, 0 -- of what it got, and of what it passed over
local looked = 0 -- entries
local seen = {} -- ids that it has begun, or that have expired
local leases = {} -- ends and ids
local is_cut = false -- it stopped before the limit; there may be more
local rule -- the limits of the queue; or nil
local in_buckets = {} -- members by slot

local function hand_over(id, task, text, visibility)
	bytes = bytes + #text
	taken[#taken + 1] = {id, task.generation, task.attempts, task.due,
		task.max_attempts, sub(text, head_size(task) + 1),
		task.fence}
	kept[#kept + 1] = id
	kept[#kept + 1] = task.fence
	leases[#leases + 1] = now + visibility
	leases[#leases + 1] = id
end

local function read_rule(queue)
	if shard_format < FORMAT_LANES then
		return nil
	end
	local read = try("HMGET", limits_key(queue), "places", "interval",
		"full", "asks", "held")
	if is_foreign(read) or not read[1] then
		return nil
	end
	local interval = tonumber(read[2] or "") or 0
	return {places = tonumber(read[1]) or 0, interval = interval,
		holds = max(1, 1000 / interval),
		full = tonumber(read[3] or "") or 0,
		asks = tonumber(read[4] or "") or 0,
		held = read[5]}
end

-- How many attempts may begin.
local function find_room(queue)
	local room = math.huge
	if rule.places > 0 then
		room = max(rule.places - sure("ZCARD", places_key(queue)), 0)
	end
	if rule.interval > 0 then
		local empty = max(rule.full - now, 0) / rule.interval
		local tokens = max(floor(rule.holds - empty), 0)
		rule.is_late = tokens < room
		room = min(room, tokens)
	end
	return room
end

-- The attempts that have begun have places, and take tokens.
local function note_begun(queue)
	if rule.places > 0 and taken[1] then
		local members = {}
		for _, each in ipairs(taken) do
			members[#members + 1] = now
			members[#members + 1] = each[1]
		end
		sure("ZADD", places_key(queue), unpack(members))
	end
	if rule.interval > 0 and taken[1] then
		rule.full = max(rule.full, now) + #taken * rule.interval
		call("HSET", limits_key(queue), "full",
			format("%.6f", rule.full))
	end
end

-- In how many ms this worker is to ask again, as there is no token; or nil:
-- another one will.
local function ask_again(queue)
	if rule.asks - now > 1 then
		return nil
	end
	local wait = rule.full - now - (rule.holds - 1) * rule.interval
	wait = min(max(-floor(-wait), 2), WAIT_MAX)
	call("HSET", limits_key(queue), "asks", now + wait)
	changed = true
	return wait
end

-- What the take before got, as far as it is still this worker's. The worker
-- counts the leases from when it asked again. If it was not received, no
-- callback was called for it: so what has ended meanwhile does not count, and
-- what has expired will not begin.
local function take_again(before, was_lost, visibility)
	for i = 2, #before, 2 do
		local id, attempt = before[i], before[i + 1]
		local task, text = load(id, true)
		local runs = task and task.state == RUNNING and
			task.fence == attempt
		if runs and was_lost and is_expired(task) then
			task.attempts = task.attempts - 1
			count("given_back", 1)
			bury_expired(id, task)
			sure("ZREM", inflight_key(), id)
			free_places(task.queue, id)
		elseif runs then
			hand_over(id, task, text, visibility)
		elseif was_lost then
			refund(id, attempt)
		end
	end
end

-- What a worker's last take got: its token, and id and fence of each.
local function read_last(key)
	local text = try("GET", key)
	local sound, last = pcall(cmsgpack.unpack, text)
	if sound and type(last) == "table" and type(last[1]) == "number" then
		return last
	end
	return {0}
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

-- Whatever the entry is, the record says whether it is to be executed; and by
-- an entry of its lane: that one is there, or the task is in the wheel still.
local function begin(id, text, lane, visibility)
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
	if task.state ~= PENDING or task.due > now or lane_of(task) ~= lane then
		drop_entry(id, task)
		passed = passed + #text
		return
	end
	note_bucket(id, task)
	seen[id] = true
	if is_expired(task) then
		bury_expired(id, task)
		count_waiting(0, -1)
		passed = passed + #text
		return
	end
	task.state = RUNNING
	task.attempts = task.attempts + 1
	fence = fence + 1
	task.fence = fence
	save(id, task)
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
local function begin_some(ids, lane, limit, visibility)
	local count = 0
	local texts
	for i, id in ipairs(ids) do
		if #taken == limit or bytes + passed >= BYTES_MAX then
			break
		end
		if (i - 1) % PAGE == 0 then
			texts = read_records(ids, i, min(i + PAGE - 1, #ids))
		end
		begin(id, texts[(i - 1) % PAGE + 1], lane, visibility)
		count = count + 1
	end
	return count
end

local function take_lane(lane, limit, visibility)
	local key = lane_key(lane)
	while #taken < limit and looked < LOOKED_MAX and
		bytes + passed < BYTES_MAX do
		local size = looked == 0 and limit or max(limit - #taken, PAGE)
		local ids = sure("LRANGE", key, 0, size - 1)
		if not ids[1] then
			break
		end
		local count = begin_some(ids, lane, limit, visibility)
		call("LTRIM", key, count, -1)
		looked = looked + count
		changed = true
	end
end

-- What is in a lane begins when those before it are empty.
local function take(queue, limit, visibility)
	for _, lane in ipairs(lanes_of(queue)) do
		take_lane(lane, limit, visibility)
	end
	is_cut = #taken < limit and
		(looked >= LOOKED_MAX or bytes + passed >= BYTES_MAX)
	for slot, members in pairs(in_buckets) do
		local gone = sure("ZREM", bucket_key(slot), unpack(members))
		count_waiting(-gone, gone)
	end
end

local refused = open() or expect(8)
if refused then
	return refused
end
local queue, worker = ARGV[3], ARGV[4]
local token = whole(ARGV[5], 1, WHOLE_MAX)
local received = whole(ARGV[6], 0, WHOLE_MAX)
local limit = whole(ARGV[7], 1, BATCH_MAX)
local visibility = whole(ARGV[8], 1, DAY)
if not is_name(queue) then
	return refuse_argument(1, "queue")
end
if not is_name(worker) then
	return refuse_argument(2, "worker")
end
if not token then
	return refuse_argument(3, "token")
end
if not received or received >= token then
	return refuse_argument(4, "received")
end
if not limit then
	return refuse_argument(5, "limit")
end
if not visibility then
	return refuse_argument(6, "visibility")
end
refused = admit("GET", "GETRANGE", "LLEN", "LRANGE", "LTRIM", "MGET", "PEXPIRE",
	"PTTL", "SET", "SETRANGE", "UNLINK", "ZADD", "ZCARD", "ZREM")
if refused then
	return refused
end
-- Asked before the first write. What it has begun before goes on.
local stands = paused_since(queue)
rule = read_rule(queue)
local last_key = prefix .. ":t:" .. worker
local last = read_last(last_key)
if token < last[1] then
	-- It comes so late that nobody waits for it.
	return {}
end
if received < last[1] then
	take_again(last, token > last[1], visibility)
end
local wait
if not taken[1] and not stands and token > last[1] then
	local room = rule and find_room(queue) or limit
	if room > 0 then
		take(queue, min(limit, room), visibility)
	end
	if rule then
		note_begun(queue)
	end
	if rule and #taken == room and count_entries(queue) > 0 then
		note_held(queue, rule.held)
		wait = rule.is_late and room < limit and ask_again(queue)
	end
end
if taken[1] then
	sure("ZADD", inflight_key(), unpack(leases))
	call("SET", last_key, cmsgpack.pack({token, unpack(kept)}), "PX",
		visibility + KEPT)
end
if delta.begun then
	commit("fence", fence)
elseif taken[1] or changed then
	commit()
end
taken[#taken + 1] = is_cut and 1 or wait or nil
return taken
