#!lua flags=no-writes
-- SPDX-License-Identifier: Apache-2.0
--
-- stat: the fields of meta; running, dead, quarantined; now; and lag, which is
-- for how many milliseconds the earliest of the due tasks has been waiting for
-- a pump, or a schedule for a scheduler; ahead, for how long time stands still,
-- since the clock was set back; and leap, by how much it has leapt, which is
-- doubted.

-- How many there are in a set; a foreign key has none.
local function size(name)
	local reply = try("ZCARD", prefix .. name)
	return type(reply) == "number" and reply or 0
end

local function find_lag()
	if next_schedule <= now then
		return now - next_schedule
	end
	local first = floor(now / tick)
	first = max(cursor, first - slots + 1)
	local last = min(floor(now / tick), first + TICKS_MAX - 1)
	for each = first, last do
		local due = first_due(each % slots)
		if due and due <= now then
			return now - due
		end
	end
	return last < floor(now / tick) and now - last * tick or 0
end

local refused = open() or expect(2)
if refused then
	return refused
end
refused = check_clocks()
if refused then
	return refused
end
local reply = call("HGETALL", KEYS[1])
local more = {now = now, lag = find_lag(), running = size(":fly"),
	ahead = ahead, leap = in_doubt and doubted ~= 0 and real - now or 0,
	dead = size(":dead"), quarantined = size(":bad")}
for name, number in pairs(more) do
	reply[#reply + 1] = name
	reply[#reply + 1] = format("%.0f", number)
end
return reply
