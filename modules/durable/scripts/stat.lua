#!lua flags=no-writes
-- SPDX-License-Identifier: Apache-2.0
--
-- stat: the fields of meta; now; and lag, which is for how many milliseconds
-- the earliest of the due tasks has been waiting for a pump.

local function find_lag()
	local first = floor(now / tick)
	first = max(cursor, first - slots + 1)
	local last = min(floor(now / tick), first + TICKS_MAX - 1)
	for each = first, last do
		local head = try("ZRANGE", bucket_key(each % slots), 0, 0,
			"WITHSCORES")
		local due = not head.err and tonumber(head[2] or "")
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
for _, each in ipairs({"now", format("%.0f", now), "lag",
	format("%.0f", find_lag())}) do
	reply[#reply + 1] = each
end
return reply
