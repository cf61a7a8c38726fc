#!lua flags=no-writes
-- SPDX-License-Identifier: Apache-2.0
--
-- schedules names: the names of all.
-- schedules due, or get, then up to 16 names: now, and of each {name, time of
-- the next look, and the fields of P:s:NAME, as field, value...}; of one that
-- is not there, the name alone. due: of up to 16 that are to be looked at.

local MOST = 16 -- a MiB of payloads

local function describe(name)
	local fields = try("HGETALL", schedule_key(name))
	local look = try("ZSCORE", schedules_key(), name)
	if is_foreign(fields) or not fields[1] then
		return {name}
	end
	return {name, not is_foreign(look) and look or "0", unpack(fields)}
end

-- From another place each time: so none is in another's way.
local function find_due()
	local count = try("ZCOUNT", schedules_key(), "-inf", now)
	if is_foreign(count) then
		return {}
	end
	return call("ZRANGEBYSCORE", schedules_key(), "-inf", now,
		"LIMIT", real % max(count - MOST + 1, 1), MOST)
end

local refused = open()
if refused then
	return refused
end
local verb = ARGV[3]
if #ARGV > 3 + MOST or #ARGV < 3 or verb ~= "get" and #ARGV ~= 3 then
	return refuse_argument(0, "the number of arguments")
end
if verb ~= "names" and verb ~= "due" and verb ~= "get" then
	return refuse_argument(1, "names, due or get")
end
refused = check_each(4, is_schedule, "name")
if refused then
	return refused
end
if verb == "names" then
	local names = try("ZRANGE", schedules_key(), 0, -1)
	return is_foreign(names) and {} or names
end
local results = {now}
for _, name in ipairs(verb == "due" and find_due() or {unpack(ARGV, 4)}) do
	results[#results + 1] = describe(name)
end
return results
