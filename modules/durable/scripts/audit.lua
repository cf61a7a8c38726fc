#!lua flags=no-writes
-- SPDX-License-Identifier: Apache-2.0
--
-- audit ids: what is wrong with each. "" as an id: with the shard's counters.
-- A complaint begins with the number of the invariant: 5, an id is where its
-- record says, and nowhere else; 6, the cursor is not in the future; 8, the
-- counters agree with each other and with the sets. That pending is what the
-- buckets have is for the caller to find out: there may be a million of them,
-- and a script delays all others.

local wrong

local invariant

local function complain(text)
	wrong[#wrong + 1] = invariant .. " " .. text
end

local function score(set, id)
	local reply = try("ZSCORE", prefix .. set, id)
	if type(reply) == "table" then
		complain(set .. " is foreign")
		return nil
	end
	return reply and tonumber(reply)
end

-- Where an id must be, and where not.
local function check_member(set, is_there, ought)
	if is_there and not ought then
		complain("in " .. set)
	elseif ought and not is_there then
		complain("not in " .. set)
	end
end

-- Whether it is in the bucket that its record names.
local function check_bucket(id, task)
	local there = is_in_bucket(id, task)
	if there and task.state ~= PENDING then
		complain("in its bucket")
	elseif there and task.due <= now and not is_covered(task.slot) then
		complain("behind the cursor")
	end
	return there
end

-- A long queue is not searched.
local function check_entry(id, task)
	local key = lane_key(lane_of(task))
	local length = try("LLEN", key)
	if is_foreign(length) or length <= SHORT and
		not call("LPOS", key, id) then
		complain("neither in its bucket nor in its queue")
	end
end

local function check_task(id)
	invariant = 5
	local task, text = load(id)
	local state = task and task.state
	local lease = score(":fly", id)
	local dead, bad = score(":dead", id), score(":bad", id)
	if text == "" then
		complain("no record")
	elseif not task and not bad then
		complain("a record that cannot be read")
	end
	if task and state ~= QUARANTINED and not check_bucket(id, task) and
		state == PENDING then
		if task.due > now then
			complain("not in its bucket")
		else
			check_entry(id, task)
		end
	end
	check_member("fly", lease, state == RUNNING)
	check_member("dead", dead, state == FAILED)
	check_member("bad", bad, state == QUARANTINED or not task and bad)
end

local function size(command, key, ...)
	local reply = try(command, prefix .. key, ...)
	if type(reply) == "table" then
		complain(key .. " is foreign")
		return 0
	end
	return reply
end

local function compare(name, meta, counted)
	if tonumber(meta[name]) ~= counted then
		complain(format("%s is %s, counted %.0f", name,
			tostring(meta[name]), counted))
	end
end

local function read_meta()
	local flat = call("HGETALL", KEYS[1])
	local meta = {}
	for i = 1, #flat, 2 do
		meta[flat[i]] = flat[i + 1]
	end
	return meta
end

local function check_shard()
	invariant = 8
	local meta = read_meta()
	local ends = size("ZCARD", ":fly") + size("ZCARD", ":dead") +
		size("ZCARD", ":bad")
	for _, name in ipairs({"pending", "delivered", "succeeded",
		"cancelled", "dropped"}) do
		ends = ends + (tonumber(meta[name] or "") or 0)
	end
	compare("added", meta, ends)
	invariant = 6
	if cursor > floor(now / tick) then
		complain("the cursor is in the future")
	end
end

local refused = open()
if refused then
	return refused
end
if #ARGV > 2 + 1000 then
	return refuse_argument(0, "the number of arguments")
end
refused = check_each(3, function(id)
	return id == "" or is_id(id)
end, "id")
if refused then
	return refused
end
local results = {}
for i = 3, #ARGV do
	wrong = {}
	if ARGV[i] == "" then
		check_shard()
	else
		check_task(ARGV[i])
	end
	results[i - 2] = wrong
end
return results
