#!lua
-- SPDX-License-Identifier: Apache-2.0
--
-- add, then id queue mode time attempts payload options for each task; options
-- are words with a space between them: replace; high or low; expires-in=MS or
-- expires-at=MS; retry=MS,THOUSANDTHS,MS; occurrence=READ. Nothing is stored
-- unless all of it is sound.
--
-- An OCCURRENCE of a schedule has the id NAME@TIME, and is due at that time. It
-- is stored once for good: P:o:NAME has the time of the last one that was added
-- in this shard, and one that is not later was there before, whatever has
-- become of its record. READ is when its scheduler asked for the schedule, by
-- that scheduler's clock: what it found may have changed since.

local PER_TASK = 7
local PRIORITIES = {high = HIGH, low = LOW}
local READ_MAX = 10000 -- ms since a schedule was asked for
local MARK_KEPT = 60000 -- ms: what a drop gives P:o:NAME

local bytes = 0 -- of payloads
local needed = FORMAT -- of the shard, for what was stored

local function place_of(i)
	return 3 + (i - 1) * PER_TASK
end

-- What is not due by then cannot begin.
local function read_expires(task, mode, text, at)
	task.expires = read_due(mode, text)
	return task.expires and
		(mode ~= ARGV[at + 2] or task.expires >= task.due)
end

-- What its scheduler has read lately.
local function read_occurrence(task, text, at)
	local read = whole(text, 0, WHOLE_MAX)
	task.read = read
	task.schedule = match(ARGV[at], "^([^@]+)@")
	return read and task.schedule and is_schedule(task.schedule) and
		ARGV[at + 2] == "at" and
		(tonumber(ARGV[1]) or read) - read <= READ_MAX
end

-- The first delay, the factor, the most.
local function read_retries(task, text)
	local first, factor, most = match(text, "^(%d+),(%d+),(%d+)$")
	task.first = whole(first or "", 0, WHOLE_MAX)
	task.factor = whole(factor or "", 0, WHOLE_MAX)
	task.most = whole(most or "", 0, WHOLE_MAX)
	return task.first and task.factor and task.most and
		are_retries(task.first, task.factor, task.most)
end

-- Whether the word is one of the options.
local function read_option(task, word, at)
	local name, value = match(word, "^([a-z-]+)=?(.*)$")
	if word == "replace" then
		task.replaces = true
	elseif PRIORITIES[word] and not task.priority then
		task.priority = PRIORITIES[word]
	elseif name == "expires-in" or name == "expires-at" then
		return not task.expires and
			read_expires(task, sub(name, -2), value, at)
	elseif name == "occurrence" then
		return read_occurrence(task, value, at)
	elseif name == "retry" then
		return not task.first and read_retries(task, value)
	else
		return false
	end
	return true
end

local function read_options(task, at)
	if ARGV[at + 6] == "" then
		return true
	end
	for word in string.gmatch(ARGV[at + 6] .. " ", "([^ ]*) ") do
		if not read_option(task, word, at) then
			return false
		end
	end
	if task.expires or task.first or task.priority then
		set_options(task)
	end
	return true
end

local function read_task(at)
	local due = read_due(ARGV[at + 2], ARGV[at + 3])
	local tries = whole(ARGV[at + 4], 1, TRIES_MAX)
	local wrong = not is_id(ARGV[at]) and "id" or
		not is_name(ARGV[at + 1]) and "queue" or
		not due and "time" or
		not tries and "attempts" or
		#ARGV[at + 5] > PAYLOAD_MAX and "payload" or
		bytes + #ARGV[at + 5] > BYTES_MAX and "payloads" or
		nil
	bytes = bytes + #ARGV[at + 5]
	local task = {state = PENDING, attempts = 0, max_attempts = tries,
		generation = 1, due = due, slot = due and slot_of(due),
		doubt = 0, doubt_before = 0, fence = 0,
		queue = ARGV[at + 1]}
	return task, wrong or not read_options(task, at) and "options" or nil
end

-- In the place of one that has ended, which gets the next generation; what
-- failed is dropped. The state of what stays instead, or nil.
local function replace(id, task)
	local there = load(id)
	if not there or there.state < SUCCEEDED or
		there.state > CANCELLED or
		there.generation == GENERATION_MAX then
		return state_of(id, there)
	end
	if there.state == FAILED then
		call("UNLINK", error_key(id))
		sure("ZREM", prefix .. ":dead", id)
		count("dropped", 1)
	end
	task.generation = there.generation + 1
	task.has_entry = there.has_entry and there.queue == task.queue
	if there.has_entry and not task.has_entry then
		remove_entries(there.queue, id)
	end
	return nil
end

-- What was read before a drop leaves the end that the drop has given the key:
-- nobody else would end it. The times are compared by the engine's clock.
local function is_of_before(task, key)
	local left = call("PTTL", key)
	local apart = real - (tonumber(ARGV[1]) or task.read)
	return left >= 0 and task.read + apart < real + left - MARK_KEPT
end

-- Whether it was added before, by this scheduler or another.
local function has_occurred(task)
	local key = occurred_key(task.schedule)
	local last = whole(sure("GET", key) or "", 0, WHOLE_MAX)
	if last and last >= task.due then
		return true
	end
	if last and is_of_before(task, key) then
		call("SET", key, format("%.0f", task.due), "KEEPTTL")
	else
		call("SET", key, format("%.0f", task.due))
	end
	changed = true
	return false
end

local function note_format(task)
	if task.options then
		needed = max(needed, task.priority and FORMAT_LANES or
			FORMAT_OPTIONS)
	end
end

local function store(task, at)
	local id = ARGV[at]
	if task.schedule and has_occurred(task) then
		return SUCCEEDED
	end
	local text = head(task) .. ARGV[at + 5]
	if not call("SET", record_key(id), text, "NX") then
		if not task.replaces then
			return state_of(id, (load(id)))
		end
		local stays = replace(id, task)
		if stays then
			return stays
		end
		call("SET", record_key(id), head(task) .. ARGV[at + 5])
	end
	note_format(task)
	place(id, task, task.due)
	count("added", 1)
	return 0
end

-- Whether none of the ids is there, in the engine or before in this add, and
-- none is an occurrence.
local function are_new(tasks, total)
	local keys, there = {}, {}
	for i = 1, total do
		local key = record_key(ARGV[place_of(i)])
		if there[key] or tasks[i].schedule then
			return false
		end
		there[key] = true
		keys[i] = key
	end
	return total > 0 and call("EXISTS", unpack(keys)) == 0
end

-- All at once, with one call for each bucket.
local function store_new(tasks)
	local records, members = {}, {}
	for i, task in ipairs(tasks) do
		local at = place_of(i)
		local id, slot = ARGV[at], task.slot
		records[2 * i - 1] = record_key(id)
		records[2 * i] = head(task) .. ARGV[at + 5]
		note_format(task)
		members[slot] = members[slot] or {}
		table.insert(members[slot], 0)
		table.insert(members[slot], member_of(id, task))
		earliest = min(earliest or task.due, task.due)
	end
	call("MSET", unpack(records))
	for slot, each in pairs(members) do
		sure("ZADD", bucket_key(slot), unpack(each))
	end
	count_waiting(#tasks, 0)
	count("added", #tasks)
end

local refused = open()
if refused then
	return refused
end
local total = (#ARGV - 2) / PER_TASK
if total ~= floor(total) or total < 0 or total > BATCH_MAX then
	return refuse_argument(0, "the number of arguments")
end
local tasks = {}
for i = 1, total do
	local task, wrong = read_task(place_of(i))
	if wrong then
		return refuse_argument(i, wrong)
	end
	tasks[i] = task
end
refused = admit("EXISTS", "GET", "GETRANGE", "LREM", "MSET", "PTTL", "SET",
	"UNLINK", "ZADD", "ZREM", "ZSCORE")
if refused then
	return refused
end
local results = {}
local all_new = are_new(tasks, total)
if all_new then
	store_new(tasks)
end
for i = 1, total do
	results[i] = all_new and 0 or store(tasks[i], place_of(i))
end
if needed > shard_format then
	commit("format", needed)
elseif earliest or changed then
	commit()
end
return results
