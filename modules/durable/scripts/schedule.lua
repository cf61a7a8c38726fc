#!lua flags=allow-oom
-- SPDX-License-Identifier: Apache-2.0
--
-- schedule put name every cron zone missed queue attempts payload expires first
-- factor most priority: 0 made or changed, 1 it was there just so. every is
-- seconds, or 0; missed is last, all or none; expires is ms after an occurrence
-- is due, or 0; first, factor and most are of retries, as common.lua has them,
-- or all 0; priority is as in a record.
-- schedule drop name: 0, or -2.
-- schedule move, then name version last next occurred for each: what its
-- scheduler has found, unless another was faster, or it was changed: then 1,
-- else 0.
--
-- What comes of a line of cron in a time zone is for schedulers to find out:
-- here a schedule has a time until which its occurrences were added (last), and
-- one at which it is to be looked at again, at the latest. Schedules are in the
-- shard of their names, and occurrences in those of their ids.

local PER_MOVE = 5
local MISSED = {last = true, all = true, none = true}
local EVERY_MAX = DELAY_MAX / 1000
local LINE_MAX, ZONE_MAX = 256, 64
-- All that put says, in its order; the first three are when it occurs.
local SAID = {"every", "cron", "zone", "missed", "queue", "attempts", "payload",
	"expires", "first", "factor", "most", "priority"}
local WHEN = 3
local WHOLE = 7 -- what an older version says; all behind it is 0 then

-- The first of the schedules is for pumps to see.
local function commit_schedules(...)
	local first = sure("ZRANGE", schedules_key(), 0, 0, "WITHSCORES")[2]
	if first then
		earliest = tonumber(first)
	end
	commit("schedule", first and format("%.0f", first) or "", ...)
end

local function check_retries()
	local first = whole(ARGV[13], 0, DELAY_MAX)
	local factor = whole(ARGV[14], 0, FACTOR_MAX)
	local most = whole(ARGV[15], 0, DELAY_MAX)
	return first and factor and most and
		(first + factor + most == 0 or are_retries(first, factor, most))
end

local function check_put()
	local every = whole(ARGV[5], 0, EVERY_MAX)
	local wrong = not every and 3 or
		(#ARGV[6] > LINE_MAX or
			(every == 0) == (ARGV[6] == "")) and 4 or
		#ARGV[7] > ZONE_MAX and 5 or
		not MISSED[ARGV[8]] and 6 or
		not is_name(ARGV[9]) and 7 or
		not whole(ARGV[10], 1, TRIES_MAX) and 8 or
		#ARGV[11] > PAYLOAD_MAX and 9 or
		not whole(ARGV[12], 0, DELAY_MAX) and 10 or
		not check_retries() and 11 or
		not whole(ARGV[16], 0, LOW) and 14 or nil
	return wrong and refuse_argument(wrong, SAID[wrong - 2])
end

-- How many of SAID are there just so.
local function count_same(there)
	local same = 0
	while same < #SAID and (there[same + 1] or same >= WHOLE and "0") ==
		ARGV[same + 5] do
		same = same + 1
	end
	return same
end

-- Of the shard. If its tasks have options, or a priority, an older version is
-- refused, which would add them without.
local function format_needed()
	return ARGV[16] ~= "0" and FORMAT_LANES or
		(ARGV[12] ~= "0" or ARGV[13] ~= "0") and FORMAT_OPTIONS or
		FORMAT
end

-- What it occurs by is changed: then it begins now, and what it has missed
-- before is not added.
local function put()
	local name = ARGV[4]
	local key = schedule_key(name)
	local there = sure("HMGET", key, unpack(SAID))
	local same = count_same(there)
	if same == #SAID and sure("ZSCORE", schedules_key(), name) then
		return 1
	end
	version = version + 1
	local fields = {"version", format("%.0f", version)}
	for i, field in ipairs(SAID) do
		fields[#fields + 1] = field
		fields[#fields + 1] = ARGV[i + 4]
	end
	if same < WHEN then
		call("HSET", key, "last", format("%.0f", now), "occurred", 0)
	end
	call("HSET", key, unpack(fields))
	sure("ZADD", schedules_key(), now, name)
	if format_needed() > shard_format then
		commit_schedules("format", format_needed())
	else
		commit_schedules()
	end
	return 0
end

local function drop()
	local was = call("UNLINK", schedule_key(ARGV[4]))
	was = max(was, sure("ZREM", schedules_key(), ARGV[4]))
	if was == 1 then
		commit_schedules()
	end
	return was == 1 and 0 or -2
end

local function check_move(at)
	return is_schedule(ARGV[at]) and whole(ARGV[at + 1], 0, WHOLE_MAX) and
		whole(ARGV[at + 2], 0, WHOLE_MAX) and
		whole(ARGV[at + 3], 0, WHOLE_MAX) and
		whole(ARGV[at + 4], 0, WHOLE_MAX)
end

-- It never goes back, nor beyond now: what is between would not be added.
local function move(at)
	local name = ARGV[at]
	local there = sure("HMGET", schedule_key(name), "version", "last")
	local before, last = tonumber(there[2] or ""), tonumber(ARGV[at + 2])
	if there[1] ~= ARGV[at + 1] or not before or last < before or
		last > max(now, before) then
		return 1
	end
	call("HSET", schedule_key(name), "last", ARGV[at + 2])
	if ARGV[at + 4] ~= "0" then
		call("HSET", schedule_key(name), "occurred", ARGV[at + 4])
	end
	sure("ZADD", schedules_key(), ARGV[at + 3], name)
	return 0
end

local refused = open()
if refused then
	return refused
end
local verb = ARGV[3]
local total = (#ARGV - 3) / PER_MOVE
if verb == "move" and total == floor(total) and total <= BATCH_MAX then
	for i = 1, total do
		refused = refused or not check_move(PER_MOVE * i - 1) and
			refuse_argument(i, "move")
	end
elseif verb == "put" and #ARGV == 16 or verb == "drop" and #ARGV == 4 then
	refused = not is_schedule(ARGV[4]) and refuse_argument(2, "name") or
		verb == "put" and check_put() or nil
else
	refused = refuse_argument(1, "put, drop or move, or their arguments")
end
refused = refused or admit("UNLINK", "ZADD", "ZRANGE", "ZREM")
if refused then
	return refused
end
if verb == "put" then
	return put()
end
if verb == "drop" then
	return drop()
end
local results = {}
for i = 1, total do
	results[i] = move(PER_MOVE * i - 1)
end
commit_schedules()
return results
