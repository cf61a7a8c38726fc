#!lua flags=no-writes
-- SPDX-License-Identifier: Apache-2.0
--
-- queues [NAME...]: now, and for each {queue, entries, due}; due is that of the
-- oldest entry, 0 if there is none. Without names: of up to 64 queues, those
-- with the oldest entries as far as the janitor knows; and before them whether
-- these are all.

local NAMES_MAX = 64

local function describe(queue, since)
	local entries = try("LLEN", queue_key(queue))
	if is_foreign(entries) or entries == 0 then
		return {queue, 0, 0}
	end
	return {queue, entries, oldest_in(queue) or since}
end

-- Each with the time that its score says.
local function find_queues()
	local found = try("ZRANGE", prefix .. ":queues", 0, NAMES_MAX,
		"WITHSCORES")
	local results = {}
	found = is_foreign(found) and {} or found
	for i = 1, min(#found, 2 * NAMES_MAX), 2 do
		results[#results + 1] = describe(found[i],
			tonumber(found[i + 1]))
	end
	return results, #found > 2 * NAMES_MAX and 0 or 1
end

local refused = open()
if refused then
	return refused
end
if #ARGV > 2 + NAMES_MAX then
	return refuse_argument(0, "the number of arguments")
end
for i = 3, #ARGV do
	if not is_name(ARGV[i]) then
		return refuse_argument(i - 2, "queue")
	end
end
refused = check_clocks()
if refused then
	return refused
end
if #ARGV == 2 then
	local results, all = find_queues()
	return {now, all, unpack(results)}
end
local results = {}
for i = 3, #ARGV do
	results[i - 2] = describe(ARGV[i], now)
end
return {now, 1, unpack(results)}
