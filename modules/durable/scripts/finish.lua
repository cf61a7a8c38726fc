#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- finish, then id fence outcome delay for each. After retry and fail, a space
-- and the name of the worker may follow, and a space and what it says: that is
-- kept if the task becomes a dead letter by this. A retry without a delay waits
-- for as long as the task says. Behind the results are the queues with a limit
-- to how many run, which have room now, and entries.

local PER_TASK = 4
local WHY_MAX = 64 + 1 + 1024
local OK, STALE = 0, 1
local OUTCOMES = {done = true, retry = true, fail = true, release = true}

local function read_outcome(text)
	local outcome, why = match(text, "^([a-z]+) ?(.*)$")
	if not OUTCOMES[outcome] or #why > WHY_MAX or #text > #outcome and
		(#why == 0 or outcome == "done" or outcome == "release") then
		return nil
	end
	return outcome, why
end

local function check(at)
	return not is_id(ARGV[at]) and "id" or
		not whole(ARGV[at + 1], 1, WHOLE_MAX) and "fence" or
		not read_outcome(ARGV[at + 2]) and "outcome" or
		not whole(ARGV[at + 3], 0, DELAY_MAX) and (ARGV[at + 3] ~= "" or
			sub(ARGV[at + 2], 1, 5) ~= "retry") and "delay" or
		ARGV[at + 2] == "release" and ARGV[at + 3] ~= "0" and "delay" or
		nil
end

-- The answer to the first one was lost: the task ended by just this.
local function is_repeated(task, outcome)
	if outcome == "done" then
		return task.state == SUCCEEDED
	end
	return task.state == FAILED and outcome ~= "release"
end

local over = {} -- ids of attempts that have ended
local of_queue = {} -- the same by queue
local done = {} -- ids that have been here: their records are read again

local function place_of(i)
	return 3 + (i - 1) * PER_TASK
end

-- The fence is another one for each attempt.
local function delay_of(task)
	math.randomseed(task.fence % 2147483647)
	return back_off(task)
end

local function apply(id, task, outcome, delay, why)
	over[#over + 1] = id
	if shard_format >= FORMAT_LANES then
		of_queue[task.queue] = of_queue[task.queue] or {}
		table.insert(of_queue[task.queue], id)
	end
	changed = true
	if outcome == "release" then
		count("given_back", 1)
		task.attempts = max(task.attempts - 1, 0)
		again(id, task, task.due, why)
	elseif outcome == "retry" then
		count("retried", 1)
		again(id, task, due_after(delay or delay_of(task)), why)
	elseif outcome == "fail" then
		bury(id, task, why, true)
	else
		conclude(id, task, SUCCEEDED)
	end
end

local function finish(at, text)
	local id = ARGV[at]
	local outcome, why = read_outcome(ARGV[at + 2])
	local attempt = tonumber(ARGV[at + 1])
	local task = text and unpack_record(text) or load(id)
	local is_last = task and task.fence == attempt
	if not is_last or task.state ~= RUNNING then
		return (outcome == "release" and refund(id, attempt) or
			is_last and is_repeated(task, outcome)) and OK or STALE
	end
	apply(id, task, outcome, tonumber(ARGV[at + 3]), why)
	return OK
end

-- What waits did so for these places, if all were taken.
local function note_full(queue, freed)
	local limits = try("HMGET", limits_key(queue), "places", "held")
	local places = not is_foreign(limits) and tonumber(limits[1] or "")
	if places and sure("ZCARD", places_key(queue)) + freed >= places then
		note_held(queue, limits[2])
	end
end

local refused = open()
if refused then
	return refused
end
local total = (#ARGV - 2) / PER_TASK
if total ~= floor(total) or total < 0 or total > BATCH_MAX then
	return refuse_argument(0, "the number of arguments")
end
for i = 1, total do
	local wrong = check(place_of(i))
	if wrong then
		return refuse_argument(i, wrong)
	end
end
refused = admit("GETRANGE", "HMGET", "LLEN", "MGET", "SET", "SETRANGE",
	"UNLINK", "ZADD", "ZCARD", "ZREM")
if refused then
	return refused
end
local results, ids = {}, {}
for i = 1, total do
	ids[i] = ARGV[place_of(i)]
end
local read = read_headers(ids)
for i, id in ipairs(ids) do
	results[i] = finish(place_of(i), not done[id] and read(i))
	done[id] = true
end
if over[1] then
	sure("ZREM", inflight_key(), unpack(over))
end
for queue, ended in pairs(of_queue) do
	local freed = free_places(queue, unpack(ended))
	if freed > 0 and count_entries(queue) > 0 then
		results[#results + 1] = queue
		note_full(queue, freed)
	end
end
if changed then
	commit()
end
return results
